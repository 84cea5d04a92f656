"""Launch, reference and cases of the two rope_kv kernels, which differ in how values pair up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from . import cache_rows
from .kernel import Array, Case, Launch, Params, Shaped
from .limits import Limits
from .reference import Floats, step_words

# a value between two quants may round either way
LIMITS = {"F16": 1e-7, "F32": 1e-12, "Q8_0": 1e-5, "Q4_0": 1e-4}


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Workgroups for the pairs of q, of k and of v of a row of qkv; rows of the batch along y."""
    k, v, size = ops["k"], ops["v"], limits.workgroup(64)
    pairs = [int(params[n]) * int(params["head_dim"]) // 2 for n in ("n_head", "n_head_kv")]
    q_groups, kv_groups = (-(-n // size) for n in pairs)
    spec = (size, *cache_rows.constants(k, v, params))
    return Launch(cache_rows.build(k, v, "KV16"), spec, (q_groups + 2 * kv_groups, rows, 1))


def rotate(x: Floats, table: Floats, first: Any, second: Any) -> Floats:
    """x (n, heads, dim) rotated by table (n, n_rot / 2, 2): pairs are x[..., first], [second]."""
    cos, sin = table[:, None, :, 0], table[:, None, :, 1]
    out = x.copy()
    a, b = x[..., first], x[..., second]
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out


def rope_and_store(
    qkv: Array, rope: Array, k: Array, v: Array, step: Array,
    shape: tuple[int, int, int], first: Any, second: Any, ring: int,
) -> None:
    """Rotate q of qkv in place, write k (rotated) and v of positions pos … pos + n - 1."""
    n, pos = int(step[words.N]), int(step[words.POS])
    n_head, n_head_kv, dim = shape
    rows = qkv[:n].reshape(n, n_head + 2 * n_head_kv, dim)
    table = rope[pos : pos + n]
    rows[:, :n_head] = rotate(rows[:, :n_head], table, first, second)
    keys = rotate(rows[:, n_head : n_head + n_head_kv], table, first, second)
    cache_rows.put(k, pos, keys.reshape(n, -1), ring)
    cache_rows.put(v, pos, rows[:, n_head + n_head_kv :].reshape(n, -1), ring)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Cache types; whole and partial rotation; one token and a batch in mid-context; rings."""
    shapes = (
        (1, 0, 9, 3, 64, 64), (5, 7, 4, 2, 128, 96), (3, 2, 3, 3, 20, 20), (2, 1, 4, 1, 80, 80),
    )
    for mix, shape in cache_rows.mixed(shapes):
        n, pos, n_head, n_head_kv, dim, n_rot = shape
        rows = pos + n + 2
        angle = rng.uniform(0, 6.28, (rows, n_rot // 2))
        width = n_head_kv * dim
        qkv: Any = rng.standard_normal((n, (n_head + 2 * n_head_kv) * dim))
        ops = {
            "qkv": qkv.astype(np.float32),
            "rope": np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32),
            **cache_rows.random_caches(rng, mix, rows, width),
            "step": step_words(n, pos),
        }
        params = {"n_head": n_head, "n_head_kv": n_head_kv, "head_dim": dim, "n_rot": n_rot}
        limit = max(LIMITS[kind] for kind in mix)
        name = f"{'/'.join(mix)} n={n} pos={pos} heads={n_head}/{n_head_kv} dim={dim}"
        case = Case(f"{name} rot={n_rot}", ops, params, rows=n, limit=limit)
        yield case
        if n > 1:
            yield cache_rows.ring_operands(rng, case, pos + n - 1)
