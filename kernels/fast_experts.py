"""Fast kernels of experts: gate and up, weighted sum, products of batches sorted by expert."""

from __future__ import annotations

from typing import Any

from .fast_experts_words import (
    COLS,
    EXPERTS,
    FIRST,
    GROUPS,
    ROUTE,
    ROUTE_ROW,
    ROW0,
    ROWS,
    START,
    X_STRIDE,
    Y_OFF,
    Y_STRIDE,
    W,
    X,
    Y,
)
from .fast_matmul import panel_rows_device, put_tile, unpack
from .fast_matvec import SCRATCH, SCRATCH_BYTES, dot, normalised, piece_rows
from .fast_memory import load, load_one, load_u32, load_word, store, store_one
from .fast_rows import SILU, WIDE, activated, row_address
from .fast_simd import LANES, device, routine
from .fast_team import claim
from .fast_tile import ROWS as TILE_ROWS
from .fast_tile import TILE_TOKENS, many_products, one_product


@device
def expert_of(a: int, slot: int) -> int:
    """The expert of a slot, counted in the stack; outside of 0 … experts - 1 where it has none."""
    return int(load_one(load_word(a + ROUTE) + 8 * slot)) - load_word(a + FIRST)


def experts_swiglu(fmt: int) -> Any:
    """y[slot] = silu(G xn) * (U xn) with xn = rmsnorm(x) * g; W: gates of all experts, then ups."""

    def run(a: int, team: int, me: int, members: int) -> None:
        w, cols, rows = load_word(a + W), load_word(a + COLS), load_word(a + ROWS)
        experts, slots = load_word(a + EXPERTS), load_word(a + ROUTE_ROW) // 8
        x, y = normalised(a, me), load_word(a + Y)
        gates, ups = x + 4 * cols, x + 4 * cols + WIDE  # one vector of each
        total = slots * rows
        piece = piece_rows(2 * total, cols, members) // (2 * LANES) * LANES + LANES
        first = claim(team) * piece
        while first < total:
            for r in range(first, min(first + piece, total), LANES):
                expert = expert_of(a, r // rows)
                if expert < 0 or expert >= experts:
                    continue
                row = expert * rows + r % rows
                for i in range(LANES):
                    store_one(gates + 4 * i, dot(fmt, row_address(w, row + i), x, cols))
                    up = row_address(w, experts * rows + row + i)
                    store_one(ups + 4 * i, dot(fmt, up, x, cols))
                store(y + 4 * r, activated(SILU, load(gates)) * load(ups))
            first = claim(team) * piece

    return run


def experts_down(fmt: int) -> Any:
    """y += sum over the slots of weight * D x[slot]."""

    def run(a: int, team: int, me: int, members: int) -> None:
        x, w, cols = load_word(a + X), load_word(a + W), load_word(a + COLS)
        rows, y, route = load_word(a + ROWS), load_word(a + Y), load_word(a + ROUTE)
        experts, slots = load_word(a + EXPERTS), load_word(a + ROUTE_ROW) // 8
        piece = piece_rows(rows, slots * cols, members)
        first = claim(team) * piece
        while first < rows:
            for r in range(first, min(first + piece, rows)):
                total = load_one(y + 4 * r)
                for slot in range(slots):
                    expert = expert_of(a, slot)
                    if expert >= 0 and expert < experts:
                        row = row_address(w, expert * rows + r)
                        share = load_one(route + 8 * slot + 4)
                        total += share * dot(fmt, row, x + 4 * slot * cols, cols)
                store_one(y + 4 * r, total)
            first = claim(team) * piece

    return run


@routine
def panel_times_rows(a: int, panel: int, tile: int, first: int, rows: int, t: int, stop: int) -> (
    None
):
    """`rows` decoded rows at `panel`, an expert's rows from `first`, times the rows t … of x."""
    cols, stride = load_word(a + COLS), 4 * load_word(a + X_STRIDE)
    y, y_stride = load_word(a + Y) + 4 * (load_word(a + Y_OFF) + first), 4 * load_word(a + Y_STRIDE)
    while t < stop:
        x, tokens = load_word(a + X) + t * stride, 1 if stop - t < TILE_TOKENS else TILE_TOKENS
        for r in range(0, rows, TILE_ROWS):
            w, out = panel + 4 * r * cols, y + t * y_stride + 4 * r
            if tokens == 1:
                one_product(w, 4 * cols, x, stride, cols, tile, 4 * TILE_ROWS)
            else:
                many_products(w, 4 * cols, x, stride, cols, tile, 4 * TILE_ROWS)
            put_tile(tile, out, y_stride, tokens, min(TILE_ROWS, rows - r), False)
        t += tokens


def experts_matmul(fmt: int) -> Any:
    """y = W of each row's expert times x, rows in order of the experts."""

    def run(a: int, team: int, me: int, members: int) -> None:
        cols, rows, w = load_word(a + COLS), load_word(a + ROWS), load_word(a + W)
        start = load_word(a + START) + 4 * load_word(a + FIRST)
        panel = load_word(a + SCRATCH) + me * load_word(a + SCRATCH_BYTES)
        most = panel_rows_device(cols)
        tile, panels = panel + 4 * most * cols, (rows + most - 1) // most
        total = panels * load_word(a + GROUPS)
        piece = claim(team)
        while piece < total:
            expert, first = piece // panels, piece % panels * most
            t, stop = load_u32(start + 4 * expert), load_u32(start + 4 * expert + 4)
            if t < stop:
                count = min(most, rows - first)
                row0 = load_word(a + ROW0) + expert * rows + first
                for r in range(count):
                    unpack(fmt, row_address(w, row0 + r), panel + 4 * r * cols, cols)
                panel_times_rows(a, panel, tile, first, count, t, stop)
            piece = claim(team)

    return run
