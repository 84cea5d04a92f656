"""Time of single mat-vecs in int8: python tests/perf_matvec.py [DEVICE] [ROWS COLS] [--sweep=NAME]
[--sweep-add=NAME]

4096 rows of 14336 values, the shape that llama.cpp's `test-backend-ops perf -o MUL_MAT` times, in
several formats, with distinct weights in turn so that they come from memory. Prints microseconds
of a product that waits for the one before it (as in a model), of one that does not, and GB/s of
weights of the latter. --sweep: tilings of one format, the fastest first; --sweep-add: those of
products into the residual stream, in turn. No test: it needs a quiet machine.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from perf_bench import Bench, Step

from kompute_llm.engine.device import Device, choose
from kompute_llm.engine.plan import Buf
from kompute_llm.kernels import matvec_q8_add, norm_matvec_q8, q8

FORMATS = ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "Q3_K", "Q2_K", "INT4_G64", "INT3_G64")
COPIES, DISPATCHES, EVALS = 8, 64, 15


def record(b: Bench, weights: list[Any], size: tuple[int, int], independent: bool) -> Any:
    """A sequence of products with each weight in turn."""
    rows, cols = size
    x, seq, out = b.vector(cols), b.device.sequence(), Buf("y", (1, rows))
    outputs = [b.storage(rows) for _ in range(COPIES)]
    for i in range(DISPATCHES):
        tensor, stack = weights[i % COPIES]
        params: dict[str, Any] = {"cols": cols, "rows": rows, "y_off": 0, "eps": 1e-5}
        params |= {f"w_p{j}": sum(stack.planes[:j]) for j in range(4)}
        tensors = {"w": tensor, "xq": x["q"][0], "xs": x["s"][0], "ssq": x["ssq"][0],
                   "y": outputs[i % COPIES], "step": b.step}  # fmt: skip
        shapes = {"w": stack, "xq": x["q"][1], "xs": x["s"][1], "ssq": x["ssq"][1], "y": out}
        b.algorithms.record(seq, norm_matvec_q8.KERNEL, tensors, shapes, params, 1,
                            independent=independent and i > 0)  # fmt: skip
    return seq


def micros(b: Bench, seq: Any) -> float:
    """Median microseconds of one dispatch."""
    b.warm(seq)
    times = []
    for _ in range(EVALS):
        start = time.perf_counter()
        b.device.eval(seq)
        times.append((time.perf_counter() - start) * 1e6 / DISPATCHES)
    return statistics.median(times)


def sweep(b: Bench, size: tuple[int, int], fmt: str) -> None:
    """GB/s of products side by side by lanes of a row, groups per row, rows of a group."""
    weights = [b.weight(*size, fmt) for _ in range(COPIES)]
    before, found = q8.plain_tiling, []
    for n, ksplit, rows in itertools.product((4, 8, 16, 32), (1, 2, 4, 8, 16), (1, 2, 4)):
        if not 16 <= n * ksplit <= 64 or n > b.device.limits.subgroup_size:
            continue
        t = q8.Tiling(rows, ksplit, lanes=n)
        q8.plain_tiling = lambda *shape, t=t: t
        speed = weights[0][1].nbytes / micros(b, record(b, weights, size, True)) / 1e3
        found.append((speed, f"lanes {n} x {ksplit}, rows {rows}"))
    q8.plain_tiling = before
    for speed, what in sorted(found, reverse=True)[:12]:
        print(f"{fmt} {what}: {speed:.0f} GB/s")


def add_tilings(b: Bench) -> Iterator[q8.Tiling]:
    """What is tried for products into the residual stream."""
    subgroup = b.device.limits.subgroup_size
    for n, rows, ksplit, unroll, workgroup in itertools.product(
        (subgroup // 2, subgroup), (1, 2, 4), (1, 2, 4, 8), (1, 2, 4), (256, 512, 1024)
    ):  # fmt: skip
        if subgroup <= workgroup // ksplit and rows * unroll <= 4:
            yield q8.Tiling(rows, ksplit, unroll, lanes=n, workgroup=workgroup)


def sweep_add(b: Bench, size: tuple[int, int], fmt: str) -> None:
    """Microseconds of matvec_q8_add by tiling, each waiting for the one before."""
    rows, cols = size
    weights = [b.weight(rows, cols, fmt) for _ in range(COPIES)]
    x, y, gain = b.vector(cols), b.vector(rows), b.weight(1, rows, "F32")
    before, names = q8.add_tiling, ["as now"]

    def step(i: int) -> Step:
        return lambda seq: b.add(
            seq, matvec_q8_add.KERNEL, {"cols": cols, "rows": rows}, w=weights[i], xq=x["q"],
            xs=x["s"], g=gain, y=y["f"], yq=y["q"], ys=y["s"], ssq=y["ssq"],
        )  # fmt: skip

    sequences = [b.chain([step(i) for i in range(COPIES)], 2)]
    for t in add_tilings(b):
        q8.add_tiling = lambda *shape, t=t: t
        names.append(f"lanes {t.lanes} x {t.ksplit}, rows {t.rows}, unroll {t.unroll}, "
                     f"of {t.workgroup}")  # fmt: skip
        sequences.append(b.chain([step(i) for i in range(COPIES)], 2))
    q8.add_tiling = before
    times = [t / (2 * COPIES) for t in b.turns(sequences)]
    for i, (micro, what) in enumerate(sorted(zip(times, names, strict=True))):
        if i < 16 or what == "as now":
            print(f"{fmt} {rows} x {cols} add, {what}: {micro:.2f} µs")


def main() -> None:
    """One line per format."""
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    swept, added = (
        [a.removeprefix(name) for a in sys.argv[1:] if a.startswith(name)]
        for name in ("--sweep=", "--sweep-add=")
    )
    size = (int(args[1]), int(args[2])) if len(args) > 2 else (4096, 14336)
    with Device.open(choose(args[0] if args else None)) as device:
        b = Bench(device, 1.0, 1)
        print(f"{device.describe}: {size[0]} x {size[1]}")
        for fmt in swept:
            sweep(b, size, fmt)
        for fmt in added:
            sweep_add(b, size, fmt)
        if swept or added:
            return
        for fmt in FORMATS:
            weights = [b.weight(*size, fmt) for _ in range(COPIES)]
            after = micros(b, record(b, weights, size, False))
            beside = micros(b, record(b, weights, size, True))
            speed = weights[0][1].nbytes / beside / 1e3
            print(f"{fmt:9} {after:7.2f} µs in turn, {beside:7.2f} side by side, {speed:6.0f} GB/s")


if __name__ == "__main__":
    main()
