"""attention_prefill_coop: causal attention of a batch over the cache, on matrix cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import cache_rows
from .attention_prefill import reference
from .kernel import Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .reference import step_words

MAX_DIM = 256  # queries and results of larger heads do not fit the registers
TILE = 32  # positions at a time
LIMIT = 2e-6  # f16 queries and weights


def needs(limits: Limits) -> bool:
    """Matrix cores, and lanes that can exchange values."""
    return limits.coopmat and limits.subgroups


def suits(head_dim: int, limits: Limits) -> bool:
    """Whether heads of this size can be cut into the device's matrices and fit its memory."""
    _, n, k = limits.coopmat_shape
    whole = head_dim % 16 == 0 and head_dim % n == 0 and head_dim % k == 0
    fits = shared_bytes(1, head_dim, limits) <= limits.shared_bytes
    return whole and fits and head_dim <= MAX_DIM


def shared_bytes(subgroups: int, head_dim: int, limits: Limits) -> int:
    """Shared memory of a workgroup, as in shaders/attention_prefill_coop.glsl."""
    m, n, _ = limits.coopmat_shape
    own = max(m * (TILE // 4 + 1), m * (TILE // 8 + 1) + m * n // 4)
    return 16 * (2 * TILE * (head_dim // 8 + 1) + subgroups * own)


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """(query tiles, query heads) workgroups of as many subgroups as still occupy the device."""
    dim, heads = int(params["head_dim"]), int(params["n_head"])
    m, n, k = limits.coopmat_shape
    most = limits.most
    subgroups = 4
    while subgroups > 1 and (
        subgroups * limits.subgroup_size > most
        or shared_bytes(subgroups, dim, limits) > limits.shared_bytes
        or -(-rows // (subgroups * m)) * heads < limits.units
    ):
        subgroups //= 2
    size = subgroups * limits.subgroup_size
    k_v = ops["k"], ops["v"]
    build = f"{cache_rows.build(*k_v)}.{'HALF' if ops['y'].format_name == 'F16' else 'WIDE'}"
    grid = (-(-rows // (subgroups * m)), heads, 1)
    spec = (size, limits.subgroup_size, dim, TILE, m, n, k, *cache_rows.constants(*k_v, params))
    return Launch(build, spec, grid, limits.subgroup_size)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Cache types, both results; empty and filled caches; ragged tiles; grouped heads; a window
    with a soft bound, a ring as short as can be."""
    shapes: Any = (
        (7, 0, 9, 3, 64, 0, np.float32), (40, 33, 4, 2, 128, 0, np.float16),
        (17, 5, 2, 1, 80, 0, np.float16), (1, 99, 2, 2, 256, 0, np.float32),
        (130, 70, 4, 2, 128, 50, np.float32), (64, 300, 3, 1, 64, 0, np.float16),
    )
    for mix, shape in cache_rows.mixed(shapes):
        n, pos, n_head, n_head_kv, dim, window, dtype = shape
        width = n_head_kv * dim
        qkv: Any = rng.standard_normal((n, (n_head + 2 * n_head_kv) * dim))
        ops = {
            "qkv": qkv.astype(np.float32),
            **cache_rows.random_caches(rng, mix, pos + n + 2, width),
            "y": np.zeros((n, n_head * dim), dtype), "step": step_words(n, pos),
        }  # fmt: skip
        params: dict[str, int | float] = {
            "n_head": n_head, "n_head_kv": n_head_kv, "head_dim": dim,
            "scale": dim**-0.5, "window": window, "softcap": 2.0 if window else 0.0,
        }  # fmt: skip
        kinds = f"{'/'.join(mix)} {np.dtype(dtype).name}"
        name = f"n={n} pos={pos} heads={n_head}/{n_head_kv} dim={dim} window={window}"
        case = Case(f"{kinds} {name}", ops, params, rows=n, limit=LIMIT)
        yield case
        if window:
            yield cache_rows.ring_operands(rng, case, window - 1 + n)


KERNEL = Kernel("attention_prefill_coop", launch, reference, cases, needs=needs)
