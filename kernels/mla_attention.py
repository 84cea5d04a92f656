"""mla_attention: latent attention of one token, by splits of the context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .mla import ALL, MIN_SPLIT, attend, cache_build, split_length, tile
from .reference import step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Splits along x, groups of heads along y."""
    heads, rank, rot = (int(params[name]) for name in ("heads", "rank", "n_rot"))
    spec = tile(heads, rank, rot, ops["k"].format_name == "F16", limits)
    spec = (*spec, int(params.get("least", MIN_SPLIT)))
    return Launch(cache_build(ops), spec, (int(params["splits"]), -(-heads // spec[1]), 1))


def reference(
    q: Array, k: Array, part: Array, step: Array, *,
    heads: int, rank: int, n_rot: int, splits: int, scale: float, most: int,
    least: int = MIN_SPLIT,
) -> None:
    """part (heads, splits, rank + 2) from q[0] (heads, rank + n_rot) and the rows up to pos."""
    run(q, k[: int(step[words.POS]) + 1], part, heads, rank, n_rot, splits, scale, least)


def run(
    q: Array, seen: Array, part: Array, heads: int, rank: int, n_rot: int, splits: int,
    scale: float, least: int = MIN_SPLIT,
) -> None:
    """The same from the rows that the token sees."""
    length, queries = len(seen), q[0].reshape(heads, rank + n_rot)
    per = split_length(length, splits, least)
    for s in range(-(-length // per)):
        rows = seen[s * per : (s + 1) * per].astype(np.float32)
        part[:, s, :rank], part[:, s, rank], part[:, s, rank + 1] = attend(
            queries, rows, rank, scale
        )


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One position, a few, several splits; both types of the cache; the last splits unused."""
    shapes = ((4, 64, 32, 0, 4), (20, 512, 64, 33, 2), (3, 96, 16, 130, 8), (16, 512, 64, 70, 3))
    for heads, rank, rot, pos, splits in shapes:
        for dtype in (np.float16, np.float32):
            length = pos + 1
            used = -(-length // split_length(length, splits))
            ops: dict[str, Any] = {
                "q": rng.standard_normal((1, heads * (rank + rot))).astype(np.float32),
                "k": rng.standard_normal((length + 3, rank + rot)).astype(dtype),
                "part": np.zeros((heads, splits, rank + 2), np.float32),
                "step": step_words(1, pos),
            }  # fmt: skip
            written = np.zeros((heads, splits, rank + 2), bool)
            written[:, :used] = True
            params = {"heads": heads, "rank": rank, "n_rot": rot, "splits": splits, "scale": 0.07,
                      "most": ALL}
            yield Case(f"{heads} heads {rank}+{rot} pos={pos} {np.dtype(dtype).name}", ops, params,
                       only={"part": written})  # fmt: skip


KERNEL = Kernel("mla_attention", launch, reference, cases)
