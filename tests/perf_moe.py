"""Time of expert groups and of latent attention: python tests/perf_moe.py [DEVICE] [--small].

Experts: 6144 → 2048 → 6144 in Q4_0, 8 per token, 32 distinct ones in turn, so that weights come
from memory. Attention: 2,000 positions, 64 heads, latents of 512 + 64 values, 256 values a head
into 6144. Prints microseconds and the floor: bytes read at the device's measured bandwidth. --small
divides all widths by 8. No test: it needs a quiet machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kompute_llm.engine.blocks import FORMATS
from kompute_llm.engine.device import Device, choose
from kompute_llm.engine.plan import Buf
from kompute_llm.engine.recorder import Algorithms
from kompute_llm.engine.roof import measure
from kompute_llm.kernels import (
    experts_q8_down,
    experts_q8_swiglu,
    fill,
    matvec_q8_add,
    mla_absorb,
    mla_attention,
    mla_values_q8,
)
from kompute_llm.kernels.kernel import Kernel
from kompute_llm.kernels.mla import ALL
from kompute_llm.kernels.reference import step_words

EXPERTS, USED, EVALS, REPEATS = 32, 8, 20, 4
POSITIONS, HEADS, RANK, ROT, NOPE, VALUE, WIDTH, INNER = 2000, 64, 512, 64, 192, 256, 6144, 2048
PATTERN = 0x11111111  # of weights: small finite scales in every format


@dataclass(frozen=True)
class Stack:
    """A weight without values, as launches see it."""

    rows: int
    cols: int
    format_name: str

    @property
    def planes(self) -> tuple[int, ...]:
        """Words of each plane."""
        fmt = FORMATS[self.format_name]
        return fmt.plane_words(self.rows * self.cols // fmt.elems)

    @property
    def nbytes(self) -> int:
        """Bytes that a product reads."""
        fmt = FORMATS[self.format_name]
        return self.rows * self.cols // fmt.elems * fmt.bytes


class Bench:
    """Buffers and recorded sequences on one device."""

    def __init__(self, device: Device, bandwidth: float) -> None:
        self.device, self.bandwidth = device, bandwidth
        self.algorithms = Algorithms(device)
        self.step = self.exchange(step_words(1, POSITIONS - 1))

    def exchange(self, values: Any) -> Any:
        """A buffer with values."""
        words = np.ascontiguousarray(values).view(np.uint32).reshape(-1)
        tensor = self.device.exchange(max(4, words.size), "values")
        tensor.data()[: words.size] = words
        seq = self.device.sequence()
        self.device.sync_device(seq, [tensor])
        self.device.eval(seq)
        return tensor

    def storage(self, words: int) -> Any:
        """A buffer full of PATTERN."""
        tensor, seq = self.device.storage(words, "bench"), self.device.sequence()
        params = {"word": 0, "count": words, "value": PATTERN}
        self.algorithms.record(seq, fill.KERNEL, {"dst": tensor}, {}, params, 1)
        self.device.eval(seq)
        return tensor

    def add(self, seq: Any, kernel: Kernel, params: dict[str, Any], **ops: tuple[Any, Any]) -> None:
        """Record a dispatch; operands are (tensor, shape)."""
        values = dict(params)
        for name, (_, shape) in ops.items():
            if isinstance(shape, Stack):
                for i in range(4):
                    values[f"{name}_p{i}"] = sum(shape.planes[:i])
        values |= {name: 0 for name, _ in kernel.interface.push if name.endswith("_base")}
        tensors = {name: op[0] for name, op in ops.items()} | {"step": self.step}
        shapes = {name: op[1] for name, op in ops.items()}
        self.algorithms.record(seq, kernel, tensors, shapes, values, 1)

    def best(self, seq: Any) -> float:
        """Least microseconds of one eval."""
        times = []
        for _ in range(EVALS):
            start = time.perf_counter()
            self.device.eval(seq)
            times.append((time.perf_counter() - start) * 1e6)
        return min(times)

    def say(self, what: str, micros: float, nbytes: float, per: str) -> None:
        """One line of the table."""
        floor = nbytes / self.bandwidth * 1e6
        print(f"{what:46} {micros:9.2f} µs per {per}, floor {floor:.2f} µs ({floor / micros:.0%})")

    def weight(self, rows: int, cols: int, fmt: str) -> tuple[Any, Stack]:
        """A weight full of PATTERN."""
        stack = Stack(rows, cols, fmt)
        return self.storage(sum(stack.planes)), stack

    def vector(self, n: int) -> dict[str, tuple[Any, Buf]]:
        """Quants, scales and sums of squares of a vector, and its float32 values."""
        return {
            "q": (self.storage(n // 4), Buf("q", (n // 4,), "U32")),
            "s": (self.storage(n // 8), Buf("s", (n // 16, 2))),
            "ssq": (self.storage(n // 16), Buf("ssq", (n // 16,))),
            "f": (self.storage(n), Buf("f", (1, n))),
        }  # fmt: skip


def chains(b: Bench, steps: Sequence[Callable[[Any], None]], name: str, nbytes: float, count: int,
           per: str) -> None:  # fmt: skip
    """Time of the steps one after another, several times in one submit and once with readback."""
    seq = b.device.sequence()
    for _ in range(REPEATS):
        for step in steps:
            step(seq)
    b.say(name, b.best(seq) / (REPEATS * len(steps) * count), nbytes, per)


def experts(b: Bench, shrink: int) -> None:
    """Groups of USED experts, EXPERTS in all."""
    n, f = WIDTH // shrink, INNER // shrink
    inner_w, down_w = b.weight(2 * EXPERTS * f, n, "Q4_0"), b.weight(EXPERTS * n, f, "Q4_0")
    gain, x, inner = b.weight(1, n, "F32"), b.vector(n), b.vector(USED * f)
    y = b.device.exchange(n, "result")
    routes = []
    for first in range(EXPERTS // USED):
        route = np.zeros((1, USED, 2), np.float32)
        route[0, :, 0], route[0, :, 1] = np.arange(USED) * (EXPERTS // USED) + first, 1 / USED
        routes.append((b.exchange(route), Buf("route", route.shape)))

    def group(route: tuple[Any, Buf]) -> Callable[[Any], None]:
        def record(seq: Any) -> None:
            common = {"experts": EXPERTS, "first": 0}
            b.add(seq, experts_q8_swiglu.KERNEL, {"cols": n, "rows": f, "eps": 1e-5, **common},
                  w=inner_w, xq=x["q"], xs=x["s"], ssq=x["ssq"], route=route, yq=inner["q"],
                  ys=inner["s"])  # fmt: skip
            b.add(seq, experts_q8_down.KERNEL, {"cols": f, "rows": n, **common}, w=down_w,
                  xq=inner["q"], xs=inner["s"], route=route, g=gain, y=(y, Buf("y", (1, n))),
                  yq=x["q"], ys=x["s"], ssq=x["ssq"])  # fmt: skip

        return record

    nbytes = (inner_w[1].nbytes + down_w[1].nbytes) / EXPERTS
    steps = [group(route) for route in routes]
    chains(b, steps, f"experts {n} → {f} → {n}, {USED} of {EXPERTS}", nbytes, USED, "expert")
    once = b.device.sequence()
    steps[0](once)
    b.device.sync_local(once, [y])
    b.say("  one group, submit and readback", b.best(once) / USED, nbytes, "expert")


def attention(b: Bench, shrink: int) -> None:
    """Absorption, attention, values and output projection of one token."""
    heads, n, splits = HEADS // shrink, WIDTH // shrink, 32
    width = heads * VALUE
    k_b, v_b = b.weight(heads * RANK, NOPE, "F16"), b.weight(heads * VALUE, RANK, "Q8_0")
    out, gain, norm = b.weight(n, width, "Q4_0"), b.weight(1, n, "F32"), b.weight(1, RANK, "F32")
    cache = b.storage(POSITIONS * (RANK + ROT) // 2), Buf("k", (POSITIONS, RANK + ROT), "F16")
    rope = b.storage(POSITIONS * ROT), Buf("rope", (POSITIONS, ROT // 2, 2))
    first = heads * (NOPE + ROT) + RANK + ROT
    a = b.storage(first), Buf("a", (1, first))
    q = b.storage(heads * (RANK + ROT)), Buf("q", (1, heads * (RANK + ROT)))
    parts = Buf("part", (heads, splits, RANK + 2))
    part, values, y = (b.storage(parts.words), parts), b.vector(width), b.vector(n)
    sizes = {"heads": heads, "rank": RANK, "nope": NOPE, "n_rot": ROT}

    def absorb(seq: Any) -> None:
        latent = {**sizes, "eps": 1e-5, "first": heads * (NOPE + ROT)}
        b.add(seq, mla_absorb.KERNEL, latent, x=a, a=a, kb=k_b, h=norm, rope=rope, q=q,
              k=cache)  # fmt: skip

    def core(seq: Any) -> None:
        seen = {**sizes, "splits": splits, "most": ALL}
        b.add(seq, mla_attention.KERNEL, {**seen, "scale": 0.07}, q=q, k=cache, part=part)
        b.add(seq, mla_values_q8.KERNEL, {**seen, "rows": VALUE}, part=part, w=v_b,
              yq=values["q"], ys=values["s"])  # fmt: skip

    def project(seq: Any) -> None:
        b.add(seq, matvec_q8_add.KERNEL, {"cols": width, "rows": n}, w=out, xq=values["q"],
              xs=values["s"], g=gain, y=y["f"], yq=y["q"], ys=y["s"], ssq=y["ssq"])  # fmt: skip

    def whole(seq: Any) -> None:
        for part_of in (absorb, core, project):
            part_of(seq)

    cached = POSITIONS * (RANK + ROT) * 2
    read = k_b[1].nbytes + v_b[1].nbytes + out[1].nbytes + cached
    chains(b, [absorb], f"absorption, {heads} heads", k_b[1].nbytes, 1, "call")
    chains(b, [core], f"attention, T = {POSITIONS}", v_b[1].nbytes + cached, 1, "call")
    chains(b, [project], f"output projection {width} → {n}", out[1].nbytes, 1, "call")
    chains(b, [whole], "all three", read, 1, "call")


def main() -> None:
    """Both tables."""
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    shrink = 8 if "--small" in sys.argv else 1
    with Device.open(choose(names[0] if names else None)) as device:
        roof, _ = measure(device, lambda text: None)
        print(f"{device.describe}: reads {roof.read / 1e9:.0f} GB/s")
        b = Bench(device, roof.read)
        experts(b, shrink)
        attention(b, shrink)


if __name__ == "__main__":
    main()
