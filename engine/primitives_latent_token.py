"""Latent attention of a token in one dispatch, as plans for short contexts have it; all primitives
of latent attention."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ..kernels import (
    matvec_q8_add,
    mla_compress_q8,
    mla_token,
    mla_token_launch,
    mla_token_plain,
    norm_matvec_q8,
    q8,
)
from ..kernels.limits import Limits
from ..kernels.reference import random_matrix, step_words, vector
from .blocks import FORMATS, Matrix
from .harness_chain import Chain, Link
from .primitives import Check, Limit, Primitive, normal, weight
from .primitives_attention import ATTENTION
from .primitives_latent import (
    FULL_SIZE,
    LARGE,
    SMALL,
    Heads,
    absorbed,
    compressed,
    latent_checks,
    latent_kernels,
    preparation_checks,
)
from .primitives_latent import fits as latent_fits
from .primitives_latent_parts import into_stream, part_checks, prepared_in_parts, token_chain
from .primitives_products import EPS

FLASH = Heads(2048, 20, 768)  # GLM-4.7-Flash
KIMI = Heads(7168, 64, 1536, nope=128, value=128)  # Kimi-K2
LENGTHS = (1, 64, 256)  # up to the longest context for which plans take these kernels
ROWS = LENGTHS[-1]  # of the cache
TOKEN = {False: mla_token.KERNEL, True: mla_token_plain.KERNEL}


def gains(rng: np.random.Generator, h: Heads) -> Matrix:
    """Of the query's norm and the latent's. q_b has the deviation of v_b, with which it is one
    weight; the former make queries about normal all the same."""
    query = random_matrix(rng, "F32", 1, h.q_rank, (h.rank / h.q_rank) ** 0.5)
    both = np.concatenate([vector(query), vector(random_matrix(rng, "F32", 1, h.rank))])
    return Matrix.of(FORMATS["F32"], both.view(np.uint8), both.size)


def token_operands(
    rng: np.random.Generator, plain: bool, fmt: str, h: Heads, length: int
) -> dict[str, Any]:
    """What the kernel reads and writes, and where queries are plain, what they are made of: then
    q_b has another format than v_b. The cache has no numbers in the token's row and behind it."""
    angle, inner = rng.uniform(0, 6.28, (ROWS, h.rot // 2)), h.count * h.value
    k = normal(rng, ROWS, h.rank + h.rot).astype(np.float16)
    k[length - 1 :] = np.nan
    ops: dict[str, Any] = compressed(rng, h) if plain else {}
    ops |= {
        "a": normal(rng, 1, h.q_rank + h.rank + h.rot),
        "kb": weight(rng, "Q8_0", h.count * h.rank, h.nope),
        "rope": np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32),
        "k": k, "vq": np.zeros(inner // 4, np.uint32), "vs": np.zeros((inner // 16, 2), np.float32),
        "step": step_words(1, length - 1),
    }  # fmt: skip
    rows = h.count * (h.nope + h.rot)
    if plain:
        other = "Q4_K" if fmt == "Q8_0" else "Q8_0"
        return ops | {
            "h": random_matrix(rng, "F32", 1, h.rank), "vw": weight(rng, fmt, inner, h.rank),
            "qw": weight(rng, other, rows, h.q_rank),
        }  # fmt: skip
    both = weight(rng, fmt, inner + rows * h.q_rank // h.rank, h.rank)
    return ops | {"h": gains(rng, h), "vw": both}


def token_links(plain: bool, h: Heads) -> list[Link]:
    """From compressed queries to the heads' values in int8 and a row of the cache."""
    params = {**h.sizes, "value": h.value, "scale": (h.nope + h.rot) ** -0.5, "eps": EPS}
    places = {"w": "vw", "yq": "vq", "ys": "vs"}
    if not plain:
        return [Link(TOKEN[False], params | {"q_rank": h.q_rank}, 1, places)]
    product = {"cols": h.q_rank, "rows": h.count * (h.nope + h.rot), "y_off": 0, "eps": EPS}
    query = {"w": "qw", "xq": "cq", "xs": "cs", "ssq": "cssq", "y": "plain"}
    token = Link(TOKEN[True], params | {"first": h.q_rank}, 1, places | {"x": "plain"})
    return [Link(norm_matvec_q8.KERNEL, product, 1, query), token]


def prepared(plain: bool, fmt: str, h: Heads, length: int, rng: np.random.Generator) -> Chain:
    """From the layer's input to the heads' values."""
    ops, total = token_operands(rng, plain, fmt, h, length), h.q_rank + h.rank + h.rot
    ops = q8.vector_operands(rng, h.width) | ops | {"w": weight(rng, fmt, total, h.width)}
    params: dict[str, int | float] = {"cols": h.width, "rows": total, "y_off": 0, "eps": EPS}
    first = Link(norm_matvec_q8.KERNEL, params, 1, {"y": "a"})
    if plain:
        ops["qg"] = random_matrix(rng, "F32", 1, h.q_rank)
        places = {"y": "a", "g": "qg", "yq": "cq", "ys": "cs", "squares_of": "cssq"}
        first = Link(mla_compress_q8.KERNEL, params | {"width": h.q_rank}, 1, places)
    return token_chain(ops, [first, *token_links(plain, h)], length)


def projected(plain: bool, fmt: str, h: Heads, length: int, room: int,
              rng: np.random.Generator) -> Chain:  # fmt: skip
    """From compressed queries to the residual stream."""
    ops = token_operands(rng, plain, fmt, h, length)
    return into_stream(ops, token_links(plain, h), fmt, h, length, room, rng)


def fits(h: Heads, limits: Limits) -> bool:
    """Whether a head fits a workgroup."""
    head = mla_token_launch.Head(h.rank, h.nope, h.rot, h.value, h.q_rank)
    return mla_token_launch.suits(head, limits)


def by_stages(h: Heads, limits: Limits) -> bool:
    """Whether its latents fit the kernels that it replaces."""
    return latent_fits(h, True, limits)


def sizes_of(plain: bool) -> Iterator[tuple[str, Heads, int]]:
    """(format, sizes, positions): every format for `mla_token`; the sizes of models."""
    for length in LENGTHS:
        yield "Q3_K", FLASH, length
        yield "Q4_K", LARGE, length
    yield "Q4_K", KIMI, LENGTHS[-1]
    for i, fmt in enumerate(("Q6_K", "Q8_0", "INT4_G64") if plain else q8.FORMATS):
        if fmt not in ("Q3_K", "Q4_K"):
            yield fmt, LARGE if fmt in FULL_SIZE else SMALL, LENGTHS[i % 3]


def token_checks(room: int) -> Iterator[Check]:
    """With the output projection; what they replace in the same sizes."""
    for plain, kernel in TOKEN.items():
        kernels = (kernel, *([norm_matvec_q8.KERNEL] if plain else []), matvec_q8_add.KERNEL)
        for fmt, h, length in sizes_of(plain):
            yield Check(f"{kernel.name} {fmt} {h} T={length}", kernels,
                        partial(projected, plain, fmt, h, length, room),
                        timed=length > 1 and h is not SMALL, suits=partial(fits, h))  # fmt: skip
    for fmt, h in (("Q3_K", FLASH), ("Q4_K", LARGE)):
        make = partial(absorbed, True, fmt, h, LENGTHS[-1], True, room)
        yield Check(f"int8 {fmt} {h} T={LENGTHS[-1]} cache f16", latent_kernels(True), make,
                    timed=True, suits=partial(by_stages, h))  # fmt: skip


def prepared_checks(room: int) -> Iterator[Check]:
    """From the layer's input on."""
    for plain, kernel in TOKEN.items():
        first = (mla_compress_q8.KERNEL, norm_matvec_q8.KERNEL) if plain else (
            norm_matvec_q8.KERNEL,
        )
        for fmt, h, length in (("Q3_K", FLASH, 64), ("Q4_K", KIMI, 1)):
            yield Check(f"{kernel.name} {fmt} {h} T={length}", (*first, kernel),
                        partial(prepared, plain, fmt, h, length), timed=h is FLASH,
                        suits=partial(fits, h))  # fmt: skip


def all_preparation_checks(room: int) -> Iterator[Check]:
    """By stages, then in one dispatch, then in two."""
    yield from preparation_checks(room)
    yield from prepared_checks(room)
    yield from prepared_in_parts(token_operands, (("Q3_K", FLASH, 64), ("Q4_K", KIMI, 1)))


def all_latent_checks(room: int) -> Iterator[Check]:
    """By stages, then in one dispatch, then in two."""
    yield from latent_checks(room)
    yield from token_checks(room)
    yield from part_checks(token_operands, sizes_of(plain=False), SMALL, room)


CHAINED = Limit("max rel", 1e-2, "norms behind products, and cache rows in float16 (1 in 2,048); "
                "int8 activations may round either way")  # fmt: skip
PRIMITIVES = (
    Primitive("q-prep", "from the layer's input to rotated queries and cache rows", CHAINED,
              all_preparation_checks),
    Primitive("mla", "absorbed latent attention with its output projection", ATTENTION,
              all_latent_checks),
)  # fmt: skip
