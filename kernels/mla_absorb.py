"""mla_absorb: one token's absorbed queries from the plain ones, and its row of the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .mla import SHAPES, absorb, cache_build, cache_rows, sizes
from .mla_query import case_operands, whole
from .reference import vector


def by_subgroups(heads: int, rank: int, nope: int, limits: Limits) -> tuple[tuple[int, ...], int]:
    """Constants of mla_absorb_rows.glsl and workgroups: all units have some, with as many rows of
    a lane as that allows."""
    size, lanes = limits.workgroup(256, limits.subgroup_size), min(8, limits.subgroup_size)
    while lanes > nope // 8:
        lanes //= 2
    rows = min(2, lanes)
    while rows > 1 and heads * -(-rank // (size // lanes * rows)) < limits.units:
        rows //= 2
    parts = -(-rank // (size // lanes * rows))
    return (size, parts, lanes, rows, nope, limits.subgroup_size), heads * parts + 1


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """PARTS workgroups per head, and one for the cache."""
    heads, head = int(params["heads"]), int(params["nope"]) + int(params["n_rot"])
    kb = "KB16" if ops["kb"].format_name == "F16" else "KB32"
    build = f"{kb}.{cache_build(ops)}"
    if limits.subgroups:
        spec, groups = by_subgroups(heads, int(params["rank"]), int(params["nope"]), limits)
        return Launch(f"{build}.SG1", spec, (groups, 1, 1), limits.subgroup_size)
    size, lanes = limits.workgroup(256), 8
    while lanes * head < size:
        size //= 2
    share = max(1, min(limits.units // heads, 16))
    return Launch(f"{build}.SG0", (size, share, 1, head, lanes, 1), (heads * share + 1, 1, 1))


def reference(
    x: Array, a: Array, kb: Matrix, h: Matrix, rope: Array, q: Array, k: Array, step: Array, *,
    rank: int, nope: int, n_rot: int, heads: int, first: int, eps: float,
) -> None:
    """q[0] (heads, rank + n_rot) from queries x[0], k[pos] from a[0] = …, latent, key."""
    pos = int(step[words.POS])
    query = x[0, : heads * (nope + n_rot)].reshape(heads, nope + n_rot)
    q[0] = absorb(query, whole(kb), rope[pos], rank).reshape(-1)
    latent = a[:1, first : first + rank + n_rot]
    k[pos] = cache_rows(latent, vector(h), rope[pos : pos + 1], rank, eps)[0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """All shapes and types of the cache; queries of the same buffer and of another."""
    for i, shape in enumerate(SHAPES):
        for dtype in (np.float16, np.float32):
            plain = shape[0] * (shape[2] + shape[3])
            first = 24 if i % 2 else plain
            ops = case_operands(rng, shape, dtype, first)
            ops["x"] = ops["a"] if first == plain else (
                rng.standard_normal((1, plain)).astype(np.float32)
            )
            name = f"{'x'.join(map(str, shape))} {np.dtype(dtype).name}"
            limit = 1e-7 if dtype is np.float16 else 1e-10
            yield Case(name, ops, {"eps": 1e-5, "first": first, **sizes(shape)}, limit=limit)


KERNEL = Kernel("mla_absorb", launch, reference, cases)
