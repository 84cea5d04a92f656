"""Decoding of IQ4_NL, IQ4_XS, MXFP4 and NVFP4 in registers (see fast_formats.py).

A quant is a nibble, an index into 16 values (ggml-common.h of llama.cpp; e2m1 and e8m0 are of OCP
Microscaling Formats 1.0).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fast_memory import half, load_bytes, load_u8, load_u32, load_word
from .fast_simd import device, to_f32
from .fast_tables import bits_float, code_table, from_words, widen_signed

Pair = Any  # two F32 vectors: values 0..15 and 16..31

iq4_values = code_table(
    (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
)
e2m1_values = code_table((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12))  # doubled


def iq4_nl(fmt: int, p: int, j: int) -> Pair:
    """d, 16 bytes: low nibbles are values 0..15."""
    d, q = half(p), load_bytes(p + 2)
    low, high = widen_signed(iq4_values(q & 15)), widen_signed(iq4_values(q >> 4))
    return to_f32(low) * d, to_f32(high) * d


def iq4_xs(fmt: int, p: int, j: int) -> Pair:
    """d, eight scales of six bits (two bits each in 16, four bits each in 32), 128 bytes."""
    top = (load_u8(p + 2) | load_u8(p + 3) << 8) >> (2 * j)
    scale = ((load_u32(p + 4) >> (4 * j)) & 15 | (top & 3) << 4) - 32
    d, q = half(p) * np.float32(scale), load_bytes(p + 8 + 16 * j)
    low, high = widen_signed(iq4_values(q & 15)), widen_signed(iq4_values(q >> 4))
    return to_f32(low) * d, to_f32(high) * d


def mxfp4(fmt: int, p: int, j: int) -> Pair:
    """Exponent byte e, 16 bytes; scale 2^(e - 128)."""
    e, q = load_u8(p), load_bytes(p + 1)
    d = bits_float(0x00200000 << e if e < 2 else (e - 1) << 23)
    low, high = widen_signed(e2m1_values(q & 15)), widen_signed(e2m1_values(q >> 4))
    return to_f32(low) * d, to_f32(high) * d


@device
def half_e4m3(v: int) -> Any:
    """Half of an unsigned e4m3 number in a byte; 0x7F is no number and stands for 0."""
    e, m = (v >> 3) & 15, v & 7
    if v == 0x7F:
        return np.float32(0.0)
    steps = m if e == 0 else m + 8
    return np.float32(steps) * bits_float((max(e, 1) + 116) << 23)  # 2^(e - 11)


def nvfp4(fmt: int, p: int, j: int) -> Pair:
    """Four scale bytes, then 8 bytes per 16 values, low nibbles first."""
    at = p + 4 + 16 * j
    a, b, nibbles = load_word(at), load_word(at + 8), 0x0F0F0F0F0F0F0F0F
    first = e2m1_values(from_words(a & nibbles, (a >> 4) & nibbles))
    second = e2m1_values(from_words(b & nibbles, (b >> 4) & nibbles))
    d0, d1 = half_e4m3(load_u8(p + 2 * j)), half_e4m3(load_u8(p + 2 * j + 1))
    return to_f32(widen_signed(first)) * d0, to_f32(widen_signed(second)) * d1
