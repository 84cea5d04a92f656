"""norm_rope_kv: from projections to attention: bias, norms of heads, rotation, cache write."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from . import cache_rows
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import Floats, random_matrix, rms_normalise, step_words, vector
from .rope_launch import LIMITS, rotate


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Workgroups of whole heads of q, then of k and v if they are to be written."""
    dim, heads, heads_kv = (int(params[n]) for n in ("head_dim", "n_head", "n_head_kv"))
    span = math.lcm(dim, 64)
    size = limits.workgroup(min(128, 1 << (span // 2 - 1).bit_length()), 32)
    k_type, v_type, ring = cache_rows.constants(ops["k"], ops["v"], params)
    kv_spans = -(-heads_kv * dim // span) if params["writes"] else 0
    grid = (-(-heads * dim // span) + 2 * kv_spans, rows, 1)
    build = cache_rows.build(ops["k"], ops["v"], "KV16")
    return Launch(build, (size, k_type, v_type, dim, span, ring), grid)


def normalised(x: Floats, group: int, gain: Floats | None, eps: float) -> Floats:
    """x (n, width) in groups of `group` values, each normalised and multiplied by gain (group,)."""
    if not group:
        return x
    parts = x.reshape(len(x), -1, group)
    ones = np.ones(group, np.float32)
    return rms_normalise(parts, ones if gain is None else gain, eps).reshape(x.shape)


def reference(
    qkv: Array, rope: Array, bias: Matrix, g: Matrix, y: Array, k: Array, v: Array, step: Array, *,
    n_head: int, n_head_kv: int, head_dim: int, n_rot: int, apart: int,
    q_group: int, k_group: int, v_group: int, eps: float, writes: int,
    ring: int = 0,
) -> None:
    """q of y, and k and v of cache rows pos …, from the rows [q; k; v] of qkv.

    Each row gets `bias`; groups of neighbouring values (a head, or all of them) are normalised
    where *_group is not 0, q and k times their gains in g (q_group + k_group,); q and k rotate.
    qkv, y (batch, (n_head + 2 n_head_kv) head_dim); rope and caches as in rope_kv. Without `writes`
    k and v are left alone.
    """
    n, pos = int(step[words.N]), int(step[words.POS])
    q_dim, kv_dim, gains = n_head * head_dim, n_head_kv * head_dim, vector(g)
    x = qkv[:n] + vector(bias)
    first = slice(0, n_rot, 2) if apart == 1 else slice(0, n_rot // 2)
    second = slice(1, n_rot, 2) if apart == 1 else slice(n_rot // 2, n_rot)
    table = rope[pos : pos + n]

    def turned(part: Floats, group: int, gain: Floats) -> Floats:
        heads = normalised(part, group, gain, eps).reshape(n, -1, head_dim)
        return rotate(heads, table, first, second).reshape(n, -1)

    y[:n, :q_dim] = turned(x[:, :q_dim], q_group, gains[:q_group])
    if not writes:
        return
    keys = turned(x[:, q_dim : q_dim + kv_dim], k_group, gains[q_group : q_group + k_group])
    cache_rows.put(k, pos, keys, ring)
    cache_rows.put(v, pos, normalised(x[:, q_dim + kv_dim :], v_group, None, eps), ring)


# n, pos, n_head, n_head_kv, head_dim, n_rot, neighbours rotate, groups of q, k and v
SHAPES = (
    (1, 0, 4, 2, 32, 32, False, (32, 32, 0)), (3, 2, 4, 1, 64, 64, False, (64, 64, 64)),
    (2, 5, 9, 3, 128, 64, True, (0, 0, 0)), (5, 1, 4, 4, 80, 80, False, (320, 320, 0)),
    (2, 0, 3, 3, 112, 96, False, (112, 112, 0)), (1, 7, 2, 1, 512, 512, False, (512, 512, 512)),
    (1, 3, 3, 1, 96, 48, True, (288, 96, 0)), (2, 4, 2, 1, 256, 256, False, (256, 256, 256)),
)  # fmt: skip


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Cache types; biases; norms of heads, of all values and of v; whole and partial rotation;
    rings."""
    for shape in SHAPES:
        for mix in (("F16", "F16"), ("F32", "F32"), ("Q8_0", "Q4_0")):
            yield _case(rng, *shape, mix)
        if shape[0] > 1:
            case = _case(rng, *shape, ("Q4_0", "F16"))
            yield cache_rows.ring_operands(rng, case, max(shape[0], sum(shape[:2]) - 1))
    yield _case(rng, *SHAPES[1], ("F16", "F16"), writes=0)


def _case(
    rng: np.random.Generator, n: int, pos: int, n_head: int, n_head_kv: int, dim: int, n_rot: int,
    neighbours: bool, groups: tuple[int, int, int], mix: tuple[str, str], writes: int = 1,
) -> Case:  # fmt: skip
    rows, width, total = pos + n + 2, n_head_kv * dim, (n_head + 2 * n_head_kv) * dim
    angle = rng.uniform(0, 6.28, (rows, n_rot // 2))
    ops: dict[str, Any] = {
        "qkv": rng.standard_normal((n, total)).astype(np.float32),
        "rope": np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32),
        "bias": random_matrix(rng, "F32", 1, total),
        "g": random_matrix(rng, "F32", 1, max(groups[0] + groups[1], 1)),
        "y": np.zeros((n, total), np.float32),
        **cache_rows.random_caches(rng, mix, rows, width),
        "step": step_words(n, pos),
    }  # fmt: skip
    params = {
        "n_head": n_head, "n_head_kv": n_head_kv, "head_dim": dim, "n_rot": n_rot,
        "apart": 1 if neighbours else n_rot // 2, "eps": 1e-5, "writes": writes,
        **dict(zip(("q_group", "k_group", "v_group"), groups, strict=True)),
    }  # fmt: skip
    name = f"{'/'.join(mix)} n={n} heads={n_head}/{n_head_kv} dim={dim} rot={n_rot} norms={groups}"
    queries = np.zeros((n, total), bool)
    queries[:, : n_head * dim] = True
    limit = max(LIMITS[kind] for kind in mix)
    return Case(name, ops, params, rows=n, limit=limit, only={"y": queries})


KERNEL = Kernel("norm_rope_kv", launch, reference, cases)
