"""Primitives of what comes before attention: q, k and v rotated, rows of the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..kernels import norm_matvec, norm_rope_kv, q8, qkv_rope_q8, rope_kv, rope_kv_halves
from ..kernels.kernel import Kernel
from ..kernels.reference import random_matrix
from .harness_chain import Chain, Link, Output, chain_of
from .primitives import Check, Limit, Primitive, formats_of, normal, weight
from .primitives_attention import (
    HALVES,
    LLAMA,
    MIXES,
    POSITIONS,
    QWEN,
    RING,
    Heads,
    Mix,
    in_cache,
)
from .primitives_products import EPS


def rope_operands(
    rng: np.random.Generator, h: Heads, mix: Mix, n: int, length: int, n_rot: int
) -> dict[str, Any]:
    """As `in_cache`, with a table of rotations."""
    angle = rng.uniform(0, 6.28, (length, n_rot // 2))
    table = np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32)
    return {**in_cache(rng, h, mix, n, length), "rope": table}


def store(kernel: Kernel, h: Heads, mix: Mix, n: int, rng: np.random.Generator) -> Chain:
    """Rotation of q and k, rows of k and v into the caches."""
    ops = rope_operands(rng, h, mix, n, POSITIONS, h.dim)
    rows = sum(int(ops[name][:n].nbytes) for name in ("k", "v", "rope"))
    traffic = rows + 2 * n * h.width * 4
    params: dict[str, int | float] = {
        "n_head": h.count, "n_head_kv": h.kv, "head_dim": h.dim, "n_rot": h.dim, **h.rows,
    }  # fmt: skip
    if kernel is not norm_rope_kv.KERNEL:
        return chain_of(ops, [Link(kernel, params, n)], "qkv", "k", "v",
                        traffic=traffic)  # fmt: skip
    ops |= {"bias": random_matrix(rng, "F32", 1, h.width), "y": np.zeros((n, h.width), np.float32),
            "g": random_matrix(rng, "F32", 1, 2 * h.dim)}  # fmt: skip
    params |= {"apart": h.dim // 2, "eps": EPS, "writes": 1, "q_group": h.dim, "k_group": h.dim,
               "v_group": 0}  # fmt: skip
    queries = np.zeros((n, h.width), bool)
    queries[:, : h.count * h.dim] = True
    return chain_of(ops, [Link(kernel, params, n)], Output("y", mask=queries), "k", "v",
                    traffic=traffic)  # fmt: skip


def project(fmt: str, h: Heads, cols: int, int8: bool, mix: Mix, rng: np.random.Generator) -> Chain:
    """Norm, products of q, k and v, rotation and cache rows of one token."""
    ops = rope_operands(rng, h, mix, 1, 40, h.dim)
    ops["w"] = weight(rng, fmt, h.width, cols)
    params: dict[str, int | float] = {"cols": cols, "rows": h.width, "y_off": 0, "eps": EPS}
    heads = {"n_head": h.count, "n_head_kv": h.kv, "head_dim": h.dim, "n_rot": h.dim}
    if int8:
        ops = q8.vector_operands(rng, cols) | {"y": normal(rng, 1, h.width)} | ops
        del ops["qkv"]
        queries = np.arange(h.width)[None] < h.count * h.dim
        return chain_of(ops, [Link(qkv_rope_q8.KERNEL, params | heads)],
                        Output("y", mask=queries), "k", "v")  # fmt: skip
    ops |= {"x": normal(rng, 1, cols), "g": random_matrix(rng, "F32", 1, cols)}
    first = Link(norm_matvec.KERNEL, params | {"y_stride": h.width}, 1, {"y": "qkv"})
    return chain_of(ops, [first, Link(rope_kv.KERNEL, heads)], "qkv", "k", "v")


def rope_checks(mixes: Sequence[Mix], room: int) -> Iterator[Check]:
    """All kernels: one token and several, types of caches."""
    for kernel in (rope_kv.KERNEL, rope_kv_halves.KERNEL, norm_rope_kv.KERNEL):
        for mix in mixes:
            for h, n in ((QWEN, 1), (RING, 11)):
                yield Check(f"{kernel.name} {h} S={n} {'/'.join(mix).lower()}", (kernel,),
                            partial(store, kernel, h, mix, n))  # fmt: skip


def qkv_checks(room: int) -> Iterator[Check]:
    """Every format."""
    for int8, first in ((False, norm_matvec.KERNEL), (True, qkv_rope_q8.KERNEL)):
        for i, fmt in enumerate(formats_of(first)):
            mix = (HALVES, MIXES[0])[i % 2]
            kernels = (first,) if int8 else (first, rope_kv.KERNEL)
            name = f"{'int8' if int8 else 'f32'} {fmt} {LLAMA} of 4096 {'/'.join(mix).lower()}"
            yield Check(name, kernels, partial(project, fmt, LLAMA, 4096, int8, mix))


ROTATED = Limit("max rel", 1e-3, "float16 caches round to 1 in 2,048")
STORED = Limit("NMSE", 1e-4, "values between two quants of a cache round either way: a step of "
               "q4_0 is an eighth of the largest value")  # fmt: skip
QKV = Limit("max rel", 1e-2, "norm, product, rotation and rounding in the cache one behind another")
PRIMITIVES = (
    Primitive("qkv", "from the layer's input to rotated heads and cache rows", QKV, qkv_checks),
    Primitive("rope", "rotation and cache rows", ROTATED,
              partial(rope_checks, (HALVES, MIXES[0]))),
    Primitive("rope-quantized", "rotation and quantized cache rows", STORED,
              partial(rope_checks, MIXES[1:])),
)  # fmt: skip
