"""Attention of query rows against one tile of the cache: scores, running softmax, values.

Rows in scratch are padded with zeros to a multiple of 16 values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fast_memory import half, load, load_f16, load_one, store, store_one
from .fast_rows import vector_exp
from .fast_simd import LANES, device, lane_max, lane_sum, splat
from .fast_tile import ROWS, TILE_TOKENS, many_products, one_product

NEVER: Any = np.float32(-1e30)  # maximum of no scores, as in kernels/attention.py
TILE = 32  # cache positions at a time, a multiple of 16


@device
def padded_dim(dim: int) -> int:
    """The head size as a multiple of the lanes."""
    return (dim + LANES - 1) // LANES * LANES


@device
def widen_row(source: int, out: int, dim: int, is_half: int) -> None:
    """A cache row of `dim` values as float32, zeros after it."""
    whole = dim - dim % LANES
    for i in range(0, whole, LANES):
        store(out + 4 * i, load_f16(source + 2 * i) if is_half else load(source + 4 * i))
    for i in range(whole, dim):
        store_one(out + 4 * i, half(source + 2 * i) if is_half else load_one(source + 4 * i))
    for i in range(dim, padded_dim(dim)):
        store_one(out + 4 * i, np.float32(0.0))


@device
def score_tile(q: int, keys: int, scores: int, rows: int, dim: int) -> None:
    """scores (rows, TILE) = q (rows, dim) times the tile's keys (TILE, dim)."""
    m = 0
    while m < rows:
        tokens = 1 if rows - m < TILE_TOKENS else TILE_TOKENS
        x, out = q + 4 * m * dim, scores + 4 * m * TILE
        for t in range(0, TILE, ROWS):
            k = keys + 4 * t * dim
            if tokens == 1:
                one_product(k, 4 * dim, x, 4 * dim, dim, out + 4 * t, 4 * TILE)
            else:
                many_products(k, 4 * dim, x, 4 * dim, dim, out + 4 * t, 4 * TILE)
        m += tokens


@device
def soften(scores: int, stat: int, low: int, high: int) -> float:
    """Turn scores [low, high) of a row into e^(score - max), the others into 0.

    stat: (maximum, total) so far, brought up to date. Returns the factor for what was summed
    before.
    """
    best = old = load_one(stat)
    for t in range(low, high):
        best = max(best, load_one(scores + 4 * t))
    total = splat(np.float32(0.0))
    for t in range(TILE):
        if t < low or t >= high:
            store_one(scores + 4 * t, NEVER)
    for t in range(0, TILE, LANES):
        weight = vector_exp(load(scores + 4 * t) - best)
        store(scores + 4 * t, weight)
        total = total + weight
    for t in range(TILE):
        if t < low or t >= high:
            store_one(scores + 4 * t, np.float32(0.0))
    factor: float = lane_max(vector_exp(splat(old - best)))
    store_one(stat, best)
    store_one(stat + 4, load_one(stat + 4) * factor + lane_sum(total))
    return factor


@device
def add_values(sums: int, factor: float, weights: int, values: int, dim: int) -> None:
    """sums (dim,) = sums * factor + weights (TILE,) times the tile's values (TILE, dim)."""
    for i in range(0, dim, LANES):
        even, odd = load(sums + 4 * i) * factor, splat(np.float32(0.0))
        for t in range(0, TILE, 2):
            v = values + 4 * (t * dim + i)
            even = load(v) * load_one(weights + 4 * t) + even
            odd = load(v + 4 * dim) * load_one(weights + 4 * t + 4) + odd
        store(sums + 4 * i, even + odd)
