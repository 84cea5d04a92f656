"""mla_query_q8: mla_query with the compressed query in int8 groups of 16."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine import step as words
from . import q8
from .kernel import Array, Case, Kernel, Matrix
from .mla import absorb, cache_rows
from .mla_query import format_cases, launch, whole
from .reference import rms_normalise, vector


def reference(
    a: Array, g: Matrix, w: Matrix, kb: Matrix, h: Matrix, rope: Array, q: Array, k: Array,
    step: Array, *, cols: int, q_rank: int, rank: int, nope: int, n_rot: int, heads: int,
    eps: float,
) -> None:
    """As mla_query."""
    pos = int(step[words.POS])
    xq, xs = q8.quantize(rms_normalise(a[:1, :q_rank], vector(g), eps)[0])
    query = q8.product_q8(xq, xs, w).reshape(heads, nope + n_rot)
    q[0] = absorb(query, whole(kb), rope[pos], rank).reshape(-1)
    latent = a[:1, q_rank : q_rank + rank + n_rot]
    k[pos] = cache_rows(latent, vector(h), rope[pos : pos + 1], rank, eps)[0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every quantized format once."""
    return format_cases(rng, q8.FORMATS, 1e-5)


KERNEL = Kernel("mla_query_q8", launch, reference, cases, needs=lambda limits: limits.int_dot)
