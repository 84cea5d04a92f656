"""mla_attention_coop: latent attention of one token by splits of a float16 cache, matrix cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from . import mla, mla_attention
from .kernel import Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .mla_attention import reference

SPLITS = 128  # about as many as large devices have units; a split has positions for all heads
LEAST = 64  # positions that are worth a workgroup
LIMIT = 2e-6  # queries and weights in float16
SUBGROUPS = 4  # for each tile of heads


def shared_bytes(tiles: int, positions: int, rank: int, rot: int, limits: Limits) -> int:
    """Shared memory of a workgroup, as in shaders/mla_attention_coop.glsl."""
    m, n, _ = limits.coopmat_shape
    heads = tiles * m
    rows = max(max(heads, positions) * ((rank + rot) // 8 + 1), m * (rank // 4 + 1))
    parts = max(1, SUBGROUPS // (positions // n))
    scores = max(
        parts * heads * (positions // 4 + 1), heads * (positions // 8 + 1) + heads * n // 4
    )
    return 16 * (rows + scores)


def sizes(heads: int, rank: int, rot: int, limits: Limits) -> tuple[int, int]:
    """Tiles of heads and positions of a workgroup; (0, 0) if the device's matrices or memory do
    not suit."""
    m, n, k = limits.coopmat_shape
    size, lanes = SUBGROUPS * limits.subgroup_size, SUBGROUPS * limits.subgroup_size // m
    if (rank + rot) % k or rank % n or (rank + rot) % 8 or not 0 < lanes <= limits.subgroup_size:
        return 0, 0
    for positions in (32, 16):
        whole = positions % n == positions % k == positions % (4 * lanes) == 0
        for tiles in (2, 1) if heads > m else (1,):
            fits = shared_bytes(tiles, positions, rank, rot, limits) <= limits.shared_bytes
            if whole and SUBGROUPS % (positions // n) == 0 and fits and tiles * size <= limits.most:
                return tiles, positions
    return 0, 0


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Splits along x, groups of heads along y."""
    heads, rank, rot = (int(params[name]) for name in ("heads", "rank", "n_rot"))
    tiles, positions = sizes(heads, rank, rot, limits)
    if not tiles:
        raise ValueError(f"latent attention of {rank} + {rot} values does not suit matrix cores")
    m, n, k = limits.coopmat_shape
    spec = (
        SUBGROUPS * tiles * limits.subgroup_size, limits.subgroup_size, rank, rot, m, n,
        int(params.get("least", mla.MIN_SPLIT)), k, positions, tiles,
    )  # fmt: skip
    grid = (int(params["splits"]), -(-heads // (tiles * m)), 1)
    return Launch("", spec, grid, limits.subgroup_size)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of mla_attention over float16 caches."""
    for case in mla_attention.cases(rng):
        k = case.operands["k"]
        if isinstance(k, np.ndarray) and k.dtype == np.float16:
            yield replace(case, limit=LIMIT)


def needs(limits: Limits) -> bool:
    """Matrix cores, and lanes that can exchange values."""
    return limits.coopmat and limits.subgroups


KERNEL = Kernel("mla_attention_coop", launch, reference, cases, needs=needs)
