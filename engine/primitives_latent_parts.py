"""Latent attention of a token in two dispatches with several workgroups per head."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ..kernels import (
    matvec_q8_add,
    mla_absorb_q8,
    mla_attend_q8,
    mla_parts,
    mla_token_launch,
    norm_matvec_q8,
    q8,
)
from ..kernels.limits import Limits
from ..kernels.reference import random_matrix
from .harness_chain import Chain, Link, Output, chain_of
from .primitives import Check, fitting_rows, normal, weight
from .primitives_latent import Heads
from .primitives_products import EPS, groups

KERNELS = (mla_absorb_q8.KERNEL, mla_attend_q8.KERNEL)
PARTS = mla_parts.Parts(2, 4)  # of every head here but those that three divide


def parts_of(h: Heads) -> mla_parts.Parts:
    """Three where a head has 192 columns without position, as on a large device."""
    return mla_parts.Parts(3, 4) if h.nope % 96 == 0 else PARTS


def part_links(h: Heads) -> list[Link]:
    """From compressed queries to the heads' values in int8 and a row of the cache."""
    parts = parts_of(h)
    shared = {"heads": h.count, "rank": h.rank, "n_rot": h.rot, "parts": parts.query}
    first = {"nope": h.nope, "q_rank": h.q_rank, "eps": EPS}
    then = {"value": h.value, "shares": parts.values, "scale": (h.nope + h.rot) ** -0.5}
    return [
        Link(KERNELS[0], shared | first, 1, {"w": "qw", "q": "absorbed"}),
        Link(KERNELS[1], shared | then, 1,
             {"w": "vw", "q": "absorbed", "yq": "vq", "ys": "vs"}),
    ]  # fmt: skip


def part_operands(
    ops: dict[str, Any], fmt: str, other: str, h: Heads, rng: np.random.Generator
) -> dict[str, Any]:
    """Those of mla_token, v_b in `fmt` and q_b in `other`."""
    width = mla_parts.query_width(h.count, h.rank, h.rot, parts_of(h).query)
    return ops | {
        "h": random_matrix(rng, "F32", 1, h.q_rank + h.rank),
        "vw": weight(rng, fmt, h.count * h.value, h.rank),
        "qw": weight(rng, other, h.count * (h.nope + h.rot), h.q_rank),
        "absorbed": np.zeros((1, width), np.float32),
    }  # fmt: skip


def token_chain(ops: dict[str, Any], links: list[Link], length: int, *more: Output) -> Chain:
    """Compared are the token's row of the cache, with those before it, and the heads' values."""
    rows, k = mla_token_launch.rows_up_to(ops["k"], length), ops["k"]
    moved = sum(int(v.nbytes) for v in ops.values()) - int(k[length:].nbytes)
    return chain_of(ops, links, Output("k", mask=rows), Output("vq", scales="vs"), *more,
                    traffic=moved)  # fmt: skip


def into_stream(
    ops: dict[str, Any], links: list[Link], fmt: str, h: Heads, length: int, room: int,
    rng: np.random.Generator,
) -> Chain:
    """The links that make the heads' values, then the output projection."""
    inner = h.count * h.value
    rows = fitting_rows(fmt, h.width, inner, room)
    ops |= groups(rows) | {
        "ow": weight(rng, fmt, rows, inner), "out": normal(rng, 1, rows),
        "g": random_matrix(rng, "F32", 1, rows), "ssq": np.zeros(rows // 16, np.float32),
    }  # fmt: skip
    last = Link(matvec_q8_add.KERNEL, {"cols": inner, "rows": rows}, 1,
                {"xq": "vq", "xs": "vs", "w": "ow", "y": "out"})  # fmt: skip
    return token_chain(ops, [*links, last], length, Output("out"), Output("yq", scales="ys"))


def projected(make: Any, fmt: str, h: Heads, length: int, room: int,
              rng: np.random.Generator) -> Chain:  # fmt: skip
    """From compressed queries to the residual stream; `make`: operands of mla_token."""
    ops = part_operands(make(rng, True, fmt, h, length), fmt, fmt, h, rng)
    return into_stream(ops, part_links(h), fmt, h, length, room, rng)


def prepared(make: Any, fmt: str, h: Heads, length: int, rng: np.random.Generator) -> Chain:
    """From the layer's input to the heads' values."""
    ops, total = make(rng, True, fmt, h, length), h.q_rank + h.rank + h.rot
    ops = q8.vector_operands(rng, h.width) | part_operands(ops, fmt, "Q8_0", h, rng)
    ops["w"] = weight(rng, fmt, total, h.width)
    params: dict[str, int | float] = {"cols": h.width, "rows": total, "y_off": 0, "eps": EPS}
    first = Link(norm_matvec_q8.KERNEL, params, 1, {"y": "a"})
    return token_chain(ops, [first, *part_links(h)], length)


def suits(h: Heads, limits: Limits) -> bool:
    """Whether a head fits workgroups."""
    head = mla_token_launch.Head(h.rank, h.nope, h.rot, h.value, h.q_rank)
    return mla_parts.fits(head, limits)


def part_checks(
    make: Any, sizes: Iterator[tuple[str, Heads, int]], small: Heads, room: int
) -> Iterator[Check]:
    """With the output projection, for each (format, sizes, positions)."""
    for fmt, h, length in sizes:
        yield Check(f"mla_absorb_q8 {fmt} {h} T={length}", (*KERNELS, matvec_q8_add.KERNEL),
                    partial(projected, make, fmt, h, length, room),
                    timed=length > 1 and h is not small, suits=partial(suits, h))  # fmt: skip


def prepared_in_parts(make: Any, sizes: tuple[tuple[str, Heads, int], ...]) -> Iterator[Check]:
    """From the layer's input on."""
    for fmt, h, length in sizes:
        yield Check(f"mla_absorb_q8 {fmt} {h} T={length}", (norm_matvec_q8.KERNEL, *KERNELS),
                    partial(prepared, make, fmt, h, length), suits=partial(suits, h))  # fmt: skip
