"""dsa_keys: keys of the indexer of sparse attention, normalised and rotated, into their cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .dsa import layer_norm, rotate
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .mla import cache_build, case_rope
from .mla_query import whole
from .reference import random_matrix, step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per token."""
    return Launch(cache_build(ops), (limits.workgroup(64), ops["k"].cols), (rows, 1, 1))


def reference(
    x: Array, h: Matrix, rope: Array, k: Array, step: Array, *,
    x_stride: int, x_off: int, n_rot: int, apart: int, eps: float,
) -> None:
    """k[pos + i] (dim,) from x[i, x_off:] for i < n; h (2, dim): gains, biases."""
    n, pos, dim = int(step[words.N]), int(step[words.POS]), k.shape[1]
    rows = x.reshape(-1)[: n * x_stride].reshape(n, x_stride)[:, x_off : x_off + dim]
    gain, bias = whole(h)
    for i, key in enumerate(layer_norm(rows, gain, bias, eps)):
        k[pos + i] = rotate(key, rope[pos + i], n_rot, apart)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both kinds of pairs, both types of the cache."""
    for dim, n_rot, apart in ((64, 32, 1), (128, 64, 32)):
        for dtype in (np.float16, np.float32):
            ops: dict[str, Any] = {
                "x": rng.standard_normal((4, dim + 9)).astype(np.float32) + 0.5,
                "h": random_matrix(rng, "F32", 2, dim), "rope": case_rope(rng, 9, n_rot),
                "k": rng.standard_normal((9, dim)).astype(dtype), "step": step_words(3, 5),
            }  # fmt: skip
            params = {"x_stride": dim + 9, "x_off": 5, "n_rot": n_rot, "apart": apart, "eps": 1e-6}
            yield Case(f"{dim} values, {apart} apart {np.dtype(dtype).name}", ops, params, rows=4,
                       limit=1e-7 if dtype is np.float16 else 1e-10)  # fmt: skip


KERNEL = Kernel("dsa_keys", launch, reference, cases)
