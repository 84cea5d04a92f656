"""attention_q8: decode attention in one dispatch, from f32 queries to int8 groups of 16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import attention, attention_combine, cache_rows, q8
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits

MAX_SPLITS = 64


def shared_bytes(group: int, dim: int, size: int, subgroup: int) -> int:
    """Shared memory of one workgroup: its subgroups' sums, the states of all splits, values."""
    sums = size // subgroup * group * (dim + 3) + group
    return 4 * (sums + 2 * group * MAX_SPLITS + 1 + (1 if subgroup >= 16 else size))


def suits(group: int, dim: int, limits: Limits) -> bool:
    """Whether heads of this kind fit: registers for a group's sums, shared memory for one
    subgroup."""
    least = shared_bytes(group, dim, limits.subgroup_size, limits.subgroup_size)
    return group <= attention.MAX_GROUP and dim % q8.GROUP == 0 and least <= limits.shared_bytes


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """(splits, key/value heads) workgroups, as large as their shared memory allows."""
    group, dim = int(params["n_head"]) // int(params["n_head_kv"]), int(params["head_dim"])
    subgroup, size = limits.subgroup_size, limits.workgroup(512)
    while size > subgroup and shared_bytes(group, dim, size, subgroup) > limits.shared_bytes:
        size //= 2
    k, v = ops["k"], ops["v"]
    lanes = attention.lanes_and_unroll(dim, group, subgroup)
    spec = (size, group, dim, *lanes, *cache_rows.types(k, v))
    grid = (int(params["splits"]), int(params["n_head_kv"]), 1)
    return Launch(cache_rows.build(k, v), spec, grid, subgroup)


def reference(
    qkv: Array, k: Array, v: Array, part: Array, arrived: Array, yq: Array, ys: Array,
    step: Array, *, n_head: int, n_head_kv: int, head_dim: int, splits: int, scale: float,
    window: int,
) -> None:
    """yq, ys = q8(softmax(q k^T scale) v); shapes as in `attention`, arrived (n_head_kv,) zeros.

    `part` is scratch: its content afterwards is not defined.
    """
    whole: Any = np.zeros((n_head, 1, head_dim + 2), np.float32)
    heads = {"n_head": n_head, "head_dim": head_dim, "splits": 1}
    attention.reference(
        qkv, k, v, whole, step, n_head_kv=n_head_kv, scale=scale, window=window, **heads
    )
    y: Any = np.zeros((1, n_head * head_dim), np.float32)
    attention_combine.reference(whole, y, step, **heads)
    yq[:], ys[:] = q8.quantize(y[0])


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of `attention` whose heads are whole groups of 16."""
    for case in attention.cases(rng):
        n = int(case.params["n_head"]) * int(case.params["head_dim"])
        if int(case.params["head_dim"]) % q8.GROUP:
            continue
        part: Any = case.operands["part"]
        ops = dict(case.operands) | {
            "arrived": np.zeros(int(case.params["n_head_kv"]), np.uint32),
            "yq": np.zeros(n // 4, np.uint32),
            "ys": np.zeros((n // q8.GROUP, 2), np.float32),
        }
        scratch = {"part": np.zeros(part.shape, bool)}
        yield Case(case.name, ops, case.params, limit=1e-5, int8=frozenset({"yq"}), only=scratch)


KERNEL = Kernel("attention_q8", launch, reference, cases, needs=q8.needs)
