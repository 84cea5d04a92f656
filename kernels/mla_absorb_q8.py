"""mla_absorb_q8: absorbed queries and the cache's row from a token's compressed query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from ..engine import step as words
from . import q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .mla import cache_rows, rotate
from .mla_parts import any_head, fits, query_width, spread
from .mla_query import whole
from .mla_token_launch import ODD, Head, Rows, case_operands, fitting
from .reference import random_matrix, vector
from .settled import settled


def head_of(params: Params) -> Head:
    """Sizes of a head, without values."""
    rank, nope, rot, q_rank = (int(params[n]) for n in ("rank", "nope", "n_rot", "q_rank"))
    return Head(rank, nope, rot, 16, q_rank)


def query_team(
    h: Head, parts: int, limits: Limits, unit: int, size: int = 256
) -> tuple[int, Rows, Rows]:
    """(workgroup, lanes and rows of k_b, those of q_b) for units of `unit` chunks of q_b."""
    size, cols = limits.workgroup(size, limits.subgroup_size), h.nope // parts
    most = 1 if limits.software else 6
    keys = fitting(h.rank, cols // 32, most, size, limits.subgroup_size)
    rows = max(cols, h.rot)
    return size, keys, spread(rows, h.q_rank // 32 // unit, size, limits.subgroup_size)


def shared_bytes(h: Head, parts: int, size: int, subgroup: int) -> int:
    """What the shader declares as shared."""
    inputs, rows = max(h.q_rank, h.nope // parts), max(h.nope // parts, h.rot)
    return 4 * (inputs // 4 + inputs // 8 + rows + size // subgroup)


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """`parts` workgroups per head, one more for its part with position; one for the cache.
    ValueError where a head does not fit."""
    h, parts, name = head_of(params), int(params["parts"]), ops["w"].format_name
    size, keys, queries = query_team(h, parts, limits, q8.step_of(name))
    room = shared_bytes(h, parts, size, limits.subgroup_size) <= limits.shared_bytes
    if not (fits(h, limits) and room) or h.nope % (32 * parts):
        raise ValueError(f"latent attention of {h} does not fit workgroups in {parts} parts")
    spec = (size, limits.subgroup_size, h.rank, h.rot, h.nope, h.q_rank, parts, keys.lanes,
            keys.rows, queries.lanes, queries.rows)  # fmt: skip
    groups = int(params["heads"]) * (parts + 1) + 1
    return Launch(name, spec, (groups, 1, 1), limits.subgroup_size)


def reference(
    w: Matrix, a: Array, kb: Matrix, h: Matrix, rope: Array, q: Array, k: Array, step: Array, *,
    heads: int, rank: int, nope: int, n_rot: int, q_rank: int, parts: int, eps: float,
) -> None:
    """q[0] per head: the summands (parts, rank) of the absorbed query, its part with position
    (n_rot,); k[pos]. From a[0] = compressed query, latent, key; w is q_b, h the gains of the
    query's norm and of the latent's."""
    pos, gains, own = int(step[words.POS]), vector(h), a[0, :q_rank]
    norm = q8.inverse_rms(q8.squares(own), q_rank, eps)
    x = q8.values(*q8.quantize(own * gains[:q_rank]))
    query = (whole(w) @ x * norm).reshape(heads, nope + n_rot)
    rounded = q8.values(*q8.quantize(np.ascontiguousarray(query[:, :nope]).reshape(-1)))
    columns, keys = rounded.reshape(heads, parts, -1), whole(kb).reshape(heads, rank, parts, -1)
    made = np.einsum("hrpn,hpn->hpr", keys, columns).reshape(heads, parts * rank)
    turned = rotate(query[:, nope:], rope[pos])
    q[0] = np.concatenate([made, turned], axis=1).reshape(-1)
    latent = a[:1, q_rank : q_rank + rank + n_rot]
    k[pos] = cache_rows(latent, gains[q_rank:], rope[pos : pos + 1], rank, eps)[0]


def case(rng: np.random.Generator, fmt: str, heads: int, head: Head, parts: int) -> Case:
    """One case."""
    ops = case_operands(rng, head, heads, 7, head.q_rank)
    rows, width = heads * (head.nope + head.rot), query_width(heads, head.rank, head.rot, parts)
    ops = {name: ops[name] for name in ("a", "kb", "rope", "k", "step")} | {
        "w": random_matrix(rng, fmt, rows, head.q_rank, head.q_rank**-0.5),
        "h": random_matrix(rng, "F32", 1, head.q_rank + head.rank),
        "q": np.zeros((1, width), np.float32),
    }  # fmt: skip
    params = {"heads": heads, "rank": head.rank, "nope": head.nope, "n_rot": head.rot,
              "q_rank": head.q_rank, "parts": parts, "eps": 1e-5}  # fmt: skip
    own = np.zeros(ops["k"].shape, bool)
    own[6] = True
    return Case(f"{fmt} {heads} x {head} in {parts}", ops, params, limit=2e-5, only={"k": own})


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format; whole heads and parts of them."""
    for i, fmt in enumerate(q8.FORMATS):
        heads, head = any_head(i, fmt)
        parts = 3 if head.nope % 96 == 0 else 1
        yield settled(partial(case, rng, fmt, heads, head, parts), reference)
    yield settled(partial(case, rng, "Q4_0", *ODD, 1), reference)


KERNEL = Kernel("mla_absorb_q8", launch, reference, cases, needs=q8.needs)
