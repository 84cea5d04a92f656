"""attention: one query token against the cache, split over the context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from . import cache_rows
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .reference import step_words

NEVER = np.float32(-1e30)
MAX_GROUP = 8  # query heads whose sums a lane can keep in registers
MIN_SPLIT = 32  # positions that are worth a workgroup; as in the shader


def lanes_and_unroll(dim: int, group: int, subgroup: int) -> tuple[int, int, int]:
    """(lanes per position, subgroup size, positions of a lane in flight) of the subgroup form.

    Fewer positions where a lane's registers already hold many heads or vectors of a position.
    """
    lanes = 1
    while lanes < min(-(-dim // 8), subgroup):
        lanes *= 2
    return lanes, subgroup, 1 if lanes * 8 < dim else 4 if group <= 4 else 2


def capped(scores: Array, cap: float) -> Array:
    """cap tanh(scores / cap), or the scores where cap is 0 (arXiv:2408.00118)."""
    return np.float32(cap) * np.tanh(scores / np.float32(cap)) if cap else scores


def sets(group: int, dim: int, subgroup: int, fits: Callable[[int], bool]) -> int:
    """Query heads of a workgroup: all that share a key/value head, or an equal part of them whose
    sums a lane's registers and a workgroup's shared memory can hold; 0 if not even one."""
    vectors = -(-dim // 8 // max(subgroup, 1)) if subgroup else 1
    most = max(1, MAX_GROUP // max(vectors, 1))
    parts = [n for n in range(1, group + 1) if group % n == 0 and n <= most and fits(n)]
    return max(parts, default=0)


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """(splits, sets of heads) workgroups: the subgroup form where heads and device allow it."""
    n_head, n_head_kv = int(params["n_head"]), int(params["n_head_kv"])
    group, dim, splits = n_head // n_head_kv, int(params["head_dim"]), int(params["splits"])
    k, v = ops["k"], ops["v"]
    build, caches = cache_rows.build(k, v), cache_rows.constants(k, v, params)
    subgroup, size = limits.subgroup_size, limits.workgroup(128)
    if limits.subgroups and dim % 8 == 0:
        heads = sets(group, dim, subgroup, lambda n: (
            size // subgroup * n * (dim + 3) * 4 + n * 4 <= limits.shared_bytes
        ))  # fmt: skip
        if heads:
            spec = (size, heads, dim, *lanes_and_unroll(dim, heads, subgroup), *caches)
            return Launch(f"{build}.SG1", spec, (splits, n_head // heads, 1), subgroup)
    heads = sets(group, dim, 0, lambda n: n * (dim + 2 * 32 + 1) * 4 <= limits.shared_bytes) or 1
    while size > 32 and heads * (dim + 2 * size + 1) * 4 > limits.shared_bytes:
        size //= 2
    spec = (size, heads, dim, 1, 1, 1, *caches)  # lanes have no meaning here
    return Launch(f"{build}.SG0", spec, (splits, n_head // heads, 1))


def reference(
    qkv: Array, k: Array, v: Array, part: Array, step: Array, *,
    n_head: int, n_head_kv: int, head_dim: int, splits: int, scale: float, window: int,
    softcap: float, ring: int = 0,
) -> None:
    """part[h, s] = (sum of exp(score - max) v, max, sum of exp) over split s of the context.

    qkv (batch, (n_head + 2 n_head_kv) head_dim), row 0; k, v n_ctx or `ring` rows of n_head_kv
    head_dim values (cache_rows.py); part (n_head, splits, head_dim + 2). Position pos sees itself
    and, with a window w > 0, the w - 1 positions before it. Empty splits have max -1e30, sum 0 and
    no values.
    """
    length = int(step[words.POS]) + 1
    start = max(length - window, 0) if window else 0
    per = max(-(-(length - start) // splits), MIN_SPLIT)
    group = n_head // n_head_kv
    q = qkv[0, : n_head * head_dim].reshape(n_head, head_dim) * np.float32(scale)
    part[..., head_dim], part[..., head_dim + 1] = NEVER, 0.0
    for s in range(splits):
        t0 = start + s * per
        t1 = min(t0 + per, length)
        if t0 >= t1:
            continue
        keys = cache_rows.seen(k, t0, t1, ring, n_head_kv, head_dim)
        values = cache_rows.seen(v, t0, t1, ring, n_head_kv, head_dim)
        for h in range(n_head):
            score = capped(keys[:, h // group] @ q[h], softcap)
            weight = np.exp(score - score.max())
            part[h, s, :head_dim] = weight @ values[:, h // group]
            part[h, s, head_dim:] = score.max(), weight.sum()


Shape = tuple[int, int, int, int, int, int]  # pos, n_head, n_head_kv, dim, splits, window


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Cache types, short and split contexts, grouped heads, head sizes, windows, soft bounds,
    rings as short as can be."""
    shapes: tuple[Shape, ...] = (
        (0, 9, 3, 64, 4, 0), (200, 9, 3, 64, 4, 0), (700, 8, 2, 128, 8, 0),
        (63, 2, 2, 80, 2, 0), (500, 4, 1, 256, 4, 100), (150, 6, 1, 20, 3, 8),
        (90, 16, 1, 96, 2, 0), (40, 8, 1, 512, 2, 30), (77, 4, 2, 112, 2, 0), (33, 3, 1, 192, 1, 0),
    )  # fmt: skip
    return cases_of(rng, cache_rows.mixed(shapes))


def cases_of(
    rng: np.random.Generator, shapes: Iterable[tuple[tuple[str, str], Shape]]
) -> Iterator[Case]:
    """Cases of these types of keys and values and shapes; with a window also as rings."""
    for mix, shape in shapes:
        pos, n_head, n_head_kv, dim, splits, window = shape
        width = n_head_kv * dim
        qkv: Any = rng.standard_normal((1, (n_head + 2 * n_head_kv) * dim))
        rows = pos + 3
        part: Any = np.zeros((n_head, splits, dim + 2), np.float32)
        ops = {
            "qkv": qkv.astype(np.float32),
            **cache_rows.random_caches(rng, mix, rows, width),
            "part": part,
            "step": step_words(1, pos),
        }
        params = {
            "n_head": n_head, "n_head_kv": n_head_kv, "head_dim": dim, "splits": splits,
            "scale": dim**-0.5, "window": window, "softcap": 2.0 if window else 0.0,
        }
        filled = np.ones(part.shape, bool)  # empty splits leave their values unwritten
        length = pos + 1 - (max(pos + 1 - window, 0) if window else 0)
        used = -(-length // max(-(-length // splits), MIN_SPLIT))
        filled[:, used:, :dim] = False
        name = f"{'/'.join(mix)} pos={pos} heads={n_head}/{n_head_kv} dim={dim}"
        case = Case(f"{name} splits={splits} window={window}", ops, params, only={"part": filled})
        yield case
        if window:
            yield cache_rows.ring_operands(rng, case, window)


KERNEL = Kernel("attention", launch, reference, cases)
