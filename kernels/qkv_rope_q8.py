"""qkv_rope_q8: projections of q, k and v with rotary positions and the cache write fused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from . import cache_rows, q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix
from .rope_launch import rope_and_store


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Workgroups of whole pairs of neighbouring rows, which rotate together."""
    suffix = ".KV16" if ops["k"].format_name == "F16" else ".KV32"
    made = q8.launch_as(ops, params, limits, q8.qkv_tiling, whole=2, suffix=suffix)
    return replace(made, spec=(*made.spec, int(params.get("ring", 0))))


def suits(k: Shaped, v: Shaped) -> bool:
    """Whether it can write these caches: neither quantized, both of one type."""
    return k.format_name == v.format_name and k.format_name not in cache_rows.QUANTIZED


def reference(
    w: Matrix, xq: Array, xs: Array, ssq: Array, y: Array, rope: Array, k: Array, v: Array,
    step: Array, *, cols: int, rows: int, y_off: int, eps: float,
    n_head: int, n_head_kv: int, head_dim: int, n_rot: int,
    ring: int = 0,
) -> None:
    """Rows [y_off, y_off + rows) of [q; k; v] = W x / rms: rotated q into y[0], k (rotated) and v
    into the caches' row of the position. Shapes as in rope_kv; y keeps only its q part."""
    pos, q_dim, kv_dim = int(step[1]), n_head * head_dim, n_head_kv * head_dim
    qkv = np.zeros((1, q_dim + 2 * kv_dim), np.float32)
    qkv[0, y_off : y_off + rows] = q8.product_q8(xq, xs, w) * q8.inverse_rms(ssq, cols, eps)
    row_k, row_v = np.zeros((pos + 1, kv_dim), k.dtype), np.zeros((pos + 1, kv_dim), v.dtype)
    pairs = slice(0, n_rot, 2), slice(1, n_rot, 2)
    rope_and_store(qkv, rope, row_k, row_v, step, (n_head, n_head_kv, head_dim), *pairs, 0)
    row, start_v = pos % ring if ring else pos, q_dim + kv_dim
    bounds = ((y[0], 0, q_dim), (k[row], q_dim, kv_dim), (v[row], start_v, kv_dim))
    for (target, start, size), source in zip(
        bounds, (qkv[0, :q_dim], row_k[pos], row_v[pos]), strict=True
    ):
        first, stop = max(y_off - start, 0), min(max(y_off + rows - start, 0), size)
        target[first:stop] = source[first:stop]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format; both cache types; whole and partial rotation; only v, in a ring."""
    for fmt in q8.FORMATS:
        for dtype, n_head, n_head_kv, dim, n_rot, cols, part in (
            (np.float16, 3, 1, 64, 64, 768, False), (np.float32, 2, 2, 32, 16, 256, False),
            (np.float16, 2, 1, 64, 64, 512, True),
        ):
            q_dim, kv_dim = n_head * dim, n_head_kv * dim
            total, first = q_dim + 2 * kv_dim, q_dim + kv_dim if part else 0
            angle = rng.uniform(0, 6.28, (8, n_rot // 2))
            ops = q8.vector_operands(rng, cols)
            y: Any = rng.standard_normal((1, total)).astype(np.float32)
            ops |= {
                "w": random_matrix(rng, fmt, total - first, cols, 1 / np.sqrt(cols)), "y": y,
                "rope": np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32),
                "k": rng.standard_normal((8, kv_dim)).astype(dtype),
                "v": rng.standard_normal((8, kv_dim)).astype(dtype),
            }
            params = {
                "cols": cols, "rows": total - first, "y_off": first, "eps": 1e-5,
                "n_head": n_head, "n_head_kv": n_head_kv, "head_dim": dim, "n_rot": n_rot,
            }  # fmt: skip
            name = f"{fmt} {np.dtype(dtype).name} heads={n_head}/{n_head_kv} dim={dim} rot={n_rot}"
            case = Case(f"{name} from={first}", ops, params, limit=1e-7)
            yield cache_rows.ring_operands(rng, case, 3) if part else case


KERNEL = Kernel("qkv_rope_q8", launch, reference, cases, needs=q8.needs)
