"""Tilings of the kernels of a layer with experts, the fastest first: perf_moe.py --sweep."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kompute_llm.engine.builder import SHORT
from kompute_llm.kernels import (
    experts,
    experts_q8_choose_swiglu,
    mla_absorb_q8,
    mla_attend_q8,
    mla_token_launch,
    q8,
)
from kompute_llm.kernels.mla_parts import Parts

if TYPE_CHECKING:
    from perf_moe_forms import Forms

BEST = 8  # candidates of a line


def tilings() -> Iterator[q8.Tiling]:
    """What is tried for the experts: of quads (Q3_K), lanes of a row are few."""
    for lanes, rows, ksplit, size in itertools.product(
        (4, 8, 16), (1, 2, 4), (1, 2, 4, 8), (128, 256, 512)
    ):
        if ksplit * 32 <= size:
            yield q8.Tiling(rows, ksplit, 1, lanes=lanes, workgroup=size)


def always(found: Any) -> Callable[..., Any]:
    """The tiling, or team, for every shape."""
    return lambda *shape: found


def best_of(layer: Forms, name: str, found: list[tuple[str, Any]]) -> None:
    """The fastest candidates, a line."""
    times = layer.micros([seq for _, seq in found])
    order = sorted(zip(times, [what for what, _ in found], strict=True))[:BEST]
    print(f"T={layer.positions} {name}: {', '.join(f'{what} {t:.2f}' for t, what in order)}")


def sweep_experts(layer: Forms) -> None:
    """Tilings of the products of the experts."""
    for name, module, kind, kernel in (
        ("gate", experts, "gate_tiling", layer.gate), ("down", experts, "down_tiling", layer.down),
        ("chosen gate", experts_q8_choose_swiglu, "gate_tiling", layer.choose),
    ):  # fmt: skip
        before, found = getattr(module, kind), []
        for t in tilings():
            setattr(module, kind, always(t))
            what = f"l{t.lanes} r{t.rows} k{t.ksplit} w{t.workgroup}"
            found.append((what, layer.chain(kernel)))
        setattr(module, kind, before)
        best_of(layer, name, found)


def sweep_splits(layer: Forms) -> None:
    """Splits of attention and join."""
    before, found = (layer.splits, layer.least), []
    for layer.splits, layer.least in itertools.product((32, 64, 128), (16, 32, 64, 128)):
        what = f"splits {layer.splits} of {layer.least}"
        found.append((what, layer.chain(layer.attend, layer.expand)))
    layer.splits, layer.least = before
    best_of(layer, "attention and join", found)


def sweep_teams(layer: Forms) -> None:
    """Workgroups of mla_token, and what their lanes load at once: cache rows, rows of weights."""
    s, make, found = layer.s, mla_token_launch.team, []
    head = mla_token_launch.Head(s.rank, s.nope, s.rot, s.value, s.q_rank)
    rows = mla_token_launch.Rows
    for size, ahead, keys, quads in itertools.product(
        (512, 1024), (2, 4, 8), (2, 4, 8), ((2, 1, 2, 1), (4, 2, 2, 2), (1, 1, 2, 2))
    ):  # fmt: skip
        team = make(head, layer.b.device.limits, "Q3_K", size, ahead)
        if team and team.size == size:
            values, queries = rows(*quads[:2]), rows(*quads[2:])
            team = replace(team, keys=rows(team.keys.lanes, keys), values=values, queries=queries)
            mla_token_launch.team = always(team)
            what = f"w{size} a{ahead} k{keys} v{quads[0]}x{quads[1]} q{quads[2]}x{quads[3]}"
            found.append((what, layer.chain(layer.head)))
    mla_token_launch.team = make
    if found:
        best_of(layer, "mla_token", found)


def sweep_parts(layer: Forms) -> None:
    """Workgroups of a head's query and values, and what their lanes load at once."""
    head = mla_token_launch.Head(layer.s.rank, layer.s.nope, layer.s.rot, layer.s.value)
    rows, make, found = mla_token_launch.Rows, mla_absorb_q8.query_team, []
    for size, n, keys, lanes in itertools.product(
        (128, 256, 512), (2, 3, 6), ((1, 2), (1, 4), (2, 2), (2, 4)), (2, 4, 8)
    ):  # fmt: skip
        if layer.s.nope % (32 * n):
            continue
        mla_absorb_q8.query_team = always((size, rows(*keys), rows(lanes)))
        what = f"w{size} p{n} k{keys[0]}x{keys[1]} q{lanes}"
        found.append((what, layer.chain(partial(layer.absorb_parts, parts=Parts(n)))))
    mla_absorb_q8.query_team = make
    if found:
        best_of(layer, "mla_absorb_q8", found)
    plain, found = mla_attend_q8.team, []
    for size, shares, ahead, lanes in itertools.product(
        (256, 512, 1024), (2, 4, 8), (2, 4, 8), (2, 4)
    ):
        if layer.s.value % (16 * shares):
            continue
        slots = plain(head, shares, layer.b.device.limits, 4, size)[1]
        mla_attend_q8.team = always((size, slots, ahead, lanes, 1))
        what = f"w{size} s{shares} a{ahead} v{lanes}"
        parts = Parts(layer.parts.query, shares)
        found.append((what, layer.chain(partial(layer.attend_parts, parts=parts))))
    mla_attend_q8.team = plain
    best_of(layer, "mla_attend_q8", found)


def sweep(layer: Forms) -> None:
    """What is tried at this context."""
    if layer.short:
        sweep_parts(layer)
        sweep_teams(layer)
    if layer.positions != SHORT:
        sweep_experts(layer)
        sweep_splits(layer)
