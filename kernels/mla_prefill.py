"""mla_prefill: causal latent attention of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .mla import attend, cache_build
from .reference import step_words


def tiling(heads: int, rank: int, rot: int, halves: bool, rows: int, limits: Limits) -> (
    tuple[int, int, int]
):
    """Workgroup, rows of (token, head) and positions of a tile, as in shaders/mla_prefill.comp:
    as many rows as still occupy the device."""
    words = (rank + rot) // (2 if halves else 1)
    size = limits.workgroup(256)
    group = next((g for g in (16, 8) if rows * heads >= g * limits.units), 4)
    for positions in (16, 8, 4, 2):
        shared = positions * (words + 4) + group * (positions + 3) + 4 * size
        if group * positions <= 4 * size and 4 * shared <= limits.shared_bytes:
            return size, group, positions
    raise ValueError(f"latent attention of {rank + rot} values does not fit {limits.shared_bytes} "
                     "bytes")  # fmt: skip


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Rows of (token, head) along x."""
    heads, rank, rot = (int(params[name]) for name in ("heads", "rank", "n_rot"))
    halves = ops["k"].format_name == "F16"
    size, group, positions = tiling(heads, rank, rot, halves, rows, limits)
    spec = (size, group, rank, rot, positions)
    return Launch(cache_build(ops), spec, (-(-rows * heads // group), 1, 1))


def reference(
    q: Array, k: Array, y: Array, step: Array, *, heads: int, rank: int, n_rot: int, scale: float
) -> None:
    """y[i] (heads, rank) from q[i] (heads, rank + n_rot) and the cache rows 0 … pos + i."""
    n, pos = int(step[words.N]), int(step[words.POS])
    rows = k[: pos + n].astype(np.float32)
    for i in range(n):
        queries = q[i].reshape(heads, rank + n_rot)
        sums, _, total = attend(queries, rows[: pos + i + 1], rank, scale)
        y[i] = (sums / total[:, None]).reshape(-1)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """From the start and in the middle; a batch smaller than the launch; both types of cache."""
    for heads, rank, rot, n, pos in ((4, 64, 32, 1, 0), (20, 512, 64, 5, 30), (3, 96, 16, 140, 7)):
        for dtype in (np.float16, np.float32):
            ops: dict[str, Any] = {
                "q": rng.standard_normal((n + 1, heads * (rank + rot))).astype(np.float32),
                "k": rng.standard_normal((pos + n + 2, rank + rot)).astype(dtype),
                "y": np.zeros((n + 1, heads * rank), np.float32), "step": step_words(n, pos),
            }  # fmt: skip
            params = {"heads": heads, "rank": rank, "n_rot": rot, "scale": 0.07}
            only = {"y": np.arange(n + 1)[:, None].repeat(heads * rank, 1) < n}
            yield Case(f"{heads} heads {rank}+{rot} n={n} pos={pos} {np.dtype(dtype).name}", ops,
                       params, rows=n + 1, only=only)  # fmt: skip


KERNEL = Kernel("mla_prefill", launch, reference, cases)
