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
from .reference import Floats, random_matrix, step_words


@dataclass(frozen=True)
class Head:
    """Sizes of a head; `q_rank` where its rows of q_b are multiplied in the kernel, else 0."""

    rank: int
    nope: int
    rot: int
    value: int
    q_rank: int = 0


@dataclass(frozen=True)
class Rows:
    """Lanes that share a row of a weight, and rows that such a group loads at once."""

    lanes: int = 1
    rows: int = 1


@dataclass(frozen=True)
class Team:
    """How a workgroup takes a head: specialization constants of mla_token.glsl. `ahead`: cache rows
    that a subgroup has on their way."""

    size: int
    subgroup: int
    slots: int
    ahead: int
    keys: Rows
    values: Rows
    queries: Rows


def shared_bytes(h: Head, size: int, subgroup: int, slots: int) -> int:
    """What mla_token.glsl declares as shared, its arrays in order."""
    teams, inputs = size // subgroup, max(h.rank, h.q_rank, h.nope)
    words = (h.rank + h.rot) * 3 // 2 + 2 * teams + slots * (h.rank + 32)
    words += inputs // 4 + inputs // 8 + h.value
    words += h.nope + h.rot + teams if h.q_rank else 0
    return 4 * words


def fitting(rows: int, units: int, most: int, size: int, subgroup: int, lanes: int = 8) -> Rows:
    """For `rows` rows of `units` loads each: the most lanes that all have as many, unless a lane
    has more than `most` then; and as many rows as make `most` loads of a lane, if there are."""
    lanes = min(lanes, subgroup)
    while lanes > 1 and units % lanes:
        lanes //= 2
    while lanes * 2 <= subgroup and -(-units // lanes) > most:
        lanes *= 2
    count, each = 1, -(-units // lanes)
    while 2 * count * each <= most and count * (size // lanes) < rows and count < 8:
        count *= 2
    return Rows(lanes, count)


def team(
    h: Head, limits: Limits, format_name: str, size: int = 512, ahead: int = 4
) -> Team | None:
    """The largest workgroup up to `size`, or None where a head does not fit. Where it has a compute
    unit of its own, as on an H200, each of 512 invocations has 128 registers; loads of a chunk of
    k_b take 9, those of other chunks 12, of a unit of four chunks 16."""
    subgroup, unit = limits.subgroup_size, q8.step_of(format_name)
    if subgroup < 4:  # four lanes quantize a group
        return None
    size = limits.workgroup(size, subgroup)
    most = (1, 1) if limits.software else (6, 8 if unit == 1 else 4)
    slots = size // subgroup
    while slots and shared_bytes(h, size, subgroup, slots) > limits.shared_bytes:
        slots //= 2
    if not slots:
        return None
    return Team(
        size, subgroup, slots, 1 if limits.software else ahead,
        fitting(h.rank, h.nope // 32, most[0], size, subgroup),
        fitting(h.value, h.rank // 32 // unit, most[1], size, subgroup),
        fitting(h.nope + h.rot, h.q_rank // 32 // unit, most[1], size, subgroup),
    )  # fmt: skip


def suits(h: Head, limits: Limits) -> bool:
    """Whether a head fits a workgroup and cache rows are whole vectors of 16 bytes."""
    return h.rot % 8 == 0 and h.nope % 32 == 0 and team(h, limits, "") is not None


def launch_as(ops: Mapping[str, Shaped], h: Head, heads: int, limits: Limits) -> Launch:
    """A workgroup per head. ValueError where `suits` is False."""
    t = team(h, limits, ops["w"].format_name)
    if t is None or not suits(h, limits):
        raise ValueError(f"latent attention of {h} does not fit a workgroup")
    more = (h.q_rank, t.queries.lanes, t.queries.rows) if h.q_rank else ()
    spec = (t.size, t.subgroup, h.rank, h.rot, h.nope, h.value, t.slots, ops["k"].rows, t.ahead,
            t.keys.lanes, t.keys.rows, t.values.lanes, t.values.rows, *more)  # fmt: skip
    return Launch(ops["w"].format_name, spec, (heads, 1, 1), t.subgroup)


def flat(w: Any) -> Floats:
    """All values of a weight in order."""
    return whole(w).reshape(-1)


def token(
    query: Floats, latent: Floats, gain: Floats, kb: Any, v_b: Floats, rope: Array, k: Array,
    yq: Array, ys: Array, pos: int, scale: float, eps: float,
) -> None:
    """From plain queries (heads, nope + n_rot), latent and key (rank + n_rot,), v_b (heads, value,
    rank): the cache's row k[pos], and the values (heads * value) in int8."""
    rank, nope = v_b.shape[2], kb.cols
    k[pos] = cache_rows(latent[None], gain, rope[pos : pos + 1], rank, eps)[0]
    scaled = query * np.float32(scale)
    rounded = q8.values(*q8.quantize(np.ascontiguousarray(scaled[:, :nope]).reshape(-1)))
    scaled[:, :nope] = rounded.reshape(-1, nope)
    q = absorb(scaled, whole(kb), rope[pos], rank)
    sums, _, total = attend(q, k[: pos + 1].astype(np.float32), rank, 1.0)
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
        "kb": random_matrix(rng, "Q8_0", heads * h.rank, h.nope, h.nope**-0.5),
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
