"""Attention of query rows against one tile of the cache: scores, running softmax, values.

Rows in scratch are padded with zeros to a multiple of VALUES values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fast_memory import load, load_one, store, store_one
from .fast_rows import vector_exp
from .fast_simd import LANES, device, lane_max, lane_sum, splat
from .fast_tile import ROWS, TILE_TOKENS, VALUES, many_products, many_sums, one_product, one_sum

NEVER: Any = np.float32(-1e30)  # maximum of no scores, as in kernels/attention.py
ZERO: Any = np.float32(0.0)
TILE = 64  # cache positions at a time, a multiple of 16


@device
def score_tile(q: int, keys: int, scores: int, rows: int, dim: int, count: int) -> None:
    """scores (rows, TILE) = q (rows, dim) times the first `count` keys (TILE, dim)."""
    m = 0
    while m < rows:
        tokens = 1 if rows - m < TILE_TOKENS else TILE_TOKENS
        x, out = q + 4 * m * dim, scores + 4 * m * TILE
        for t in range(0, count, ROWS):
            k = keys + 4 * t * dim
            if tokens == 1:
                one_product(k, 4 * dim, x, 4 * dim, dim, out + 4 * t, 4 * TILE)
            else:
                many_products(k, 4 * dim, x, 4 * dim, dim, out + 4 * t, 4 * TILE)
        m += tokens


@device
def fill_outside(scores: int, low: int, high: int, count: int, value: float) -> None:
    """Write the places of a row of `count` scores outside [low, high)."""
    for t in range(min(low, count)):
        store_one(scores + 4 * t, value)
    for t in range(max(high, 0), count):
        store_one(scores + 4 * t, value)


@device
def soften(scores: int, stat: int, low: int, high: int, count: int) -> float:
    """Turn scores [low, high) of a row into e^(score - max), the others of `count` into 0.

    stat: (maximum, total) so far, brought up to date. Returns the factor for what was summed
    before.
    """
    old, best, total = load_one(stat), load_one(stat), splat(ZERO)
    if low < high:
        fill_outside(scores, low, high, count, NEVER)
        for t in range(0, count, LANES):
            best = max(best, lane_max(load(scores + 4 * t)))
        for t in range(0, count, LANES):
            weight = vector_exp(load(scores + 4 * t) - best)
            store(scores + 4 * t, weight)
            total = total + weight
    fill_outside(scores, low, high, count, ZERO)
    factor: float = lane_max(vector_exp(splat(old - best)))
    store_one(stat, best)
    store_one(stat + 4, load_one(stat + 4) * factor + lane_sum(total))
    return factor


@device
def cap_row(scores: int, cap: Any, count: int) -> None:
    """Scores (count,) become cap tanh(score / cap) = cap (1 - 2 / (e^(2 score / cap) + 1))."""
    for t in range(0, count, LANES):
        opened = vector_exp(load(scores + 4 * t) * (np.float32(2.0) / cap)) + np.float32(1.0)
        store(scores + 4 * t, splat(cap) - splat(np.float32(2.0) * cap) / opened)


@device
def scale_row(x: int, factor: float, dim: int) -> None:
    """x (dim,) *= factor."""
    for i in range(0, dim, LANES):
        store(x + 4 * i, load(x + 4 * i) * factor)


@device
def add_values(sums: int, weights: int, values: int, rows: int, dim: int, count: int) -> None:
    """sums (rows, dim) += weights (rows, TILE) times the first `count` values (TILE, dim)."""
    m = 0
    while m < rows:
        tokens = 1 if rows - m < TILE_TOKENS else TILE_TOKENS
        p = weights + 4 * m * TILE
        for i in range(0, 4 * dim, 4 * VALUES):
            out = sums + 4 * m * dim + i
            if tokens == 1:
                one_sum(p, 4 * TILE, values + i, 4 * dim, count, out, 4 * dim)
            else:
                many_sums(p, 4 * TILE, values + i, 4 * dim, count, out, 4 * dim)
        m += tokens
