"""Rows of the key and value caches in compiled kernels: widened to float32, quantized and stored.

The rows are those of cache_rows.py; `kind` is an index of its TYPES.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from .cache_rows import GROUP, TYPES
from .fast_half import store_half
from .fast_memory import (
    half,
    load,
    load_f16,
    load_i8,
    load_i8_f32,
    load_one,
    load_u8,
    prefetch,
    store,
    store_one,
)
from .fast_simd import F32, I8, I32, LANES, device, op, pointer, routine
from .fast_tile import VALUES

IS_F16, IS_F32, IS_Q8, IS_Q4 = range(len(TYPES))
AHEAD_ROWS = 64
ZERO: Any = np.float32(0.0)
ONE: Any = np.float32(1.0)
HALF_WAY: Any = np.float32(8.5)
NONE: Any = np.float32(np.nan)
MOST: Any = np.float32(127.0)
DEEPEST: Any = np.float32(-8.0)


@op(F32, types.int64)
def load_nibbles(b: Any, address: Any) -> Any:
    """16 nibbles of 8 bytes, low ones first, minus 8, as float32."""

    def wide(lanes: int, value: int) -> Any:
        return ir.Constant(ir.VectorType(I32, lanes), [value] * lanes)

    pairs = b.load(pointer(b, address, ir.VectorType(I8, 8)), align=1)
    pairs = b.zext(pairs, ir.VectorType(I32, 8))
    low, high = b.and_(pairs, wide(8, 15)), b.lshr(pairs, wide(8, 4))
    order = ir.Constant(ir.VectorType(I32, 16), [i // 2 + 8 * (i % 2) for i in range(16)])
    return b.sitofp(b.sub(b.shuffle_vector(low, high, order), wide(16, 8)), F32.llvm)


@op(types.void, types.int64, types.int64)
def store_u8(b: Any, address: Any, value: Any) -> Any:
    """The low 8 bits."""
    return b.store(b.trunc(value, I8), pointer(b, address, I8))


@device
def is_quantized(kind: int) -> bool:
    """Whether values are in groups with scales."""
    return kind >= IS_Q8


@device
def padded_dim(dim: int) -> int:
    """The head size as a multiple of VALUES."""
    return (dim + VALUES - 1) // VALUES * VALUES


@device
def quant_bytes(kind: int, width: int) -> int:
    """Bytes of all quants of a row, after which the scales come."""
    return (width + GROUP - 1) // GROUP * (GROUP if kind == IS_Q8 else GROUP // 2)


@device
def one_value(row: int, kind: int, column: int, scales: int) -> Any:
    """Value `column` of a row whose scales lie `scales` bytes after its start."""
    if kind == IS_F16:
        return half(row + 2 * column)
    if kind == IS_F32:
        return load_one(row + 4 * column)
    scale = half(row + scales + 2 * (column // GROUP))
    if kind == IS_Q8:
        return np.float32(load_i8(row + column)) * scale
    return np.float32((load_u8(row + column // 2) >> 4 * (column & 1) & 15) - 8) * scale


@device
def widen_lanes(row: int, kind: int, column: int, dim: int, scales: int, out: int) -> None:
    """The first dim - dim % LANES values from `column` on; quantized: a multiple of LANES."""
    if kind == IS_F16:
        for i in range(0, dim - LANES + 1, LANES):
            store(out + 4 * i, load_f16(row + 2 * (column + i)))
    elif kind == IS_F32:
        for i in range(0, dim - LANES + 1, LANES):
            store(out + 4 * i, load(row + 4 * (column + i)))
    else:
        for i in range(0, dim - LANES + 1, LANES):
            at = column + i
            scale = half(row + scales + 2 * (at // GROUP))
            if kind == IS_Q8:
                store(out + 4 * i, load_i8_f32(row + at) * scale)
            else:
                store(out + 4 * i, load_nibbles(row + at // 2) * scale)


@routine
def widen_rows(
    source: int, stride: int, kind: int, column: int, width: int, out: int, count: int, dim: int
) -> None:
    """`dim` values from `column` on of `count` rows of `width` values, `stride` bytes apart, as
    float32 rows padded with zeros to `padded_dim`."""
    padded, scales = padded_dim(dim), quant_bytes(kind, width)
    first = 4 * column if kind == IS_F32 else 2 * column if kind == IS_F16 else column
    slow = is_quantized(kind) and column % LANES > 0
    whole = 0 if slow else dim - dim % LANES
    for t in range(count):
        row, to = source + t * stride, out + 4 * t * padded
        prefetch(row + first + stride * AHEAD_ROWS)
        prefetch(row + first + 64 + stride * AHEAD_ROWS)
        if not slow:
            widen_lanes(row, kind, column, dim, scales, to)
        for i in range(whole, dim):
            store_one(to + 4 * i, one_value(row, kind, column + i, scales))
        for i in range(dim, padded):
            store_one(to + 4 * i, ZERO)


@device
def group_scale(kind: int, x: int, count: int) -> Any:
    """The scale of `count` float32 values (cache_rows.quantize)."""
    most, least, zero = ZERO, ZERO, ZERO
    for i in range(count):
        value = load_one(x + 4 * i)
        most, least = max(most, value), min(least, value)
        zero += value * ZERO
    if zero != ZERO:  # a value is not finite
        return NONE
    if kind == IS_Q8:
        return max(most, -least) / MOST
    return (most if most > -least else least) / DEEPEST


@device
def q4_of(x: int, inverse: float) -> int:
    """A quant of Q4_0, 0 … 15."""
    return min(int(load_one(x) * inverse + HALF_WAY), 15)


@routine
def quantize_row(kind: int, row: int, x: int, width: int) -> None:
    """Store `width` float32 values as a row of Q8_0 or Q4_0."""
    scales = row + quant_bytes(kind, width)
    for g in range((width + GROUP - 1) // GROUP):
        source, count = x + 4 * GROUP * g, min(GROUP, width - GROUP * g)
        scale = group_scale(kind, source, count)
        inverse = ONE / scale if abs(scale) > ZERO else ZERO
        store_half(scales + 2 * g, scale)
        if kind == IS_Q8:
            for i in range(count):
                q = np.rint(load_one(source + 4 * i) * inverse)
                store_u8(row + GROUP * g + i, int(q))
        else:
            for i in range(0, count, 2):
                low, high = q4_of(source + 4 * i, inverse), q4_of(source + 4 * i + 4, inverse)
                store_u8(row + (GROUP * g + i) // 2, low | high << 4)
