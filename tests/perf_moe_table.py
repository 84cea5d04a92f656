"""Kernels of a layer of DeepSeek V3's kind, one by one: perf_moe.py --layer, --check, --sweep.

A line per kernel: microseconds in a chain of dispatches that wait for each other, and the floor;
then forms of stages and of the whole layer, which take turns. --check: the forms' results in these
sizes are compared with the references before. --sweep: see perf_moe_sweep.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import perf_moe_sweep
from perf_bench import Bench
from perf_moe_forms import Forms, Record
from perf_moe_layer import SMALL, Sizes

from kompute_llm.engine.builder import SHORT
from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import CaseResult, run_case
from kompute_llm.engine.harness_primitives import Checker, runnable
from kompute_llm.engine.primitives import all_primitives
from kompute_llm.kernels import (
    experts_q8_choose_swiglu,
    mla_absorb_q8,
    mla_attend_q8,
    router_token_logits,
)

Row = tuple[str, Record, float]
COUNTED = ("compress", "q_b", "k_b", "v_b", "out", "router", "gate", "down")  # weights, once each
CHECKED = ("mla_absorb_q8 Q3_K", "mla_token Q3_K", "experts_q8_choose_swiglu")
KERNELS = (experts_q8_choose_swiglu, mla_absorb_q8, mla_attend_q8, router_token_logits)


def stages(layer: Forms) -> list[Row]:
    """(name, kernel, bytes that it reads) of the table."""
    attention = "mla_attention_coop" if layer.coop else "mla_attention, 32 splits"
    rows: list[Row] = [
        ("mla_compress_q8", layer.compress, layer.nbytes("compress")),
        ("norm_matvec_q8 q_b", layer.query, layer.nbytes("q_b")),
        ("mla_absorb", layer.absorb, layer.nbytes("k_b")),
        (attention, layer.attend, layer.cached),
        ("mla_expand_q8", layer.expand, layer.nbytes("v_b")),
        ("matvec_q8_add out", layer.output, layer.nbytes("out")),
        ("router_token", layer.router, layer.nbytes("router")),
        ("experts_q8_swiglu", layer.gate, layer.nbytes("gate")),
        ("experts_q8_down", layer.down, layer.nbytes("down")),
        ("layer by stages", layer.whole, layer.cached + layer.nbytes(*COUNTED)),
    ]
    if layer.coop:
        rows.append(("mla_attention, 32 splits", layer.portable, layer.cached))
    return rows


def latent(layer: Forms) -> list[Row]:
    """Forms of latent attention in short contexts."""
    core = layer.cached + layer.nbytes("k_b_q8", "v_b")
    query = layer.nbytes("q_b", "k_b_q8")
    rows: list[Row] = [
        ("norm_matvec_q8 (for mla_compress_q8)", layer.first, layer.nbytes("compress")),
        ("mla_token_plain (for 3)", layer.core, core),
        ("mla_token (for 4)", layer.head, core + layer.nbytes("q_b")),
        (f"mla_absorb_q8, {layer.parts.query} parts", layer.absorb_parts, query),
        (f"mla_attend_q8, {layer.parts.values} shares", layer.attend_parts,
         layer.cached + layer.nbytes("v_b")),
    ]  # fmt: skip
    counts = ((3, 4), (6, 4), (2, 4), (1, 4), (3, 2), (3, 8))
    for query_parts, values in counts if layer.s.nope == Sizes().nope else ((1, 1),):
        rows.append((f"both, {query_parts} parts, {values} shares",
                     layer.in_parts(query_parts, values), core + layer.nbytes("q_b")))  # fmt: skip
    return rows


def experts(layer: Forms) -> list[Row]:
    """Forms of the experts."""
    router, gate, down = (layer.nbytes(name) for name in ("router", "gate", "down"))
    return [
        ("router_token_logits", layer.logits, router),
        ("experts_q8_choose_swiglu", layer.choose, gate),
        ("experts by router_token", layer.early, router + gate + down),
        ("experts, late choice", layer.late, router + gate + down),
    ]


def layers(layer: Forms) -> list[Row]:
    """Whole layers in short contexts, old and new forms of both halves."""
    names = [name if name != "k_b" else "k_b_q8" for name in COUNTED]
    nbytes, both = layer.cached + layer.nbytes(*names), layer.in_parts(*vars(layer.parts).values())
    attention = {"mla_token": layer.head, "parts": both}
    forms = {"router_token": layer.early, "late choice": layer.late}
    return [
        (f"layer: {a}, {e}", layer.layer(layer.first, kernel, experts_of), nbytes)
        for a, kernel in attention.items() for e, experts_of in forms.items()
    ]  # fmt: skip


def table(layer: Forms) -> None:
    """A line per kernel, then the layer."""
    rows = stages(layer) + experts(layer)
    if layer.short:
        rows += latent(layer) + layers(layer)
    times = layer.micros([layer.chain(kernel) for _, kernel, _ in rows])
    for (name, _, nbytes), micros in zip(rows, times, strict=True):
        layer.b.say(f"T={layer.positions} {name}", micros, nbytes, "call")


def check(device: Device) -> None:
    """Compare with references: cases of the kernels in Q3_K and of the choice, then primitives in
    this layer's sizes. SystemExit where one fails."""
    found: list[CaseResult] = []
    for module in KERNELS:
        for case in module.KERNEL.cases(np.random.default_rng(0)):
            if "Q3_K" in case.name or module is router_token_logits:
                found.append(run_case(device, module.KERNEL, case))
    checker = Checker(device, 0)
    for primitive in all_primitives():
        chosen = [c for c in runnable(device, primitive) if c.name.startswith(CHECKED)]
        found += checker.results(primitive, chosen, lambda name: None, lambda: False)
    for r in found:
        print(f"{'ok' if r.ok else 'FAILED'} {r.kernel} {r.case}: {r.nmse:.1e} {r.note}")
    if not all(r.ok for r in found):
        raise SystemExit("results differ from the references")


def run(
    device: Device, bandwidth: float, small: bool, sweeps: bool, lengths: Sequence[int]
) -> None:
    """Tables or sweeps at some contexts: by default a short one, the longest of them, another."""
    for positions in lengths or (64, SHORT, 2000):
        layer = Forms(Bench(device, bandwidth, positions), SMALL if small else Sizes(), positions)
        if sweeps:
            perf_moe_sweep.sweep(layer)
        else:
            table(layer)
