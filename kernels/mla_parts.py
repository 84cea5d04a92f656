"""What mla_absorb_q8 and mla_attend_q8 share: a head in parts, and how parts fit workgroups.

mla_token has a workgroup per head, which a device with many compute units leaves most of them
without work. Here the columns without position of a head's query go to `parts` workgroups, its
values to `shares` of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.blocks import FORMATS
from .limits import Limits
from .mla_token_launch import LARGE, ODD, SMALL, Head, Rows, suits


@dataclass(frozen=True)
class Parts:
    """Workgroups of a head: for its query (and one more for the part with position), its values."""

    query: int = 1
    values: int = 1


WHOLE = Parts()


def parts_of(h: Head, heads: int, limits: Limits) -> Parts:
    """As many of each as compute units have one workgroup each, and at least one."""
    chunks, query, values = h.nope // 32, 1, 1
    for n in range(2, chunks + 1):
        if chunks % n == 0 and heads * (n + 1) <= limits.units:
            query = n
    while h.value % (64 * values) == 0 and heads * 2 * values <= limits.units:
        values *= 2
    return Parts(query, values)


def fits(h: Head, limits: Limits) -> bool:
    """Whether a head fits, in parts or whole. Its query is compressed to whole chunks."""
    return limits.subgroup_size >= 4 and h.q_rank > 0 and h.q_rank % 32 == 0 and suits(h, limits)


def spread(rows: int, units: int, size: int, subgroup: int) -> Rows:
    """Lanes of a row so that all invocations have units of one, and one row of a group at once."""
    lanes = 1
    while 2 * lanes <= subgroup and lanes < units and rows * lanes < size:
        lanes *= 2
    return Rows(lanes, 1)


def query_width(heads: int, rank: int, n_rot: int, parts: int) -> int:
    """Values of all heads' absorbed queries: `parts` summands, then the part with position."""
    return heads * (parts * rank + n_rot)


def any_head(i: int, fmt: str) -> tuple[int, Head]:
    """Heads of the case of format number i: an odd number of vectors where blocks are short; large
    ones, which software takes long to compile, in one format."""
    short = FORMATS[fmt].elems == 32 and not fmt.startswith("INT")
    return ODD if short and i % 2 else LARGE if fmt == "Q3_K" else SMALL
