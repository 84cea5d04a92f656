"""mla_prefill: causal latent attention of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .mla import attend, cache_build, tile
from .reference import step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Tokens along x, groups of heads along y."""
    heads, rank, rot = (int(params[name]) for name in ("heads", "rank", "n_rot"))
    spec = tile(heads, rank, rot, ops["k"].format_name == "F16", limits)
    return Launch(cache_build(ops), spec, (rows, -(-heads // spec[1]), 1))


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
    for heads, rank, rot, n, pos in ((4, 64, 32, 1, 0), (20, 512, 64, 5, 30), (3, 96, 16, 40, 7)):
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
