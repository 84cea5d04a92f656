"""Decoding of Q2_K, Q3_K, TQ1_0 and TQ2_0 in registers (see fast_formats.py).

Layouts: block_q2_K, block_q3_K, block_tq1_0 and block_tq2_0 of ggml-common.h of llama.cpp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fast_memory import half, load_bytes, load_u8, load_u32
from .fast_simd import device, to_f32, widen
from .fast_tables import from_words

Pair = Any  # two F32 vectors: values 0..15 and 16..31


@device
def single(value: int) -> Any:
    """An integer as float32."""
    return np.float32(value)


# 256 values, 2 bits: group j of 32 is bit pair j & 3 of the bytes 32 (j >> 2) …


def q2_k(fmt: int, p: int, j: int) -> Pair:
    """16 bytes of scale and minimum (nibbles), 64 of quants, d, dmin; a scale per 16 values."""
    d, dmin = half(p + 80), half(p + 82)
    s, t = load_u8(p + 2 * j), load_u8(p + 2 * j + 1)
    at, shift = p + 16 + 32 * (j >> 2), 2 * (j & 3)
    a = to_f32(widen((load_bytes(at) >> shift) & 3))
    b = to_f32(widen((load_bytes(at + 16) >> shift) & 3))
    return (
        a * (d * single(s & 15)) - dmin * single(s >> 4),
        b * (d * single(t & 15)) - dmin * single(t >> 4),
    )


@device
def q3_scale(s: int, i: int) -> int:
    """Scale i of 16 out of 12 bytes at s: four bits of one byte, two of another, minus 32."""
    low, high = load_u8(s + (i & 7)) >> (4 * (i >> 3)), load_u8(s + 8 + (i & 3)) >> (2 * (i >> 2))
    return ((low & 15) | ((high & 3) << 4)) - 32


def q3_k(fmt: int, p: int, j: int) -> Pair:
    """32 bytes of third bits, 64 of quants, 12 of scales, d; value = (quant - 4) scale."""
    d, at, shift = half(p + 108), p + 32 + 32 * (j >> 2), 2 * (j & 3)
    a = ((load_bytes(at) >> shift) & 3) | (((load_bytes(p) >> j) & 1) << 2)
    b = ((load_bytes(at + 16) >> shift) & 3) | (((load_bytes(p + 16) >> j) & 1) << 2)
    d0, d1 = d * single(q3_scale(p + 96, 2 * j)), d * single(q3_scale(p + 96, 2 * j + 1))
    return (to_f32(widen(a)) - 4.0) * d0, (to_f32(widen(b)) - 4.0) * d1


def tq2_0(fmt: int, p: int, j: int) -> Pair:
    """64 bytes of quants, d; value = (quant - 1) d."""
    d, at, shift = half(p + 64), p + 32 * (j >> 2), 2 * (j & 3)
    a = to_f32(widen((load_bytes(at) >> shift) & 3))
    b = to_f32(widen((load_bytes(at + 16) >> shift) & 3))
    return (a - 1.0) * d, (b - 1.0) * d


@device
def digit(v: Any, n: int) -> Any:
    """Base-3 digit n of each byte: the whole part of (byte 3^n mod 256) 3 / 256, minus 1."""
    power = 1
    for _ in range(n):
        power *= 3
    return to_f32((((widen(v) * power) & 255) * 3) >> 8) - 1.0


def tq1_0(fmt: int, p: int, j: int) -> Pair:
    """48 bytes of five digits, 4 bytes of four, d: 160 values, 80 and 16."""
    d = half(p + 52)
    if j < 5:
        return digit(load_bytes(p), j) * d, digit(load_bytes(p + 16), j) * d
    v = load_bytes(p + 32)
    if j < 7:
        return digit(v, 2 * j - 10) * d, digit(v, 2 * j - 9) * d
    h = load_u32(p + 48)
    last = from_words(h | times(h, 3) << 32, times(h, 9) | times(h, 27) << 32)
    return digit(v, 4) * d, digit(last, 0) * d


@device
def times(word: int, factor: int) -> int:
    """Each of the four bytes times a factor, modulo 256."""
    even, odd = (word & 0x00FF00FF) * factor, ((word >> 8) & 0x00FF00FF) * factor
    return (even & 0x00FF00FF) | ((odd & 0x00FF00FF) << 8)
