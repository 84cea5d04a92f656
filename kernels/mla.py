"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): what its kernels share.

A cache row is the normalised latent (rank values) and a rotated key (n_rot) that all heads share.
Queries are absorbed: k_b, transposed, is applied to them instead of to every latent, so that they
meet the rows as they lie in the cache; v_b is applied once, to the weighted sum of latents.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .kernel import Array, Params
from .limits import Limits
from .reference import Floats, rms_normalise

ALL = 0xFFFFFFFF  # positions that a token may see where nothing chooses among them
MIN_SPLIT = 16  # as in shaders/mla_splits.glsl
VALUE_FORMATS = ("F16", "F32")  # of k_b, by the builds KB16 and KB32


def rotate(v: Floats, table: Array) -> Floats:
    """Neighbouring pairs of v (…, n_rot) turned by cosines and sines (n_rot / 2, 2)."""
    a, b, c, s = v[..., ::2], v[..., 1::2], table[..., 0], table[..., 1]
    return np.stack([a * c - b * s, a * s + b * c], axis=-1).reshape(v.shape).astype(np.float32)


def cache_rows(a: Floats, gain: Floats, table: Array, rank: int, eps: float) -> Floats:
    """Rows of the cache from latents and keys a (n, rank + n_rot) at the positions of `table`."""
    keys = [rotate(row, cs) for row, cs in zip(a[:, rank:], table, strict=True)]
    latent = rms_normalise(a[:, :rank], gain, eps)
    return np.concatenate([latent, np.asarray(keys, np.float32)], axis=1)


def absorb(query: Floats, kb: Floats, table: Array, rank: int) -> Floats:
    """Queries (heads, nope + n_rot) as they meet the cache: (heads, rank + n_rot)."""
    heads, nope = len(query), kb.shape[1]
    latent = np.einsum("hrn,hn->hr", kb.reshape(heads, rank, nope), query[:, :nope])
    return np.concatenate([latent, rotate(query[:, nope:], table)], axis=1).astype(np.float32)


def attend(q: Floats, rows: Floats, rank: int, scale: float) -> tuple[Floats, Floats, Floats]:
    """Sums of latents (heads, rank), largest scores and sums of exponentials (heads,)."""
    scores = (q @ rows.T) * np.float32(scale)
    most = scores.max(axis=1)
    weights = np.exp(scores - most[:, None])
    return weights @ rows[:, :rank], most, weights.sum(axis=1)


def split_length(length: int, splits: int, least: int = MIN_SPLIT) -> int:
    """Positions of a split."""
    return max(-(-length // splits), least)


def tile(
    heads: int, rank: int, rot: int, halves: bool, limits: Limits, most: int = 8
) -> tuple[int, ...]:
    """Specialization constants of mla_attention.glsl: heads first, then positions of a tile."""
    width, size = rank + rot, limits.workgroup(256)
    words = width // 2 if halves else width
    fit = []
    for group in (g for g in range(1, most + 1) if heads % g == 0):
        for rows, together in itertools.product((16, 8, 4, 2, 1), (2, 1)):
            shared = group * (width + 11 + rows + together * size) + rows * words
            if rows % together == 0 and group * rows <= size and 4 * shared <= limits.shared_bytes:
                fit.append((rows >= 4, group * rows, group, together, rows))
    if not fit:
        raise ValueError(f"latent attention of {width} values does not fit the shared memory")
    _, _, group, together, rows = max(fit)
    return size, group, rank, rot, rows, together


def parts(heads: int, rows: int, limits: Limits, multiple: int = 1) -> int:
    """Workgroups per head: enough to keep all units busy, whole multiples of rows."""
    count = 1
    while (
        heads * count < limits.units and count < 16 and rows % (2 * count) == 0
        and rows // (2 * count) % multiple == 0
    ):  # fmt: skip
        count *= 2
    return count


def cache_build(ops: Any) -> str:
    """KV16 or KV32."""
    return "KV16" if ops["k"].format_name == "F16" else "KV32"


def case_rope(rng: np.random.Generator, n: int, n_rot: int) -> Array:
    """Cosines and sines (n, n_rot / 2, 2)."""
    angle = rng.uniform(0, 6, (n, n_rot // 2))
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1).astype(np.float32)


# (heads, rank, nope, n_rot): tiny, real shapes with few heads
SHAPES = ((4, 64, 32, 32), (2, 512, 192, 64), (3, 96, 64, 16))


def sizes(shape: tuple[int, int, int, int]) -> Params:
    """Push words of a shape."""
    return dict(zip(("heads", "rank", "nope", "n_rot"), shape, strict=True))
