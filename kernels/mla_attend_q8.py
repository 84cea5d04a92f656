"""mla_attend_q8: the heads' values of a token in int8 from absorbed queries, in short contexts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..engine import step as words
from . import q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .mla import attend
from .mla_parts import any_head, query_width
from .mla_query import whole
from .mla_token_launch import POSITIONS, ROWS, Head, fitting
from .reference import random_matrix, step_words
from .settled import settled


def shared_bytes(rank: int, rot: int, values: int, teams: int, slots: int) -> int:
    """What the shader declares as shared."""
    return 4 * (rank + rot + rank * 3 // 8 + 2 * teams + slots * (rank + 32) + values)


def team(
    h: Head, shares: int, limits: Limits, unit: int, size: int = 512, ahead: int = 2
) -> tuple[int, ...]:
    """(workgroup, sums in shared memory at once, cache rows on their way, lanes and rows of v_b).
    ValueError where a head does not fit."""
    subgroup, values = limits.subgroup_size, h.value // shares
    size = limits.workgroup(size, subgroup)
    slots = size // subgroup
    while slots and shared_bytes(h.rank, h.rot, values, size // subgroup, slots) > (
        limits.shared_bytes
    ):
        slots //= 2
    if not slots or subgroup < 4 or h.value % (16 * shares):
        raise ValueError(f"latent attention of {h} does not fit workgroups in {shares} shares")
    most = 1 if limits.software else 8 if unit == 1 else 4
    rows = fitting(values, h.rank // 32 // unit, most, size, subgroup)
    return size, slots, 1 if limits.software else ahead, rows.lanes, rows.rows


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """`shares` workgroups per head."""
    rank, rot, value = (int(params[n]) for n in ("rank", "n_rot", "value"))
    name, shares = ops["w"].format_name, int(params["shares"])
    size, slots, ahead, lanes, per = team(Head(rank, 32, rot, value), shares, limits,
                                          q8.step_of(name))  # fmt: skip
    spec = (size, limits.subgroup_size, rank, rot, int(params["parts"]), value, slots,
            ops["k"].rows, ahead, shares, lanes, per)  # fmt: skip
    return Launch(name, spec, (int(params["heads"]) * shares, 1, 1), limits.subgroup_size)


def reference(
    w: Matrix, q: Array, k: Array, yq: Array, ys: Array, step: Array, *, heads: int, rank: int,
    n_rot: int, value: int, parts: int, shares: int, scale: float,
) -> None:
    """yq, ys = q8 of the heads' values, from q[0] of mla_absorb_q8 and the cache's rows up to the
    token's own; w is v_b (heads * value, rank)."""
    each = q[0].reshape(heads, parts * rank + n_rot)
    summed = each[:, : parts * rank].reshape(heads, parts, rank).sum(axis=1)
    absorbed = np.concatenate([summed, each[:, parts * rank :]], axis=1)
    rows = k[: int(step[words.POS]) + 1].astype(np.float32)
    sums, _, total = attend(absorbed, rows, rank, scale)
    joined = (sums / total[:, None]).astype(np.float32)
    v_b = whole(w).reshape(heads, value, rank)
    out = [v_b[i] @ q8.values(*q8.quantize(x)) for i, x in enumerate(joined)]
    yq[:], ys[:] = q8.quantize(np.concatenate(out).astype(np.float32))


def case(
    rng: np.random.Generator, fmt: str, heads: int, h: Head, length: int, parts: int, shares: int
) -> Case:
    """One case: poison behind the context."""
    k = rng.standard_normal((ROWS, h.rank + h.rot)).astype(np.float16)
    k[length:] = np.nan
    width = query_width(heads, h.rank, h.rot, parts)
    ops: dict[str, Any] = {
        "w": random_matrix(rng, fmt, heads * h.value, h.rank, h.rank**-0.5),
        "q": rng.standard_normal((1, width)).astype(np.float32), "k": k,
        "yq": np.zeros(heads * h.value // 4, np.uint32),
        "ys": np.zeros((heads * h.value // 16, 2), np.float32), "step": step_words(1, length - 1),
    }  # fmt: skip
    params = {"heads": heads, "rank": h.rank, "n_rot": h.rot, "value": h.value, "parts": parts,
              "shares": shares, "scale": (parts * (h.rank + h.rot)) ** -0.5}  # fmt: skip
    return Case(f"{fmt} {heads} x {h} T={length} {parts} parts, {shares} shares", ops, params,
                limit=2e-5, int8=frozenset({"yq"}))  # fmt: skip


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format in one context after the other; whole heads and shares of them."""
    for i, fmt in enumerate(q8.FORMATS):
        heads, head = any_head(i, fmt)
        length, shares = POSITIONS[i % len(POSITIONS)], 4 if head.value == 256 else 1 + i % 2
        shares = shares if head.value != 48 else 3
        drawn = partial(case, rng, fmt, heads, head, length, 1 + i % 3, shares)
        yield settled(drawn, reference)


KERNEL = Kernel("mla_attend_q8", launch, reference, cases, needs=q8.needs)
