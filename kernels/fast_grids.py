"""Decoding of IQ1, IQ2 and IQ3 in registers (see fast_formats.py).

A quant is an index of 8 values (IQ3: 4) in a codebook (engine/grids.py), with signs apart.
Layouts: block_iq1_s … block_iq3_s of ggml-common.h of llama.cpp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fast_half import float_of_half
from .fast_memory import half, load_u8, load_u32, load_word
from .fast_simd import device, lane_bits, splat_i32, to_f32, widen
from .fast_tables import from_words, grid_address

Pair = Any  # two F32 vectors: values 0..15 and 16..31

iq1_grid = grid_address("IQ1_S")  # IQ1_M has the same one
iq2_xxs_grid, iq2_xs_grid = grid_address("IQ2_XXS"), grid_address("IQ2_XS")
iq2_s_grid, iq3_xxs_grid = grid_address("IQ2_S"), grid_address("IQ3_XXS")
iq3_s_grid = grid_address("IQ3_S")


@device
def load_u16(p: int) -> int:
    """Two bytes."""
    return load_u8(p) | load_u8(p + 1) << 8


@device
def eighth_sign(bits: int) -> int:
    """Seven signs are stored; the eighth makes their number even."""
    bits &= 127
    odd = bits ^ bits >> 4
    odd ^= odd >> 2
    return bits | ((odd ^ odd >> 1) & 1) << 7


@device
def eights(grid: int, i: int, k: int, signs: int) -> Any:
    """Quants i and k of 8 magnitudes, negated where one of the 16 bits `signs` is set."""
    v = widen(from_words(load_word(grid + 8 * i), load_word(grid + 8 * k)))
    return to_f32(v * (lane_bits(splat_i32(signs)) * -2 + 1))


@device
def fours(grid: int, i: int, j: int, k: int, n: int, signs: int) -> Any:
    """Four quants of 4 magnitudes, negated where one of the 16 bits `signs` is set."""
    low = load_u32(grid + 4 * i) | load_u32(grid + 4 * j) << 32
    high = load_u32(grid + 4 * k) | load_u32(grid + 4 * n) << 32
    return to_f32(widen(from_words(low, high)) * (lane_bits(splat_i32(signs)) * -2 + 1))


def iq2_xxs(fmt: int, p: int, j: int) -> Pair:
    """d, then per 32 values four index bytes, four times seven signs and four bits of scale."""
    grid, at = iq2_xxs_grid(0), p + 2 + 8 * j
    bits = load_u32(at + 4)
    d = half(p) * (np.float32(0.5) + np.float32(bits >> 28)) * np.float32(0.25)
    low = eighth_sign(bits) | eighth_sign(bits >> 7) << 8
    high = eighth_sign(bits >> 14) | eighth_sign(bits >> 21) << 8
    return (
        eights(grid, load_u8(at), load_u8(at + 1), low) * d,
        eights(grid, load_u8(at + 2), load_u8(at + 3), high) * d,
    )


@device
def nibble_scale(p: int, nibble: int) -> Any:
    """(1/2 + a nibble) / 4 as a factor of d."""
    return half(p) * (np.float32(0.5) + np.float32(nibble)) * np.float32(0.25)


def iq2_xs(fmt: int, p: int, j: int) -> Pair:
    """d, 32 words of nine bits of index and seven signs, a nibble of scale per 16 values."""
    grid, at, s = iq2_xs_grid(0), p + 2 + 8 * j, load_u8(p + 66 + j)
    a, b, c, d = load_u16(at), load_u16(at + 2), load_u16(at + 4), load_u16(at + 6)
    low = eighth_sign(a >> 9) | eighth_sign(b >> 9) << 8
    high = eighth_sign(c >> 9) | eighth_sign(d >> 9) << 8
    return (
        eights(grid, a & 511, b & 511, low) * nibble_scale(p, s & 15),
        eights(grid, c & 511, d & 511, high) * nibble_scale(p, s >> 4),
    )


def iq2_s(fmt: int, p: int, j: int) -> Pair:
    """d, 32 index bytes, 32 of signs, 8 of two high bits per index, 8 of scale nibbles."""
    grid, at, top, s = iq2_s_grid(0), p + 2 + 4 * j, load_u8(p + 66 + j) << 8, load_u8(p + 74 + j)
    a, b = load_u8(at) | top & 0x300, load_u8(at + 1) | top >> 2 & 0x300
    c, d = load_u8(at + 2) | top >> 4 & 0x300, load_u8(at + 3) | top >> 6 & 0x300
    return (
        eights(grid, a, b, load_u16(at + 32)) * nibble_scale(p, s & 15),
        eights(grid, c, d, load_u16(at + 34)) * nibble_scale(p, s >> 4),
    )


def iq3_xxs(fmt: int, p: int, j: int) -> Pair:
    """d, 64 index bytes, then per 32 values four times seven signs and four bits of scale."""
    grid, at, bits = iq3_xxs_grid(0), p + 2 + 8 * j, load_u32(p + 66 + 4 * j)
    d = half(p) * (np.float32(0.5) + np.float32(bits >> 28)) * np.float32(0.5)
    low = eighth_sign(bits) | eighth_sign(bits >> 7) << 8
    high = eighth_sign(bits >> 14) | eighth_sign(bits >> 21) << 8
    a = fours(grid, load_u8(at), load_u8(at + 1), load_u8(at + 2), load_u8(at + 3), low)
    b = fours(grid, load_u8(at + 4), load_u8(at + 5), load_u8(at + 6), load_u8(at + 7), high)
    return a * d, b * d


@device
def index9(at: int, high: int, n: int) -> int:
    """Index byte n with its ninth bit."""
    return load_u8(at + n) | (high >> n & 1) << 8


def iq3_s(fmt: int, p: int, j: int) -> Pair:
    """d, 64 index bytes, 8 of ninth bits, 32 of signs, 4 of scale nibbles."""
    grid, at, h, signs = iq3_s_grid(0), p + 2 + 8 * j, load_u8(p + 66 + j), p + 74 + 4 * j
    scale = load_u8(p + 106 + (j >> 1)) >> (4 * (j & 1)) & 15
    d = half(p) * np.float32(2 * scale + 1)
    a = fours(grid, index9(at, h, 0), index9(at, h, 1), index9(at, h, 2), index9(at, h, 3),
              load_u16(signs))  # fmt: skip
    b = fours(grid, index9(at, h, 4), index9(at, h, 5), index9(at, h, 6), index9(at, h, 7),
              load_u16(signs + 2))  # fmt: skip
    return a * d, b * d


@device
def shifted(grid: int, i: int, k: int, ups: int) -> Any:
    """Quants i and k, 8 times their values: up by one where one of the 16 bits is set, or down."""
    v = widen(from_words(load_word(grid + 8 * i), load_word(grid + 8 * k)))
    return to_f32(v + lane_bits(splat_i32(ups)) * 2) - 9.0


def iq1_s(fmt: int, p: int, j: int) -> Pair:
    """d, 32 index bytes, 8 words: three high bits per index, three of scale, the shift's sign."""
    grid, at, h = iq1_grid(0), p + 2 + 4 * j, load_u16(p + 34 + 2 * j)
    d = half(p) * np.float32(2 * (h >> 12 & 7) + 1) * np.float32(0.125)
    ups = 0 if h >> 15 else 0xFFFF
    a, b = load_u8(at) | (h & 7) << 8, load_u8(at + 1) | (h >> 3 & 7) << 8
    c, e = load_u8(at + 2) | (h >> 6 & 7) << 8, load_u8(at + 3) | (h >> 9 & 7) << 8
    return shifted(grid, a, b, ups) * d, shifted(grid, c, e, ups) * d


def iq1_m(fmt: int, p: int, j: int) -> Pair:
    """32 index bytes, 16 of nibbles (three high bits, the shift's sign), four words: a nibble of d
    and four scales of three bits."""
    grid, at, h, s = iq1_grid(0), p + 4 * j, load_u16(p + 32 + 2 * j), p + 48
    bits = load_u16(s) >> 12 | load_u16(s + 2) >> 12 << 4
    bits |= load_u16(s + 4) >> 12 << 8 | load_u16(s + 6) >> 12 << 12
    d = float_of_half(bits) * np.float32(0.125)
    scales = load_u16(s + 2 * (j >> 1)) >> (6 * (j & 1))
    a, b = load_u8(at) | (h & 7) << 8, load_u8(at + 1) | (h >> 4 & 7) << 8
    c, e = load_u8(at + 2) | (h >> 8 & 7) << 8, load_u8(at + 3) | (h >> 12 & 7) << 8
    low = (0 if h & 0x8 else 0xFF) | (0 if h & 0x80 else 0xFF00)
    high = (0 if h & 0x800 else 0xFF) | (0 if h & 0x8000 else 0xFF00)
    d0, d1 = d * np.float32(2 * (scales & 7) + 1), d * np.float32(2 * (scales >> 3 & 7) + 1)
    return shifted(grid, a, b, low) * d0, shifted(grid, c, e, high) * d1
