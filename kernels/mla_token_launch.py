"""What mla_token and mla_token_plain share: how a head fits a workgroup, references, cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.blocks import FORMATS
from . import q8
from .kernel import Array, Launch, Params, Shaped
from .limits import Limits
from .mla import absorb, attend, cache_rows, case_rope
from .mla_query import whole
from .reference import Floats, random_matrix, row_chunks, step_words


@dataclass(frozen=True)
class Head:
    """Sizes of a head; `q_rank` where its rows of q_b are multiplied in the kernel, else 0."""

    rank: int
    nope: int
    rot: int
    value: int
    q_rank: int = 0


@dataclass(frozen=True)
class Team:
    """How a workgroup takes a head: constants 0, 1 and 6 to 10 of mla_token.glsl, 13."""

    size: int
    subgroup: int
    slots: int
    lanes: int
    key_rows: int
    value_rows: int
    ahead: int
    query_rows: int


def shared_bytes(h: Head, t: Team) -> int:
    """What mla_token.glsl declares as shared, its arrays in order."""
    teams, inputs = t.size // t.subgroup, max(h.rank, h.q_rank)
    words = (h.rank + h.rot) * 3 // 2 + 2 * teams + t.slots * (h.rank + 32)
    words += inputs // 4 + inputs // 8 + h.value
    words += h.nope + h.rot + teams if h.q_rank else 0
    return 4 * words


def fitting(rows: int, each: int, most: int, groups: int) -> int:
    """Rows at once of `groups` lane groups: a power of two, no more than there are, `each` loads of
    a lane per row and at most `most`."""
    count = 1
    while 2 * count * each <= most and count * groups < rows and count < 8:
        count *= 2
    return count


def team(h: Head, limits: Limits, size: int = 512, ahead: int = 4) -> Team | None:
    """The largest workgroup up to `size`, or None where a head does not fit. On an H200 a workgroup
    has a unit of its own, so 128 registers for each of 512 invocations."""
    subgroup = limits.subgroup_size
    if subgroup < 4:  # four lanes quantize a group
        return None
    size, lanes = limits.workgroup(size, subgroup), min(8, subgroup)
    while lanes * 2 <= subgroup and max(h.rank, h.q_rank) // 32 > 4 * lanes:
        lanes *= 2
    groups, slots = size // lanes, size // subgroup
    most = (1, 1, 1) if limits.software else (12, 8, 6)
    key_rows = fitting(h.rank, -(-h.nope // 8 // lanes), most[0], groups)
    value_rows = fitting(h.value, -(-h.rank // 32 // lanes), most[1], groups)
    query_rows = fitting(h.nope + h.rot, -(-h.q_rank // 32 // lanes), most[2], groups)
    ahead = 1 if limits.software else ahead
    while True:
        found = Team(size, subgroup, slots, lanes, key_rows, value_rows, ahead, query_rows)
        if shared_bytes(h, found) <= limits.shared_bytes:
            return found
        if slots == 1:
            return None
        slots //= 2


def suits(h: Head, limits: Limits) -> bool:
    """Whether a head fits a workgroup and cache rows are whole vectors of 16 bytes."""
    return h.rot % 8 == 0 and h.nope % 8 == 0 and team(h, limits) is not None


def launch_as(ops: Mapping[str, Shaped], h: Head, heads: int, limits: Limits) -> Launch:
    """A workgroup per head. ValueError where `suits` is False."""
    t = team(h, limits)
    if t is None or not suits(h, limits):
        raise ValueError(f"latent attention of {h} does not fit a workgroup")
    more = (h.q_rank, t.query_rows) if h.q_rank else ()
    spec = (t.size, t.subgroup, h.rank, h.rot, h.nope, h.value, t.slots, t.lanes, t.key_rows,
            t.value_rows, t.ahead, ops["k"].rows, *more)  # fmt: skip
    return Launch(ops["w"].format_name, spec, (heads, 1, 1), t.subgroup)


def flat(w: Any) -> Floats:
    """All values of a weight in order."""
    return np.concatenate([piece.reshape(-1) for _, piece in row_chunks(w)])


def token(
    query: Floats, latent: Floats, gain: Floats, kb: Any, v_b: Floats, rope: Array, k: Array,
    yq: Array, ys: Array, pos: int, scale: float, eps: float,
) -> None:
    """From plain queries (heads, nope + n_rot), latent and key (rank + n_rot,), v_b (heads, value,
    rank): the cache's row k[pos], and the values (heads * value) in int8."""
    rank = v_b.shape[2]
    k[pos] = cache_rows(latent[None], gain, rope[pos : pos + 1], rank, eps)[0]
    q = absorb(query, whole(kb), rope[pos], rank)
    sums, _, total = attend(q, k[: pos + 1].astype(np.float32), rank, scale)
    joined = (sums / total[:, None]).astype(np.float32)
    out = [v_b[i] @ q8.values(*q8.quantize(x)) for i, x in enumerate(joined)]
    yq[:], ys[:] = q8.quantize(np.concatenate(out).astype(np.float32))


# (heads, head): tiny, an odd number of vectors; as GLM-4.7-Flash has them
SMALL, ODD = (3, Head(256, 32, 16, 32, 256)), (2, Head(96, 96, 24, 48, 160))
LARGE = 2, Head(512, 192, 64, 256, 768)
POSITIONS = (1, 2, 63, 64, 300, 512)
ROWS = 515  # of the cache


def case_of(i: int, fmt: str) -> tuple[int, Head, int]:
    """Heads and context of the case of format number i; large heads take a software device seconds
    to compile, so one format has them."""
    sizes = LARGE if fmt == "Q3_K" else ODD if FORMATS[fmt].elems == 32 and i % 2 else SMALL
    return (*sizes, POSITIONS[i % len(POSITIONS)])


def case_operands(
    rng: np.random.Generator, h: Head, heads: int, length: int, first: int
) -> dict[str, Any]:
    """All but weights in a format of their own: a begins with `first` values; poison behind the
    context and in the token's own row."""
    k: Any = rng.standard_normal((ROWS, h.rank + h.rot)).astype(np.float16)
    k[length - 1 :] = np.nan
    return {
        "a": rng.standard_normal((1, first + h.rank + h.rot)).astype(np.float32),
        "kb": random_matrix(rng, "F16", heads * h.rank, h.nope, h.nope**-0.5),
        "rope": case_rope(rng, ROWS, h.rot), "k": k, "step": step_words(1, length - 1),
        "yq": np.zeros(heads * h.value // 4, np.uint32),
        "ys": np.zeros((heads * h.value // 16, 2), np.float32),
    }  # fmt: skip


def params_of(h: Head) -> Params:
    """Params of sizes."""
    return {"rank": h.rank, "nope": h.nope, "n_rot": h.rot, "value": h.value,
            "scale": (h.nope + h.rot) ** -0.5, "eps": 1e-5}  # fmt: skip


def rows_up_to(k: Array, length: int) -> Array:
    """Mask of the cache's rows before position `length`, the token's own and those before it."""
    return np.broadcast_to(np.arange(len(k))[:, None] < length, k.shape)
