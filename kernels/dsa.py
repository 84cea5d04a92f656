"""Sparse attention of DeepSeek V3.2 and GLM-5: an indexer scores all positions, queries see the
`most` best ones. What its kernels share.

The score of a position is the sum over the indexer's heads of weight * relu(q k). Queries and keys
have DIM values, the first n_rot turned in pairs that are `apart` from each other: 1 or n_rot / 2.
The Hadamard transform that both may take leaves the products as they are, so it is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .kernel import Array
from .reference import Floats


def rotate(v: Floats, table: Array, n_rot: int, apart: int) -> Floats:
    """The first n_rot values of v (…, dim) turned by cosines and sines (n_rot / 2, 2)."""
    out = np.array(v, np.float32)
    if apart == 1:
        first, second = slice(0, n_rot, 2), slice(1, n_rot, 2)
    else:
        first, second = slice(0, apart), slice(apart, n_rot)
    a, b, c, s = v[..., first], v[..., second], table[..., 0], table[..., 1]
    out[..., first], out[..., second] = a * c - b * s, a * s + b * c
    return out


def layer_norm(x: Floats, gain: Floats, bias: Floats, eps: float) -> Floats:
    """(x - mean) / sqrt(variance + eps) * gain + bias over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True, dtype=np.float64)
    spread = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + eps)
    return np.asarray(centred / spread * gain + bias, np.float32)


def scores(q: Floats, weights: Floats, keys: Floats) -> Floats:
    """Scores (positions,) of rotated queries (heads, dim), weights (heads,), keys (…, dim)."""
    return np.asarray(weights @ np.maximum(q @ keys.T, 0), np.float32)


def select(score: Floats, most: int) -> Array:
    """The `most` best positions in their own order; of equal scores the earlier."""
    return np.sort(np.argsort(-score, kind="stable")[:most]).astype(np.uint32)


def seen(k: Array, chosen: Array, length: int, most: int) -> Array:
    """The cache rows that a token of `length` positions sees."""
    return k[:length] if length <= most else k[chosen.astype(np.int64)]


def chosen_case(rng: np.random.Generator, n: int, pos: int, most: int) -> Any:
    """Lists (n, most) of positions that tokens from pos on see."""
    out = np.zeros((n, most), np.uint32)
    for i, row in enumerate(out):
        if pos + i + 1 > most:
            row[:] = np.sort(rng.permutation(pos + i + 1)[:most])
    return out
