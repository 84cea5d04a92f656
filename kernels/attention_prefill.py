"""attention_prefill: causal attention of a batch of query tokens over the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from . import cache_rows
from .attention import capped
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .reference import step_words

# (query rows, positions) of a workgroup, the fastest first: heads of 128 on an H200 take
# 205, 231 and 236 µs with the first three, heads of 64 take 52 µs with the second
TILES = ((16, 16), (16, 32), (32, 32), (8, 16), (8, 8), (4, 8), (4, 4), (1, 4), (1, 1))


def shared_bytes(size: int, bq: int, bt: int, dim: int) -> int:
    """Shared memory of a workgroup: queries, one tile of keys or values, scores, row state."""
    parts = min(size // bq, bt)
    return 4 * (bq * dim + bt * (dim + 4) + bq * bt + 3 * bq + bq * parts)


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """(query tiles, query heads) workgroups; the fastest tiles that fit into shared memory."""
    dim, heads = int(params["head_dim"]), int(params["n_head"])
    size = max(limits.workgroup(128), dim // 4)
    tiles = TILES[1:] if dim <= 64 else TILES
    fit = [t for t in tiles if t[0] <= size and shared_bytes(size, *t, dim) <= limits.shared_bytes]
    bq, bt = fit[0]
    grid = (-(-rows // bq), heads, 1)
    k, v = ops["k"], ops["v"]
    spec = (size, bq, bt, dim, *cache_rows.constants(k, v, params))
    return Launch(cache_rows.build(k, v), spec, grid)


def visible(
    k: Array, v: Array, step: Array, heads: int, head_dim: int, window: int, ring: int
) -> tuple[Array, Array, Array]:
    """Keys and values (positions, heads, head_dim) that a batch sees, and which of the positions
    are hidden from each token (n, positions)."""
    n, pos = int(step[words.N]), int(step[words.POS])
    start, stop = max(pos + 1 - window, 0) if window else 0, pos + n
    own, at = np.arange(pos, stop)[:, None], np.arange(start, stop)[None, :]
    hidden = (at > own) | ((at + window <= own) if window else False)
    keys, values = (cache_rows.seen(c, start, stop, ring, heads, head_dim) for c in (k, v))
    return keys, values, hidden


def reference(
    qkv: Array, k: Array, v: Array, y: Array, step: Array, *,
    n_head: int, n_head_kv: int, head_dim: int, scale: float, window: int, softcap: float,
    ring: int = 0,
) -> None:
    """y[i] = softmax(q[i] k^T scale) v over positions 0 … pos + i, for the rows i < n.

    qkv (batch, (n_head + 2 n_head_kv) head_dim); k, v n_ctx or `ring` rows of n_head_kv
    head_dim values (cache_rows.py); y (batch, n_head head_dim). With a window w > 0 only the last w
    positions are seen.
    """
    n, group = int(step[words.N]), n_head // n_head_kv
    keys, values, hidden = visible(k, v, step, n_head_kv, head_dim, window, ring)
    q = qkv[:n, : n_head * head_dim].reshape(n, n_head, head_dim)
    for h in range(n_head):
        score = capped((q[:, h] * np.float32(scale)) @ keys[:, h // group].T, softcap)
        score = np.where(hidden, -np.inf, score).astype(np.float32)
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        out = weight @ values[:, h // group] / weight.sum(axis=1, keepdims=True)
        y[:n, h * head_dim : (h + 1) * head_dim] = out


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Cache types; empty and filled caches; ragged tiles; grouped heads; windows, soft bounds;
    rings as short as can be."""
    shapes = (
        (7, 0, 9, 3, 64, 0), (40, 33, 4, 2, 128, 0), (17, 5, 2, 1, 80, 0),
        (1, 99, 2, 2, 256, 0), (30, 20, 3, 1, 20, 8), (9, 3, 2, 1, 512, 4),
        (5, 0, 2, 2, 112, 0), (6, 2, 2, 1, 192, 0), (5, 1, 16, 1, 96, 0),
    )  # fmt: skip
    for mix, shape in cache_rows.mixed(shapes):
        n, pos, n_head, n_head_kv, dim, window = shape
        width = n_head_kv * dim
        qkv: Any = rng.standard_normal((n, (n_head + 2 * n_head_kv) * dim))
        ops = {
            "qkv": qkv.astype(np.float32),
            **cache_rows.random_caches(rng, mix, pos + n + 2, width),
            "y": np.zeros((n, n_head * dim), np.float32),
            "step": step_words(n, pos),
        }
        params = {
            "n_head": n_head, "n_head_kv": n_head_kv, "head_dim": dim,
            "scale": dim**-0.5, "window": window, "softcap": 2.0 if window else 0.0,
        }
        name = f"{'/'.join(mix)} n={n} pos={pos} heads={n_head}/{n_head_kv} dim={dim}"
        case = Case(f"{name} window={window}", ops, params, rows=n)
        yield case
        if window:
            yield cache_rows.ring_operands(rng, case, window - 1 + n)


KERNEL = Kernel("attention_prefill", launch, reference, cases)
