"""mla_token: latent attention of one token in one dispatch, from its compressed query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from ..engine import step as words
from ..engine.blocks import FORMATS
from . import q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .mla_token_launch import (
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
    head = Head(*(int(params[name]) for name in ("rank", "nope", "n_rot", "value", "q_rank")))
    return launch_as(ops, head, int(params["heads"]), limits)


def reference(
    w: Matrix, a: Array, kb: Matrix, h: Matrix, rope: Array, k: Array, yq: Array, ys: Array,
    step: Array, *, heads: int, rank: int, nope: int, n_rot: int, value: int, q_rank: int,
    scale: float, eps: float,
) -> None:
    """yq, ys = q8 of the heads' values; k[pos] from a[0] = compressed query, latent, key.

    w holds v_b (heads * value, rank), then q_b (heads * (nope + n_rot), q_rank), h the gains of the
    query's norm and of the latent's.
    """
    both, gains, own = flat(w), vector(h), a[0, :q_rank]
    v_b, q_b = both[: heads * value * rank], both[heads * value * rank :]
    norm = q8.inverse_rms(q8.squares(own), q_rank, eps)
    x = q8.values(*q8.quantize(own * gains[:q_rank]))
    query = (q_b.reshape(-1, q_rank) @ x * norm).reshape(heads, nope + n_rot)
    latent = a[0, q_rank : q_rank + rank + n_rot]
    token(query, latent, gains[q_rank:], kb, v_b.reshape(heads, value, rank), rope, k, yq, ys,
          int(step[words.POS]), scale, eps)  # fmt: skip


def case(rng: np.random.Generator, fmt: str, heads: int, head: Head, length: int) -> Case:
    """One case."""
    ops = case_operands(rng, head, heads, length, head.q_rank)
    size = heads * (head.value * head.rank + (head.nope + head.rot) * head.q_rank)
    cols = FORMATS[fmt].elems  # one run of blocks
    ops |= {
        "w": random_matrix(rng, fmt, size // cols, cols, head.rank**-0.5),
        "h": random_matrix(rng, "F32", 1, head.q_rank + head.rank),
    }  # fmt: skip
    params = {"heads": heads, "q_rank": head.q_rank, **params_of(head)}
    return Case(f"{fmt} {heads} x {head} T={length}", ops, params, limit=1e-4,
                only={"k": rows_up_to(ops["k"], length)}, int8=frozenset({"yq"}))  # fmt: skip


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format, in one context after the other."""
    for i, fmt in enumerate(q8.FORMATS):
        yield settled(partial(case, rng, fmt, *case_of(i + 3, fmt)), reference)


KERNEL = Kernel("mla_token", launch, reference, cases, needs=q8.needs)
