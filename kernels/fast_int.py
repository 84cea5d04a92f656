"""Decoding of the int containers' formats in registers (see fast_formats.py).

Layouts: engine/int_blocks.py. Every block ends with its scale, a float32.
"""

from __future__ import annotations

from typing import Any

from .fast_memory import load_bytes, load_i8_f32, load_one, load_u32
from .fast_simd import device, to_f32, widen
from .fast_tables import from_words

Pair = Any  # two F32 vectors: values 0..15 and 16..31


def int8(fmt: int, p: int, j: int) -> Pair:
    """64 signed bytes, scale."""
    d = load_one(p + 64)
    return load_i8_f32(p + 32 * j) * d, load_i8_f32(p + 32 * j + 16) * d


@device
def four_bits(p: int, scale: int) -> Pair:
    """16 bytes at p, scale elsewhere; low nibbles are values 0..15; minus 8."""
    d, q = load_one(scale), load_bytes(p)
    return (to_f32(widen(q & 15)) - 8.0) * d, (to_f32(widen(q >> 4)) - 8.0) * d


def int4_g32(fmt: int, p: int, j: int) -> Pair:
    """16 bytes, scale."""
    return four_bits(p, p + 16)


def int4_g64(fmt: int, p: int, j: int) -> Pair:
    """32 bytes, scale."""
    return four_bits(p + 16 * j, p + 32)


def int4_g128(fmt: int, p: int, j: int) -> Pair:
    """64 bytes, scale."""
    return four_bits(p + 16 * j, p + 64)


PAIRS, ONES = 0x03030303, 0x01010101


@device
def eight_of_three(low: int, high: int, i: int) -> int:
    """Values 4 i … 4 i + 7 of a group, one a byte: bit pairs i, i + 1 of `low`, bits of `high`."""
    a = ((low >> (2 * i)) & PAIRS) | (((high >> i) & ONES) << 2)
    b = ((low >> (2 * i + 2)) & PAIRS) | (((high >> (i + 1)) & ONES) << 2)
    return a | (b << 32)


def int3_g64(fmt: int, p: int, j: int) -> Pair:
    """16 bytes of bit pairs, 8 of high bits, scale; minus 4."""
    d, high = load_one(p + 24), load_u32(p + 16 + 4 * j)
    x, y = load_u32(p + 8 * j), load_u32(p + 8 * j + 4)
    a = from_words(eight_of_three(x, high, 0), eight_of_three(x, high, 2))
    b = from_words(eight_of_three(y, high >> 4, 0), eight_of_three(y, high >> 4, 2))
    return (to_f32(widen(a)) - 4.0) * d, (to_f32(widen(b)) - 4.0) * d


DECODERS = {
    "INT8": int8, "INT4_G32": int4_g32, "INT4_G64": int4_g64, "INT4_G128": int4_g128,
    "INT3_G64": int3_g64,
}  # fmt: skip
