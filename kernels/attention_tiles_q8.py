"""attention_tiles_q8: decode attention, a tile of positions at a time, over float16, Q8_0 and Q4_0
caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from . import attention, attention_q8, cache_rows, q8
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits

MAX_SPLITS = attention_q8.MAX_SPLITS
TYPES = ("F16", "Q8_0", "Q4_0")  # of keys and of values
QUAD = 4  # positions that a lane takes at once
MOST_TILE = 2048  # over 16,384 positions a split of 16 is one tile, with what a reply adds
MOST_VALUES = 2048  # of the heads of a workgroup: registers
MOST_SUMS = 32  # of a lane of 512 over quantized values, whose 128 registers hold more beside them
MIN_SPLIT = 128  # shorter splits cost more to join than they save (docs/performance.md)
HALVES = ("F16", "F16")
SHAPES: tuple[attention.Shape, ...] = (  # of cases with quantized caches: all head sizes
    (40, 4, 2, 64, 1, 0), (200, 3, 3, 80, 2, 40), (90, 8, 2, 96, 2, 0), (300, 6, 3, 112, 2, 0),
    (700, 8, 2, 128, 4, 0), (150, 3, 1, 192, 2, 0), (170, 4, 2, 256, 2, 0), (2300, 4, 2, 64, 1, 0),
)  # fmt: skip
MANY: attention.Shape = (2300, 4, 2, 64, 32, 0)  # 18 splits used: more than are joined at once
MIXES = (
    ("Q8_0", "Q4_0"), ("Q8_0", "F16"), ("Q4_0", "F16"), ("F16", "Q8_0"), ("F16", "Q4_0"),
    ("Q4_0", "Q8_0"),
)  # fmt: skip


def takes(k: str, v: str) -> bool:
    """Whether there is a form for keys and values of these types."""
    return k in TYPES and v in TYPES


def lanes(pieces: int, subgroup: int) -> int:
    """Lanes that share a row of `pieces` vectors: a power of two."""
    n = 1
    while n < min(pieces, subgroup):
        n *= 2
    return n


def shared_by(dim: int, subgroup: int, k: str, v: str) -> tuple[int, int]:
    """Lanes that share a key and a value row; a lane loads at once as many values as
    shaders/attention_tiles_read.glsl says."""
    return (
        lanes(dim // (8 if k == "F16" else 16), subgroup),
        lanes(dim // (4 if v == "F16" else 8), subgroup),
    )


def shared_bytes(heads: int, dim: int, size: int, subgroup: int, tile: int, k: str) -> int:
    """Shared memory of one workgroup: scores of a tile or sums, states of the splits, values, the
    query in integers (40 bytes for 16 values)."""
    sums = max(heads * tile, size // subgroup * heads * dim)
    states = 3 * heads + heads * MAX_SPLITS + 1
    query = 1 if k == "F16" else heads * dim // 16
    return 4 * (sums + states + (1 if subgroup >= 16 else size)) + 40 * query


def sizes(heads: int, dim: int, limits: Limits, k: str = "F16", v: str = "F16") -> tuple[int, int]:
    """Workgroup and tile (positions) for so many heads of a workgroup; (0, 0) if none fits.

    512 invocations for several heads, 256 for one: measured on an H200 with float16.
    """
    _, by_values = shared_by(dim, limits.subgroup_size, k, v)
    crowded = v != "F16" and heads * dim > MOST_SUMS * by_values
    return tiling(heads, dim, limits, k, v, 512 if heads > 1 and not crowded else 256)


def tiling(heads: int, dim: int, limits: Limits, k: str, v: str, most: int) -> tuple[int, int]:
    """As `sizes`, with workgroups of at most `most` invocations."""
    subgroup = limits.subgroup_size
    by_keys, _ = shared_by(dim, subgroup, k, v)
    size = limits.workgroup(most, subgroup)
    while size >= subgroup:
        tile = QUAD * size // by_keys
        if shared_bytes(heads, dim, size, subgroup, tile, k) <= limits.shared_bytes:
            while tile < MOST_TILE and (
                shared_bytes(heads, dim, size, subgroup, 2 * tile, k) <= limits.shared_bytes
            ):
                tile *= 2
            return size, tile
        size //= 2
    return 0, 0


def suits(group: int, dim: int, limits: Limits, k: str = "F16", v: str = "F16") -> bool:
    """Whether heads of this kind and caches of these types fit: registers for a group's sums,
    shared memory for a tile."""
    if not takes(k, v) or dim % q8.GROUP:
        return False
    fits = all(sizes(n, dim, limits, k, v)[0] > 0 for n in (group, 1))
    return fits and group <= attention.MAX_GROUP and group * dim <= MOST_VALUES


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """(splits, groups of heads) workgroups. `heads`, the query heads of one: all that share a
    key/value head, so that keys and values are read once, or one where the context is short."""
    heads, dim, subgroup = int(params["heads"]), int(params["head_dim"]), limits.subgroup_size
    kinds = ops["k"].format_name, ops["v"].format_name
    size, tile = sizes(heads, dim, limits, *kinds)
    spec = (size, heads, dim, *shared_by(dim, subgroup, *kinds), subgroup, tile, MIN_SPLIT,
            int(params.get("ring", 0)), *map(cache_rows.TYPES.index, kinds))  # fmt: skip
    return Launch("", spec, (int(params["splits"]), int(params["n_head"]) // heads, 1), subgroup)


def reference(
    qkv: Array, k: Array, v: Array, part: Array, arrived: Array, yq: Array, ys: Array,
    step: Array, *, n_head: int, n_head_kv: int, head_dim: int, splits: int, scale: float,
    window: int, softcap: float, heads: int, ring: int = 0,
) -> None:
    """As attention_q8; arrived (n_head / heads,) zeros."""
    attention_q8.reference(
        qkv, k, v, part, arrived, yq, ys, step, n_head=n_head, n_head_kv=n_head_kv,
        head_dim=head_dim, splits=splits, scale=scale, window=window,
        softcap=softcap, ring=ring,
    )


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of `attention_q8` over float16 caches with all heads of a group and with one; others
    over quantized caches with either, since a pipeline of each takes seconds on software."""
    shapes = [(HALVES, SHAPES[-1]), (HALVES, MANY)]
    halves = [c for c in attention_q8.cases(rng) if c.name.startswith("F16/F16 ")]
    for case in (*halves, *attention_q8.adapted(attention.cases_of(rng, shapes))):
        group = _group(case)
        for heads in sorted({1, group if group * int(case.params["head_dim"]) <= 1024 else 1}):
            yield _with(case, heads)
    shapes = [(("Q8_0", "Q8_0"), shape) for shape in SHAPES]
    shapes += [(("Q4_0", "Q4_0"), shape) for shape in SHAPES[::2]]
    shapes += [(mix, SHAPES[(i + 1) % 2]) for i, mix in enumerate(MIXES)]
    quantized = attention_q8.adapted(attention.cases_of(rng, shapes))
    for i, case in enumerate(quantized):
        yield _with(case, _group(case) if i % 2 else 1)


def _group(case: Case) -> int:
    """Query heads of a key/value head, 1 where they are too many for a workgroup."""
    group = int(case.params["n_head"]) // int(case.params["n_head_kv"])
    return group if group <= attention.MAX_GROUP else 1


def _with(case: Case, heads: int) -> Case:
    """The case with so many heads a workgroup."""
    arrived = {"arrived": np.zeros(int(case.params["n_head"]), np.uint32)}
    return replace(
        case, name=f"{case.name} of {heads}", operands={**case.operands, **arrived},
        params={**case.params, "heads": heads},
    )  # fmt: skip


KERNEL = Kernel("attention_tiles_q8", launch, reference, cases, needs=q8.needs)
