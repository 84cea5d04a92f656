"""dsa_scores: the indexer's scores of all positions for each token of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .dsa import rotate, scores
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .mla import cache_build, case_rope
from .reference import step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """An invocation per position along x, tokens along y."""
    dim, size = ops["k"].cols, limits.workgroup(64)
    heads = min(int(params["heads"]), max(1, limits.shared_bytes // 2 // (8 * dim)))
    grid = (-(-int(params["positions"]) // size), rows, 1)
    return Launch(cache_build(ops), (size, dim, heads), grid)


def reference(
    q: Array, w: Array, k: Array, rope: Array, score: Array, step: Array, *,
    heads: int, w_stride: int, w_off: int, n_rot: int, apart: int, most: int, positions: int,
    scale: float,
) -> None:
    """score[i, : pos + i + 1] for tokens that see more than `most` positions; q (batch, heads *
    dim) not yet rotated, weights at w_off of each row of w."""
    n, pos, dim = int(step[words.N]), int(step[words.POS]), k.shape[1]
    table = w.reshape(-1)[: n * w_stride].reshape(n, w_stride)[:, w_off : w_off + heads]
    for i in range(n):
        length = pos + i + 1
        if length > most:
            turned = rotate(q[i].reshape(heads, dim), rope[pos + i], n_rot, apart)
            keys = k[:length].astype(np.float32)
            score[i, :length] = scores(turned, table[i] * np.float32(scale), keys)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Tokens with few positions and with many; more heads than fit at once."""
    for dim, heads, n_rot, apart, pos, most in ((64, 8, 32, 1, 9, 10), (128, 32, 64, 32, 90, 5)):
        for dtype in (np.float16, np.float32):
            n, positions = 3, pos + 8
            ops: dict[str, Any] = {
                "q": rng.standard_normal((n + 1, heads * dim)).astype(np.float32),
                "w": rng.standard_normal((n + 1, heads + 7)).astype(np.float32),
                "k": rng.standard_normal((positions, dim)).astype(dtype),
                "rope": case_rope(rng, positions, n_rot),
                "score": np.zeros((n + 1, positions), np.float32), "step": step_words(n, pos),
            }  # fmt: skip
            params = {
                "heads": heads, "w_stride": heads + 7, "w_off": 3, "n_rot": n_rot, "apart": apart,
                "most": most, "positions": positions, "scale": 0.1,
            }  # fmt: skip
            length = pos + 1 + np.arange(n + 1)[:, None]
            only = (np.arange(positions) < length) & (length > most)
            only[n:] = False
            yield Case(f"{heads} heads of {dim} pos={pos} {np.dtype(dtype).name}", ops, params,
                       rows=n + 1, only={"score": only})  # fmt: skip


KERNEL = Kernel("dsa_scores", launch, reference, cases)
