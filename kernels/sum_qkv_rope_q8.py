"""sum_qkv_rope_q8: q, k and v of a narrow model from parts of x, rotated, the cache written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import cache_rows, narrow, q8, qkv_rope_q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """A group of lanes per pair of rows, which rotate together."""
    cols, parts, n = ops["x"].cols, ops["x"].rows, int(params["rows"])
    invocations, lanes = narrow.size(narrow.TILING.qkv, cols, limits), 1
    while lanes * 2 <= min(narrow.TILING.qkv_lanes, cols // 32, limits.subgroup_size):
        lanes *= 2
    spec = (
        invocations, limits.subgroup_size, cols, parts,
        narrow.split(cols, parts, invocations, limits), lanes, 2, int(params.get("ring", 0)),
    )  # fmt: skip
    groups = -(-n // (invocations // lanes * 2))
    return Launch(ops["w"].format_name, spec, (groups, 1, 1), limits.subgroup_size)


def reference(
    w: Matrix, g: Matrix, x: Array, sum: Array, y: Array, rope: Array, k: Array, v: Array,
    step: Array, *, rows: int, eps: float, n_head: int, n_head_kv: int, head_dim: int, n_rot: int,
    ring: int = 0,
) -> None:
    """sum[0] = the sum of x (parts, width); the rest as qkv_rope_q8 of its norm times g."""
    sum[0], xq, xs, _ = narrow.normed(x, g, eps)
    qkv_rope_q8.reference(
        w, xq, xs, q8.squares(sum[0]), y, rope, k, v, step, cols=x.shape[1], rows=rows, y_off=0,
        eps=eps, n_head=n_head, n_head_kv=n_head_kv, head_dim=head_dim, n_rot=n_rot, ring=ring,
    )  # fmt: skip


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format; whole and partial rotation; ragged workgroups; rings."""
    shapes = (3, 1, 32, 16, 96, 2, 0), (9, 3, 64, 64, 576, 25, 0), (2, 2, 64, 64, 1024, 9, 3)
    for i, fmt in enumerate(narrow.FORMATS):
        for n_head, n_head_kv, dim, n_rot, cols, parts, ring in (shapes[0], shapes[1 + i % 2]):
            q_dim, kv_dim = n_head * dim, n_head_kv * dim
            total, angle = q_dim + 2 * kv_dim, rng.uniform(0, 6.28, (8, n_rot // 2))
            x: Any = rng.standard_normal((parts, cols)).astype(np.float32)
            y: Any = rng.standard_normal((1, total)).astype(np.float32)
            caches: Any = rng.standard_normal((2, 8, kv_dim)).astype(np.float16)
            ops = {
                "w": random_matrix(rng, fmt, total, cols, 1 / np.sqrt(cols)),
                "g": random_matrix(rng, "F32", 1, cols), "x": x, "y": y,
                "sum": np.zeros((1 + n_head, cols), np.float32),
                "rope": np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32),
                "k": caches[0], "v": caches[1], "step": step_words(1, 5),
            }  # fmt: skip
            params = {
                "rows": total, "eps": 1e-5, "n_head": n_head, "n_head_kv": n_head_kv,
                "head_dim": dim, "n_rot": n_rot,
            }  # fmt: skip
            name = f"{fmt} {cols} parts={parts} heads={n_head}/{n_head_kv} dim={dim} rot={n_rot}"
            case = Case(name, ops, params, limit=1e-5)
            yield cache_rows.ring_operands(rng, case, ring) if ring else case


KERNEL = Kernel("sum_qkv_rope_q8", launch, reference, cases, needs=narrow.needs)
