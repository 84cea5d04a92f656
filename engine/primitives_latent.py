"""Primitives of latent attention: preparation of queries, absorbed attention with projection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..kernels import (
    matvec_add,
    matvec_q8_add,
    mla,
    mla_absorb,
    mla_attention,
    mla_attention_coop,
    mla_compress_q8,
    mla_expand_q8,
    mla_prefill,
    mla_prefill_coop,
    mla_query,
    mla_values,
    norm_matvec,
    norm_matvec_q8,
    q8,
)
from ..kernels.kernel import Kernel
from ..kernels.limits import Limits
from ..kernels.reference import random_matrix, step_words
from .harness_chain import Chain, Link, Output, chain_of
from .primitives import Check, fitting_rows, formats_of, normal, weight
from .primitives_attention import POSITIONS
from .primitives_products import EPS, groups

SPLITS = 16
QUERY = {False: mla_query.KERNEL, True: norm_matvec_q8.KERNEL}  # then mla_absorb
VALUES = {False: mla_values.KERNEL, True: mla_expand_q8.KERNEL}
ABSORB: dict[bool, tuple[Kernel, ...]] = {False: (), True: (mla_absorb.KERNEL,)}
ADD = {False: matvec_add.KERNEL, True: matvec_q8_add.KERNEL}
FIRST = {False: norm_matvec.KERNEL, True: mla_compress_q8.KERNEL}


@dataclass(frozen=True)
class Heads:
    """Sizes of latent attention: width of the model, compressed query, latent, parts of a head."""

    width: int
    count: int
    q_rank: int
    rank: int = 512
    nope: int = 192
    rot: int = 64
    value: int = 256

    def __str__(self) -> str:
        return f"{self.count} heads {self.q_rank}/{self.rank}+{self.rot}"

    @property
    def sizes(self) -> dict[str, int | float]:
        """Push words."""
        return {"heads": self.count, "rank": self.rank, "nope": self.nope, "n_rot": self.rot}


LARGE, SMALL = Heads(6144, 64, 2048), Heads(2048, 16, 1536, nope=128, value=128)
FULL_SIZE = ("Q4_K", "Q8_0", "INT4_G64", "INT3_G64")


def query_operands(
    rng: np.random.Generator, fmt: str, h: Heads, length: int, half: bool
) -> dict[str, Any]:
    """What the query kernels read and write, the compressed query apart."""
    angle = rng.uniform(0, 6.28, (length, h.rot // 2))
    return {
        "qg": random_matrix(rng, "F32", 1, h.q_rank), "h": random_matrix(rng, "F32", 1, h.rank),
        "qw": weight(rng, fmt, h.count * (h.nope + h.rot), h.q_rank),
        "kb": weight(rng, "F16" if half else "F32", h.count * h.rank, h.nope),
        "rope": np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32),
        "q": np.zeros((1, h.count * (h.rank + h.rot)), np.float32),
        "k": normal(rng, length, h.rank + h.rot).astype(np.float16 if half else np.float32),
        "step": step_words(1, length - 1),
    }  # fmt: skip


def query_links(int8: bool, h: Heads) -> list[Link]:
    """From the compressed query to absorbed queries and a row of the cache."""
    params = {"cols": h.q_rank, "q_rank": h.q_rank, "eps": EPS, **h.sizes}
    if not int8:
        return [Link(QUERY[False], params, 1, {"g": "qg", "w": "qw"})]
    product = {"cols": h.q_rank, "rows": h.count * (h.nope + h.rot), "y_off": 0, "eps": EPS}
    places = {"w": "qw", "xq": "cq", "xs": "cs", "ssq": "cssq", "y": "plain"}
    absorb = {"first": h.q_rank, "eps": EPS, **h.sizes}
    return [Link(QUERY[True], product, 1, places),
            Link(mla_absorb.KERNEL, absorb, 1, {"x": "plain"})]  # fmt: skip


def compressed(rng: np.random.Generator, h: Heads) -> dict[str, Any]:
    """A compressed query in int8 with its sums of squares, and room for the plain ones."""
    v = q8.vector_operands(rng, h.q_rank)
    plain = np.zeros((1, h.count * (h.nope + h.rot)), np.float32)
    return {"cq": v["xq"], "cs": v["xs"], "cssq": v["ssq"], "plain": plain}


def preparation(int8: bool, fmt: str, h: Heads, half: bool, rng: np.random.Generator) -> Chain:
    """q_a and kv_a, then norms, q_b, absorption, rotation and the cache's row."""
    ops = query_operands(rng, fmt, h, 40, half)
    total = h.q_rank + h.rank + h.rot
    if int8:
        ops = q8.vector_operands(rng, h.width) | compressed(rng, h) | ops
    else:
        ops |= {"x": normal(rng, 1, h.width), "g": random_matrix(rng, "F32", 1, h.width)}
    ops |= {"w": weight(rng, fmt, total, h.width), "a": normal(rng, 1, total)}
    params: dict[str, int | float] = {"cols": h.width, "rows": total, "y_off": 0, "eps": EPS}
    params |= {"width": h.q_rank} if int8 else {"y_stride": total}
    query = {"g": "qg", "yq": "cq", "ys": "cs", "squares_of": "cssq"} if int8 else {}
    first = Link(FIRST[int8], params, 1, {"y": "a"} | query)
    return chain_of(ops, [first, *query_links(int8, h)], "q", "k")


def absorbed(int8: bool, fmt: str, h: Heads, length: int, half: bool, room: int,
             rng: np.random.Generator, core: Kernel = mla_attention.KERNEL) -> Chain:  # fmt: skip
    """Queries, attention over the latents, values of the heads, output projection."""
    ops, inner = query_operands(rng, fmt, h, length, half), h.count * h.value
    rows = fitting_rows(fmt, h.width, inner, room)
    ops |= {
        "a": normal(rng, 1, h.q_rank + h.rank + h.rot),
        "part": np.zeros((h.count, SPLITS, h.rank + 2), np.float32),
        "vw": weight(rng, fmt, h.count * h.value, h.rank), "ow": weight(rng, fmt, rows, inner),
        "out": normal(rng, 1, rows),
    }  # fmt: skip
    seen = {"heads": h.count, "rank": h.rank, "n_rot": h.rot, "splits": SPLITS,
            "scale": (h.nope + h.rot) ** -0.5, "most": mla.ALL}  # fmt: skip
    join = {"rows": h.value, "splits": SPLITS, "heads": h.count, "most": mla.ALL,
            "rank": h.rank}  # fmt: skip
    links = [*query_links(int8, h), Link(core, seen)]
    project: dict[str, int | float] = {"cols": inner, "rows": rows}
    if not int8:
        ops["y"] = normal(rng, 1, inner)
        project |= {"y_stride": rows, "y_off": 0}
        links.append(Link(VALUES[False], join, 1, {"w": "vw"}))
        links.append(Link(ADD[False], project, 1, {"x": "y", "w": "ow", "y": "out"}))
        return chain_of(ops, links, "out")
    ops |= groups(rows) | compressed(rng, h) | {
        "vq": np.zeros(inner // 4, np.uint32), "vs": np.zeros((inner // 16, 2), np.float32),
        "g": random_matrix(rng, "F32", 1, rows), "ssq": np.zeros(rows // 16, np.float32),
    }  # fmt: skip
    links.append(Link(VALUES[True], join, 1, {"w": "vw", "yq": "vq", "ys": "vs"}))
    links.append(Link(ADD[True], project, 1, {"xq": "vq", "xs": "vs", "w": "ow", "y": "out"}))
    return chain_of(ops, links, "out", Output("yq", scales="ys"))


def fits(h: Heads, half: bool, limits: Limits) -> bool:
    """Whether latents of this size fit a device's shared memory."""
    try:
        mla.tile(h.count, h.rank, h.rot, half, limits)
    except ValueError:
        return False
    return True


def fits_cores(h: Heads, limits: Limits) -> bool:
    """Whether latents of this size fit its matrix cores."""
    return mla_prefill_coop.suits(h.rank, h.rot, limits)


def fits_token_cores(h: Heads, limits: Limits) -> bool:
    """Whether single tokens of this size fit them."""
    return mla_attention_coop.sizes(h.count, h.rank, h.rot, limits) != (0, 0)


def prefill(kernel: Kernel, h: Heads, n: int, length: int, half: bool,
            rng: np.random.Generator) -> Chain:  # fmt: skip
    """n tokens at the end of the context."""
    ops = {
        "q": normal(rng, n, h.count * (h.rank + h.rot)),
        "k": normal(rng, length, h.rank + h.rot).astype(np.float16 if half else np.float32),
        "y": np.zeros((n, h.count * h.rank), np.float32), "step": step_words(n, length - n),
    }  # fmt: skip
    params = {"heads": h.count, "rank": h.rank, "n_rot": h.rot,
              "scale": (h.nope + h.rot) ** -0.5}  # fmt: skip
    return chain_of(ops, [Link(kernel, params, n)], "y")


def sized(fmt: str) -> Heads:
    """The largest heads in few formats, for the time that references take."""
    return LARGE if fmt in FULL_SIZE else SMALL


def kinds(second: dict[bool, Kernel]) -> Iterator[tuple[bool, int, str, Heads]]:
    """(int8, number, format, sizes) of every format that a kernel has in both forms."""
    for int8 in (False, True):
        for i, fmt in enumerate(formats_of(second[int8])):
            yield int8, i, fmt, sized(fmt)


def preparation_checks(room: int) -> Iterator[Check]:
    """Every format, both caches in turn."""
    for int8, i, fmt, h in kinds(FIRST):
        if fmt in formats_of(QUERY[int8]):
            half = i % 2 == 0
            name = f"{'int8' if int8 else 'f32'} {fmt} {h} cache {'f16' if half else 'f32'}"
            yield Check(name, (FIRST[int8], QUERY[int8], *ABSORB[int8]),
                        partial(preparation, int8, fmt, h, half), timed=h is LARGE)  # fmt: skip


def latent_kernels(int8: bool) -> tuple[Kernel, ...]:
    """Those of `absorbed`."""
    return (mla_attention.KERNEL, QUERY[int8], *ABSORB[int8], VALUES[int8], ADD[int8])


def latent_checks(room: int) -> Iterator[Check]:
    """Every format with 2,000 positions; other lengths; a few tokens at once."""
    for int8, i, fmt, h in kinds(QUERY):
        kernels = latent_kernels(int8)
        for length in (1, 33, POSITIONS) if fmt == "Q4_K" else (POSITIONS,):
            half = (i + length) % 2 == 0
            name = f"{'int8' if int8 else 'f32'} {fmt} {h} T={length}"
            yield Check(f"{name} cache {'f16' if half else 'f32'}", kernels,
                        partial(absorbed, int8, fmt, h, length, half, room), timed=h is LARGE,
                        suits=partial(fits, h, half))  # fmt: skip
            if int8 and fmt in ("Q4_K", "Q4_0"):  # 64 heads and 16
                kernel = mla_attention_coop.KERNEL
                make = partial(absorbed, True, fmt, h, length, True, room, core=kernel)
                yield Check(f"{name} on matrix cores", (kernel, *kernels[1:]), make,
                            timed=h is LARGE, suits=partial(fits_token_cores, h))  # fmt: skip
    for n, h in ((2, SMALL), (2, LARGE), (11, LARGE)):
        for half in (True, False):
            name = f"prefill {h} S={n} T={POSITIONS} cache {'f16' if half else 'f32'}"
            make = partial(prefill, mla_prefill.KERNEL, h, n, POSITIONS, half)
            yield Check(name, (mla_prefill.KERNEL,), make, suits=partial(fits, h, half))
        make = partial(prefill, mla_prefill_coop.KERNEL, h, n, POSITIONS, True)
        yield Check(f"prefill on matrix cores {h} S={n} T={POSITIONS}", (mla_prefill_coop.KERNEL,),
                    make, suits=partial(fits_cores, h))  # fmt: skip
