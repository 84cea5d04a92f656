"""Decoding of weight blocks in registers: 32 values of a row as two vectors of 16.

`decode(fmt, p, j)` takes the number of a format (a constant where it is compiled), the address of
a block and j, which 32 values of it. Block layouts: ggml-common.h of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import overload

from ..engine.blocks import FORMATS
from . import fast_codes as codes
from . import fast_grids as grids
from . import fast_int
from . import fast_low_bits as low_bits
from .fast_low_bits import single
from .fast_memory import (
    half,
    load,
    load_bf16,
    load_bytes,
    load_f16,
    load_i8,
    load_i8_f32,
    load_u8,
    load_u32,
)
from .fast_simd import device, lane_bits, splat_i32, to_f32, widen

Pair = Any  # two F32 vectors: values 0..15 and 16..31


def _f32(fmt: int, p: int, j: int) -> Pair:
    return load(p), load(p + 64)


def _f16(fmt: int, p: int, j: int) -> Pair:
    return load_f16(p), load_f16(p + 32)


def _bf16(fmt: int, p: int, j: int) -> Pair:
    return load_bf16(p), load_bf16(p + 32)


# Q4_0 and Q5_0: scale d; value = (q - 8) d or (q - 16) d. Q4_1 and Q5_1: value = q d + m.
# Low nibbles of the 16 bytes are values 0..15, high ones 16..31.


def _q4_0(fmt: int, p: int, j: int) -> Pair:
    d, q = half(p), load_bytes(p + 2)
    return (to_f32(widen(q & 15)) - 8.0) * d, (to_f32(widen(q >> 4)) - 8.0) * d


def _q4_1(fmt: int, p: int, j: int) -> Pair:
    d, m, q = half(p), half(p + 2), load_bytes(p + 4)
    return to_f32(widen(q & 15)) * d + m, to_f32(widen(q >> 4)) * d + m


def _q5_0(fmt: int, p: int, j: int) -> Pair:
    d, high, q = half(p), load_u32(p + 2), load_bytes(p + 6)
    low = widen(q & 15) | (lane_bits(splat_i32(high)) << 4)
    top = widen(q >> 4) | (lane_bits(splat_i32(high >> 16)) << 4)
    return (to_f32(low) - 16.0) * d, (to_f32(top) - 16.0) * d


def _q5_1(fmt: int, p: int, j: int) -> Pair:
    d, m, high, q = half(p), half(p + 2), load_u32(p + 4), load_bytes(p + 8)
    low = widen(q & 15) | (lane_bits(splat_i32(high)) << 4)
    top = widen(q >> 4) | (lane_bits(splat_i32(high >> 16)) << 4)
    return to_f32(low) * d + m, to_f32(top) * d + m


def _q8_0(fmt: int, p: int, j: int) -> Pair:
    d = half(p)
    return load_i8_f32(p + 2) * d, load_i8_f32(p + 18) * d


@device
def scale_and_min(s: int, j: int) -> tuple[int, int]:
    """The 6-bit scale and minimum of group j out of the 12 bytes at s (Q4_K and Q5_K)."""
    if j < 4:
        return load_u8(s + j) & 63, load_u8(s + j + 4) & 63
    top = load_u8(s + j + 4)
    scale = (top & 15) | ((load_u8(s + j - 4) >> 6) << 4)
    return scale, (top >> 4) | ((load_u8(s + j) >> 6) << 4)


# Q4_K and Q5_K: 8 groups of 32 in 256 values; groups 2i and 2i + 1 are the nibbles of 32 bytes.


def _q4_k(fmt: int, p: int, j: int) -> Pair:
    s, m = scale_and_min(p + 4, j)
    d, m = half(p) * single(s), half(p + 2) * single(m)
    at, shift = p + 16 + 32 * (j >> 1), 4 * (j & 1)
    low = to_f32(widen((load_bytes(at) >> shift) & 15))
    return low * d - m, to_f32(widen((load_bytes(at + 16) >> shift) & 15)) * d - m


def _q5_k(fmt: int, p: int, j: int) -> Pair:
    s, m = scale_and_min(p + 4, j)
    d, m = half(p) * single(s), half(p + 2) * single(m)
    at, shift = p + 48 + 32 * (j >> 1), 4 * (j & 1)
    low, top = (load_bytes(at) >> shift) & 15, (load_bytes(at + 16) >> shift) & 15
    low = low | (((load_bytes(p + 16) >> j) & 1) << 4)
    top = top | (((load_bytes(p + 32) >> j) & 1) << 4)
    return to_f32(widen(low)) * d - m, to_f32(widen(top)) * d - m


def _q6_k(fmt: int, p: int, j: int) -> Pair:
    # 256 values: halves of 128; group k of a half takes low nibbles (k < 2) or high ones of
    # bytes 32 (k & 1) …, and bit pairs k of 32 bytes; an int8 scale per 16 values
    side, k = j >> 2, j & 3
    low, high = p + 64 * side + 32 * (k & 1), p + 128 + 32 * side
    s, d = p + 192 + 2 * j, half(p + 208)
    shift, pair = 4 * (k >> 1), 2 * k
    a = ((load_bytes(low) >> shift) & 15) | (((load_bytes(high) >> pair) & 3) << 4)
    b = ((load_bytes(low + 16) >> shift) & 15) | (((load_bytes(high + 16) >> pair) & 3) << 4)
    d0, d1 = d * single(load_i8(s)), d * single(load_i8(s + 1))
    return (to_f32(widen(a)) - 32.0) * d0, (to_f32(widen(b)) - 32.0) * d1


_DECODERS: dict[str, Callable[[int, int, int], Pair]] = {
    "F32": _f32, "F16": _f16, "BF16": _bf16, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0,
    "Q5_1": _q5_1, "Q8_0": _q8_0, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k,
    "Q2_K": low_bits.q2_k, "Q3_K": low_bits.q3_k, "TQ1_0": low_bits.tq1_0, "TQ2_0": low_bits.tq2_0,
    "IQ4_NL": codes.iq4_nl, "IQ4_XS": codes.iq4_xs, "MXFP4": codes.mxfp4, "NVFP4": codes.nvfp4,
    "IQ1_S": grids.iq1_s, "IQ1_M": grids.iq1_m, "IQ2_XXS": grids.iq2_xxs, "IQ2_XS": grids.iq2_xs,
    "IQ2_S": grids.iq2_s, "IQ3_XXS": grids.iq3_xxs, "IQ3_S": grids.iq3_s,
    **fast_int.DECODERS,
}  # fmt: skip
NUMBERS = {name: i for i, name in enumerate(_DECODERS)}
NAMES = tuple(_DECODERS)


def block_shape(fmt: int) -> tuple[int, int]:
    """Bytes per step of a row and groups of 32 in it: a block, or 32 values of a float format."""
    f = FORMATS[NAMES[fmt]]
    return (f.bytes * 32, 1) if f.elems == 1 else (f.bytes, f.elems // 32)


def decode(fmt: int, p: int, j: int) -> Pair:
    """Values 32 j … 32 j + 31 of the block at p."""
    raise NotImplementedError("only for compiled code")


@overload(
    decode, strict=False, prefer_literal=True,
    jit_options={"forceinline": True, "error_model": "numpy"},
)  # fmt: skip
def _decode(fmt: Any, p: Any, j: Any) -> Any:
    if isinstance(fmt, types.IntegerLiteral):
        return _DECODERS[NAMES[fmt.literal_value]]
    return None
