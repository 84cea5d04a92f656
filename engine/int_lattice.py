"""Format 6b: lattice blocks of 98 bytes per 256 inputs, rows rotated by Walsh-Hadamard transforms.

A block is that of IQ3_XXS (ggml-common.h of llama.cpp) with the scale last and half as large a
unit: 64 grid indices, 8 words of signs and 4-bit scales, float16 scale. A container stores W Q;
Q is orthogonal, so that W = (W Q) Q^T is what a decoder without rotated activations computes.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from .blocks import Bytes, Floats

BLOCK_BYTES, BLOCK = 98, 256
MAX_SPAN = 32768  # inputs of one transform


def decode_rows(packed: Bytes, cols: int) -> Floats:
    """Values (n, cols) of rows of blocks (n, 98 * ceil(cols / 256))."""
    return rotate(decode_blocks(packed)[:, :cols], inverse=True)


def decode_blocks(packed: Bytes) -> Floats:
    """Stored values (n, 256 * blocks), still rotated."""
    n = len(packed)
    blocks = packed.reshape(-1, BLOCK_BYTES)
    ours = np.ascontiguousarray(np.roll(blocks, 2, axis=1))  # the scale goes first in GGUF
    values = dequantize(ours.reshape(n, -1), GGMLQuantizationType.IQ3_XXS)
    out: Floats = (np.asarray(values, np.float32) * np.float32(0.5)).reshape(n, -1)
    return out


def spans(cols: int) -> list[int]:
    """Lengths of the transforms that tile a row: each the largest power of two that divides what
    is left of it."""
    out = []
    while cols:
        span = cols & -cols
        while span > MAX_SPAN:
            span //= 2
        out.append(span)
        cols -= span
    return out


@cache
def signs(n: int) -> npt.NDArray[np.float32]:
    """The signs of a transform of n inputs, float32 (n,): bits of xorshift64* seeded 417 + n."""
    mask, state, out = (1 << 64) - 1, 417 + n, []
    for _ in range((n + 7) // 8):
        state ^= state >> 12
        state = (state ^ (state << 25)) & mask
        state ^= state >> 27
        out.append((state * 2685821657736338717 & mask) >> 56)
    bits = np.unpackbits(np.array(out, np.uint8), bitorder="little")[:n]
    return np.where(bits, np.float32(-1), np.float32(1))


def rotate(x: Floats, inverse: bool = False) -> Floats:
    """x Q over rows (n, cols): signs, then a transform, span by span; `inverse`: x Q^T."""
    out, at = x.astype(np.float64), 0
    for span in spans(x.shape[1]):
        part = out[:, at : at + span]
        if not inverse:
            part *= signs(span)
        out[:, at : at + span] = _transform(part)
        if inverse:
            out[:, at : at + span] *= signs(span)
        at += span
    return out.astype(np.float32)


def _transform(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Walsh-Hadamard transform over the last axis, divided by the square root of its length."""
    n, length, half = len(x), x.shape[1], 1
    while half < length:
        pairs = x.reshape(n, -1, 2, half)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        x = np.stack([a + b, a - b], axis=2).reshape(n, length)
        half *= 2
    return x * np.float64(length) ** -0.5
