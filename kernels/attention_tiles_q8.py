"""attention_tiles_q8: decode attention over float16 caches, a tile of positions at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from . import attention, attention_q8, q8
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits

MAX_SPLITS = attention_q8.MAX_SPLITS
QUAD = 4  # positions that a lane takes at once
MOST_TILE = 1024
MOST_VALUES = 2048  # of the heads of a workgroup: registers
MIN_SPLIT = 128  # shorter splits cost more to join than they save (docs/performance.md)


def lanes(pieces: int, subgroup: int) -> int:
    """Lanes that share a row of `pieces` vectors: a power of two."""
    n = 1
    while n < min(pieces, subgroup):
        n *= 2
    return n


def shared_bytes(heads: int, dim: int, size: int, subgroup: int, tile: int) -> int:
    """Shared memory of one workgroup: scores of a tile or sums, states of the splits, values."""
    sums = max(heads * tile, size // subgroup * heads * dim)
    states = 3 * heads + 2 * heads * MAX_SPLITS + 1
    return 4 * (sums + states + (1 if subgroup >= 16 else size))


def sizes(heads: int, dim: int, limits: Limits) -> tuple[int, int]:
    """Workgroup and tile (positions) for so many heads of a workgroup; (0, 0) if none fits.

    512 invocations for several heads, 256 for one: measured on an H200.
    """
    subgroup = limits.subgroup_size
    size = limits.workgroup(512 if heads > 1 else 256, subgroup)
    while size >= subgroup:
        tile = QUAD * size // lanes(dim // 8, subgroup)
        if shared_bytes(heads, dim, size, subgroup, tile) <= limits.shared_bytes:
            while tile < MOST_TILE and (
                shared_bytes(heads, dim, size, subgroup, 2 * tile) <= limits.shared_bytes
            ):
                tile *= 2
            return size, tile
        size //= 2
    return 0, 0


def suits(group: int, dim: int, limits: Limits) -> bool:
    """Whether heads of this kind fit: registers for a group's sums, shared memory for a tile."""
    fits = sizes(group, dim, limits)[0] > 0 and sizes(1, dim, limits)[0] > 0
    small = group <= attention.MAX_GROUP and group * dim <= MOST_VALUES
    return fits and small and dim % q8.GROUP == 0


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """(splits, groups of heads) workgroups. `heads`, the query heads of one: all that share a
    key/value head, so that keys and values are read once, or one where the context is short."""
    heads, dim = int(params["heads"]), int(params["head_dim"])
    subgroup, (size, tile) = limits.subgroup_size, sizes(heads, dim, limits)
    shared_by = lanes(dim // 8, subgroup), lanes(dim // 4, subgroup)
    spec = (size, heads, dim, *shared_by, subgroup, tile, MIN_SPLIT, int(params.get("ring", 0)))
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
    """Those of `attention_q8` over float16 caches, with all heads of a group and with one."""
    for case in attention_q8.cases(rng):
        k, v, n_head = case.operands["k"], case.operands["v"], int(case.params["n_head"])
        if not all(isinstance(c, np.ndarray) and c.dtype == np.float16 for c in (k, v)):
            continue
        arrived = {"arrived": np.zeros(n_head, np.uint32)}
        group = n_head // int(case.params["n_head_kv"])
        whole = group <= attention.MAX_GROUP and group * int(case.params["head_dim"]) <= 1024
        for heads in sorted({1, group if whole else 1}):
            yield replace(
                case, name=f"{case.name} of {heads}", operands={**case.operands, **arrived},
                params={**case.params, "heads": heads},
            )  # fmt: skip


KERNEL = Kernel("attention_tiles_q8", launch, reference, cases, needs=q8.needs)
