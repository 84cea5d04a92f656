"""mla_rows: rotated queries and cache rows of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .mla import SHAPES, cache_build, cache_rows, case_rope, rotate, sizes
from .reference import random_matrix, step_words, vector


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """A workgroup per head and row, and one for the row's cache."""
    return Launch(cache_build(ops), (limits.workgroup(64),), (rows, int(params["heads"]) + 1, 1))


def reference(
    a: Array, b: Array, h: Matrix, rope: Array, q: Array, k: Array, step: Array, *,
    rank: int, nope: int, n_rot: int, heads: int, eps: float, a_stride: int, a_off: int,
    b_stride: int,
) -> None:
    """The last n_rot values of q[i] (heads, rank + n_rot) from those of b[i] (heads, nope +
    n_rot), and k[pos + i] from a[i, a_off:], for i < n."""
    n, pos = int(step[words.N]), int(step[words.POS])
    rows = a.reshape(-1)[: n * a_stride].reshape(n, a_stride)[:, a_off : a_off + rank + n_rot]
    table = rope[pos : pos + n]
    k[pos : pos + n] = cache_rows(rows, vector(h), table, rank, eps)
    plain = b.reshape(-1)[: n * b_stride].reshape(n, b_stride)[:, : heads * (nope + n_rot)]
    turned = q[:n].reshape(n, heads, rank + n_rot)
    for i in range(n):
        turned[i, :, rank:] = rotate(plain[i].reshape(heads, -1)[:, nope:], table[i])


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """All shapes and types of the cache; a batch smaller than the launch."""
    for shape in SHAPES:
        for dtype in (np.float16, np.float32):
            heads, rank, nope, n_rot = shape
            a_stride, b_stride = rank + n_rot + 24, heads * (nope + n_rot)
            ops: dict[str, Any] = {
                "a": rng.standard_normal((4, a_stride)).astype(np.float32),
                "b": rng.standard_normal((4, b_stride)).astype(np.float32),
                "h": random_matrix(rng, "F32", 1, rank), "rope": case_rope(rng, 9, n_rot),
                "q": rng.standard_normal((4, heads * (rank + n_rot))).astype(np.float32),
                "k": rng.standard_normal((9, rank + n_rot)).astype(dtype),
                "step": step_words(3, 5),
            }  # fmt: skip
            params = {"eps": 1e-5, "a_stride": a_stride, "a_off": 24, "b_stride": b_stride}
            name = f"{'x'.join(map(str, shape))} {np.dtype(dtype).name}"
            limit = 1e-7 if dtype is np.float16 else 1e-10
            yield Case(name, ops, {**params, **sizes(shape)}, rows=4, limit=limit)


KERNEL = Kernel("mla_rows", launch, reference, cases)
