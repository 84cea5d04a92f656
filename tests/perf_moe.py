"""Time of experts and latent attention: python tests/perf_moe.py [DEVICE] [--small] [--check]
[--layer] [--sweep] [--at=POSITIONS].

Experts: 6144 → 2048 → 6144 in int4-g64, 8 or all 32 per token, 32 distinct ones in turn, so that
weights come from memory; in a chain, and with results that Python reads. Attention: 2,000
positions, 64 heads, latents of 512 + 64 values, 256 values a head into 6144; one set of weights,
of which a large cache holds those of a single part. Prints microseconds (of a submit the median and
the least) and the floor: bytes read at the device's measured bandwidth. --small divides all widths
by 8. --check, --layer and --sweep: see perf_moe_table.py; --at: at one context only. No test: it
needs a quiet machine.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from typing import Any

import perf_moe_table
from perf_bench import Bench, Step
from perf_moe_readback import WIDTH, alone, experts

from kompute_llm.engine.device import Device, choose
from kompute_llm.engine.plan import Buf
from kompute_llm.engine.roof import measure
from kompute_llm.kernels import (
    matvec_q8_add,
    mla_absorb,
    mla_attention,
    mla_attention_coop,
    mla_expand_q8,
)
from kompute_llm.kernels.mla import ALL, MIN_SPLIT

CALLS = 16  # of attention in a submit: a model's layers are more
POSITIONS, HEADS, RANK, ROT, NOPE, VALUE = 2000, 64, 512, 64, 192, 256


def chain(b: Bench, steps: Sequence[Step], name: str, nbytes: float, calls: int) -> None:
    """Time of a call in a submit of several, one after another."""
    b.say(name, b.best(b.chain(steps, calls)) / calls, nbytes, "call")


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

    cached = POSITIONS * (RANK + ROT) * 2
    read = k_b[1].nbytes + v_b[1].nbytes + out[1].nbytes + cached
    whole = (absorb, core, project)
    calls = CALLS if shrink == 1 else 2
    chain(b, [absorb], f"absorption, {heads} heads", k_b[1].nbytes, calls)
    chain(b, [core], f"attention, T = {POSITIONS}", v_b[1].nbytes + cached, calls)
    chain(b, [project], f"output projection {width} → {n}", out[1].nbytes, calls)
    chain(b, whole, f"all three, {calls} calls a submit", read, calls)
    times = alone(b, [b.chain(whole, 1)], lambda at: None)
    b.say("all three, one call a submit", statistics.median(times), read, "call", times[0])


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
