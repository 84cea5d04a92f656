"""mla_token_plain: latent attention of one token in one dispatch, from its plain queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from ..engine import step as words
from . import q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .mla_token_launch import (
    LARGE,
    POSITIONS,
    Head,
    case_of,
    case_operands,
    flat,
    launch_as,
    params_of,
    rows_up_to,
    token,
)
from .reference import random_matrix, vector
from .settled import settled


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """A workgroup per head."""
    head = Head(*(int(params[name]) for name in ("rank", "nope", "n_rot", "value")))
    return launch_as(ops, head, int(params["heads"]), limits)


def reference(
    w: Matrix, x: Array, a: Array, kb: Matrix, h: Matrix, rope: Array, k: Array, yq: Array,
    ys: Array, step: Array, *, heads: int, rank: int, nope: int, n_rot: int, value: int,
    first: int, scale: float, eps: float,
) -> None:
    """yq, ys = q8 of the heads' values; k[pos] from a[0] = …, latent, key; w is v_b."""
    query = x[0, : heads * (nope + n_rot)].reshape(heads, nope + n_rot)
    v_b = flat(w).reshape(heads, value, rank)
    latent = a[0, first : first + rank + n_rot]
    token(query, latent, vector(h), kb, v_b, rope, k, yq, ys, int(step[words.POS]), scale, eps)


def case(
    rng: np.random.Generator, fmt: str, heads: int, head: Head, length: int, same: bool
) -> Case:
    """One case; `same`: the latent lies behind the queries, in their buffer."""
    plain = heads * (head.nope + head.rot)
    first = plain if same else 64
    ops = case_operands(rng, head, heads, length, first)
    ops |= {
        "w": random_matrix(rng, fmt, heads * head.value, head.rank, head.rank**-0.5),
        "h": random_matrix(rng, "F32", 1, head.rank),
        "x": ops["a"] if same else rng.standard_normal((1, plain)).astype(np.float32),
    }  # fmt: skip
    params = {"heads": heads, "first": first, **params_of(head)}
    return Case(f"{fmt} {heads} x {head} T={length}", ops, params, limit=2e-5,
                only={"k": rows_up_to(ops["k"], length)}, int8=frozenset({"yq"}))  # fmt: skip


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Some formats, for mla_token has all of them; large heads in every context."""
    for i, fmt in enumerate(("Q4_0", "Q5_1", "Q4_K", "Q6_K", "INT8")):
        yield settled(partial(case, rng, fmt, *case_of(i, fmt), i % 2 == 0), reference)
    for length in POSITIONS:
        yield settled(partial(case, rng, "Q3_K", *LARGE, length, False), reference)


KERNEL = Kernel("mla_token_plain", launch, reference, cases, needs=q8.needs)
