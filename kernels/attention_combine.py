"""attention_combine: the splits of a decode attention joined into one output row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .reference import step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per query head."""
    size = limits.workgroup(min(128, max(32, int(params["head_dim"]))))
    return Launch("", (size,), (int(params["n_head"]), 1, 1))


def reference(
    part: Array, y: Array, step: Array, *, n_head: int, head_dim: int, splits: int
) -> None:
    """y[0, h head_dim :] = sum_s e^(m_s - m) part[h, s] / sum_s e^(m_s - m) l_s, m = max m_s.

    part (n_head, splits, head_dim + 2) as `attention` writes it; y (batch, n_head head_dim).
    """
    best, total = part[..., head_dim], part[..., head_dim + 1]
    weight = np.where(total > 0, np.exp(best - best.max(axis=1, keepdims=True)), 0)
    values = np.where((total > 0)[..., None], part[..., :head_dim], 0)
    out = np.einsum("hs,hsd->hd", weight, values) / (weight * total).sum(axis=1)[:, None]
    y[0, : n_head * head_dim] = out.reshape(-1)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One split, several, and empty splits whose values are NaN."""
    for n_head, dim, splits, used in ((9, 64, 1, 1), (4, 128, 8, 8), (3, 80, 4, 2), (2, 20, 16, 1)):
        part: Any = rng.standard_normal((n_head, splits, dim + 2)).astype(np.float32)
        part[..., dim + 1] = rng.uniform(1, 40, (n_head, splits))
        part[:, used:, :dim] = np.nan
        part[:, used:, dim], part[:, used:, dim + 1] = -1e30, 0
        ops = {"part": part, "y": np.zeros((1, n_head * dim), np.float32), "step": step_words(1, 4)}
        params = {"n_head": n_head, "head_dim": dim, "splits": splits}
        yield Case(f"heads={n_head} dim={dim} splits={used} of {splits}", ops, params)


KERNEL = Kernel("attention_combine", launch, reference, cases)
