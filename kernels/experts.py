"""A token's experts: what the references and launches of the expert kernels share.

A stack of experts is one weight: the gates of E experts, E x rows rows, then their ups; or E times
the rows of down. Experts with the numbers `first` … are in it; slots of others are left alone,
so that stacks too large for one binding take a dispatch each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..engine.repeated import Repeated
from . import q8
from .kernel import Array, Launch, Params, Shaped
from .limits import Limits
from .matvec_launch import lanes_per_row
from .q8 import Tiling
from .reference import Floats, parts, silu
from .routing import unpack

STEEP, LIMIT = np.float32(1.702), np.float32(7)  # ggml's swiglu_oai


def rows_of(w: Any, start: int, count: int) -> Floats:
    """Rows start … start + count of a matrix or stack, decoded: (count, cols)."""
    pieces, first = [], 0
    for m in parts(w):
        a, b = max(start - first, 0), min(start + count - first, m.rows)
        if a < b:
            pieces.append(m.dequantize(a, b))
        first += m.rows
    return np.concatenate(pieces)


def times_rows(x: Floats, w: Any, start: int, count: int) -> Floats:
    """x (n, cols) times the transposed rows of `rows_of`: (n, count)."""
    if isinstance(w, Repeated):
        return w.times(x, start, start + count)
    return x @ rows_of(w, start, count).T


def slots_of(route: Array, experts: int, first: int) -> Iterator[tuple[int, int, np.float32]]:
    """(slot, expert in the stack, weight) of the slots of one token that a stack serves."""
    ids, weights = unpack(route)
    for slot, expert in enumerate(ids):
        if first <= expert < first + experts:
            yield slot, int(expert) - first, weights[slot]


def gate_up(w: Any, xn: Floats, rows: int, experts: int, expert: int) -> tuple[Floats, Floats]:
    """Gate and up of one expert for inputs (n, cols)."""
    up = (experts + expert) * rows
    return times_rows(xn, w, expert * rows, rows), times_rows(xn, w, up, rows)


def oai(gate: Floats, up: Floats, bias: Floats, rows: int, experts: int, expert: int) -> Floats:
    """The limited gate of gpt-oss, biases (2 experts rows,) added before."""
    at, after = expert * rows, (experts + expert) * rows
    gate = np.minimum(gate + bias[at : at + rows], LIMIT)
    up = np.clip(up + bias[after : after + rows], -LIMIT, LIMIT)
    return np.asarray(gate / (1 + np.exp(-STEEP * gate)) * (up + 1), np.float32)


def inner(
    w: Any, xn: Floats, rows: int, experts: int, expert: int, bias: Floats | None
) -> Floats:
    """The inner vectors (n, rows) of one expert for inputs (n, cols)."""
    gate, up = gate_up(w, xn, rows, experts, expert)
    if bias is None:
        return silu(gate) * up
    return oai(gate, up, bias, rows, experts, expert)


# --- launches ----------------------------------------------------------------------------------


def down_tiling(rows: int, chunks: int, lanes: int, units: int, step: int) -> Tiling:
    """The columns of all slots are one row: long, as those of products into the residual stream."""
    if step == 1 and chunks >= 4 * lanes:  # by a sweep on an H200 (docs/performance.md)
        return Tiling(2, 4, lanes=16, workgroup=512)
    return q8.add_tiling(rows, chunks, lanes, units, step)


def gate_tiling(rows: int, chunks: int, lanes: int, units: int, step: int) -> Tiling:
    """As gates and ups of dense networks with the rows of all slots."""
    return q8.swiglu_tiling(rows, chunks, lanes, units, step)


def launch_q8(
    ops: Mapping[str, Shaped], params: Params, limits: Limits,
    tiling: Callable[[int, int, int, int, int], Tiling], slots: int, grid_slots: int,
    chunks: int,
) -> Launch:
    """Rows along x in whole groups of 16, slots along y."""
    rows, name = int(params["rows"]), ops["w"].format_name
    step = q8.step_of(name)
    lanes = q8.lanes_for(chunks // step, limits)
    t = tiling(rows * grid_slots, chunks, lanes, limits.units, step)
    spec = q8.specialize(t, lanes, q8.GROUP, limits)
    grid = (-(-rows // q8.rows_of(spec)), grid_slots, 1)
    sizes = (slots, int(params["cols"]) // 32)
    return Launch(name, (*spec, *sizes), grid, limits.subgroup_size)


def slots_in(ops: Mapping[str, Shaped]) -> int:
    """Slots of a route (batch, slots, 2)."""
    return ops["route"].cols // 2


def swiglu_q8(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One slot's rows per workgroup."""
    slots, chunks = slots_in(ops), int(params["cols"]) // 32
    return launch_q8(ops, params, limits, gate_tiling, slots, slots, chunks)


def down_q8(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """All slots of a row in one group of lanes."""
    slots = slots_in(ops)
    chunks = slots * int(params["cols"]) // 32
    return launch_q8(ops, params, limits, down_tiling, slots, 1, chunks)


def launch_f32(
    ops: Mapping[str, Shaped], params: Params, limits: Limits, grid_slots: int
) -> Launch:
    """As the mat-vecs: one row per lane on software devices, else several lanes per row."""
    n, cols = int(params["rows"]), int(params["cols"])
    if limits.software:
        size, lanes, per = 8, 1, 8
    else:
        lanes = lanes_per_row(cols, n * grid_slots, limits)
        size, per = limits.workgroup(128, lanes), 1
    grid = (-(-n // (size // lanes * per)), grid_slots, 1)
    return Launch(ops["w"].format_name, (size, lanes, per, slots_in(ops)), grid)


def swiglu_f32(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One slot's rows per workgroup."""
    return launch_f32(ops, params, limits, slots_in(ops))


def down_f32(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """All slots of a row in one group of lanes."""
    return launch_f32(ops, params, limits, 1)
