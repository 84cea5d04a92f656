"""Time of experts and latent attention: python tests/perf_moe.py [DEVICE] [--small] [--check]
[--layer] [--sweep] [--at=POSITIONS].

Experts: 6144 → 2048 → 6144 in int4-g64, 8 per token, 32 distinct ones in turn, so that weights come
from memory. Attention: 2,000 positions, 64 heads, latents of 512 + 64 values, 256 values a head
into 6144. Prints microseconds and the floor: bytes read at the device's measured bandwidth. --small
divides all widths by 8. --check, --layer and --sweep: see perf_moe_table.py; --at: at one context
only. No test: it needs a quiet machine.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import perf_moe_table
from perf_bench import Bench

from kompute_llm.engine.device import Device, choose
from kompute_llm.engine.plan import Buf
from kompute_llm.engine.roof import measure
from kompute_llm.kernels import (
    experts_q8_down,
    experts_q8_swiglu,
    matvec_q8_add,
    mla_absorb,
    mla_attention,
    mla_attention_coop,
    mla_expand_q8,
)
from kompute_llm.kernels.mla import ALL, MIN_SPLIT

EXPERTS, USED, REPEATS, FORMAT = 32, 8, 4, "INT4_G64"
ROUNDS, TURNS = 9, 16  # of groups in flight
POSITIONS, HEADS, RANK, ROT, NOPE, VALUE, WIDTH, INNER = 2000, 64, 512, 64, 192, 256, 6144, 2048


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
    inner_w, down_w = b.weight(2 * EXPERTS * f, n, FORMAT), b.weight(EXPERTS * n, f, FORMAT)
    gain, x, inner = b.weight(1, n, "F32"), b.vector(n), b.vector(USED * f)
    results = [b.device.exchange(n, "result") for _ in range(EXPERTS // USED)]
    routes = []
    for first in range(EXPERTS // USED):
        route = np.zeros((1, USED, 2), np.float32)
        route[0, :, 0], route[0, :, 1] = np.arange(USED) * (EXPERTS // USED) + first, 1 / USED
        routes.append((b.exchange(route), Buf("route", route.shape)))

    def group(route: tuple[Any, Buf], y: Any) -> Callable[[Any], None]:
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
    steps = [group(route, y) for route, y in zip(routes, results, strict=True)]
    chains(b, steps, f"experts {n} → {f} → {n}, {USED} of {EXPERTS}", nbytes, USED, "expert")
    groups = [b.device.sequence() for _ in steps]
    for seq, step, y in zip(groups, steps, results, strict=True):
        step(seq)
        b.device.sync_local(seq, [y])
    b.say("  one group, submit and readback", b.best(groups[0]) / USED, nbytes, "expert")
    flying = in_flight(b, groups, results) / USED
    b.say("  the same, the next groups submitted before", flying, nbytes, "expert")


def in_flight(b: Bench, groups: Sequence[Any], results: Sequence[Any]) -> float:
    """Microseconds of a group of which each result is read, while all others are on their way."""
    times = []
    b.warm(groups[0])
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for i in range(TURNS * len(groups)):
            at = i % len(groups)
            if i >= len(groups):
                groups[at].handle.eval_await()
                results[at].data()[0]
            groups[at].handle.eval_async()
        for seq in groups:
            seq.handle.eval_await()
        times.append((time.perf_counter() - start) * 1e6 / (TURNS * len(groups)))
    return statistics.median(times)


def attention(b: Bench, shrink: int) -> None:
    """Absorption, attention, values and output projection of one token."""
    heads, n, splits, least = HEADS // shrink, WIDTH // shrink, 32, MIN_SPLIT
    kernel = mla_attention.KERNEL
    if mla_attention_coop.needs(b.device.limits):
        splits, least = mla_attention_coop.SPLITS, mla_attention_coop.LEAST
        kernel = mla_attention_coop.KERNEL
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
        seen = {**sizes, "splits": splits, "most": ALL, "least": least}
        b.add(seq, kernel, {**seen, "scale": 0.07}, q=q, k=cache, part=part)
        b.add(seq, mla_expand_q8.KERNEL, {**seen, "rows": VALUE}, part=part, w=v_b,
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
        if "--check" in sys.argv:
            perf_moe_table.check(device)
        if "--layer" in sys.argv or "--sweep" in sys.argv:
            lengths = [int(a.removeprefix("--at=")) for a in sys.argv if a.startswith("--at=")]
            perf_moe_table.run(device, roof.read, shrink > 1, "--sweep" in sys.argv, lengths)
            return
        b = Bench(device, roof.read, POSITIONS)
        experts(b, shrink)
        attention(b, shrink)


if __name__ == "__main__":
    main()
