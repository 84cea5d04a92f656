"""attention_q8: decode attention in one dispatch, from f32 queries to int8 groups of 16."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from . import attention, attention_combine, cache_rows, q8
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits

MAX_SPLITS = 64


def shared_bytes(group: int, dim: int, size: int, subgroup: int) -> int:
    """Shared memory of one workgroup: its subgroups' sums, what each split is worth, values."""
    sums = size // subgroup * group * (dim + 3) + group
    return 4 * (sums + group * MAX_SPLITS + 1 + (1 if subgroup >= 16 else size))


def suits(group: int, dim: int, limits: Limits) -> bool:
    """Whether heads of this kind fit: registers for a group's sums, shared memory for one
    subgroup."""
    return dim % q8.GROUP == 0 and set_size(group, dim, limits) > 0


def set_size(group: int, dim: int, limits: Limits) -> int:
    """Query heads of a workgroup, 0 if not even one fits."""
    subgroup = limits.subgroup_size

    def fits(n: int) -> bool:
        return shared_bytes(n, dim, subgroup, subgroup) <= limits.shared_bytes

    return attention.sets(group, dim, subgroup, fits)


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """(splits, sets of heads) workgroups, as large as their shared memory allows."""
    n_head, dim = int(params["n_head"]), int(params["head_dim"])
    group = set_size(n_head // int(params["n_head_kv"]), dim, limits) or 1
    subgroup, size = limits.subgroup_size, limits.workgroup(512)
    while size > subgroup and shared_bytes(group, dim, size, subgroup) > limits.shared_bytes:
        size //= 2
    k, v = ops["k"], ops["v"]
    lanes = attention.lanes_and_unroll(dim, group, subgroup)
    spec = (size, group, dim, *lanes, *cache_rows.constants(k, v, params))
    grid = (int(params["splits"]), n_head // group, 1)
    return Launch(cache_rows.build(k, v), spec, grid, subgroup)


def reference(
    qkv: Array, k: Array, v: Array, part: Array, arrived: Array, yq: Array, ys: Array,
    step: Array, *, n_head: int, n_head_kv: int, head_dim: int, splits: int, scale: float,
    window: int, softcap: float, ring: int = 0,
) -> None:
    """yq, ys = q8(softmax(q k^T scale) v); shapes as in `attention`, arrived (n_head,) zeros.

    `part` is scratch: its content afterwards is not defined.
    """
    whole: Any = np.zeros((n_head, 1, head_dim + 2), np.float32)
    heads = {"n_head": n_head, "head_dim": head_dim, "splits": 1}
    attention.reference(
        qkv, k, v, whole, step, n_head_kv=n_head_kv, scale=scale, window=window, softcap=softcap,
        ring=ring, **heads,
    )  # fmt: skip
    y: Any = np.zeros((1, n_head * head_dim), np.float32)
    attention_combine.reference(whole, y, step, **heads)
    yq[:], ys[:] = q8.quantize(y[0])


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of `attention` whose heads are whole groups of 16."""
    return adapted(attention.cases(rng))


def adapted(cases: Iterable[Case]) -> Iterator[Case]:
    """Cases of `attention` with the operands of this kernel."""
    for case in cases:
        n = int(case.params["n_head"]) * int(case.params["head_dim"])
        if int(case.params["head_dim"]) % q8.GROUP:
            continue
        part: Any = case.operands["part"]
        ops = dict(case.operands) | {
            "arrived": np.zeros(int(case.params["n_head"]), np.uint32),
            "yq": np.zeros(n // 4, np.uint32),
            "ys": np.zeros((n // q8.GROUP, 2), np.float32),
        }
        scratch = {"part": np.zeros(part.shape, bool)}
        yield Case(case.name, ops, case.params, limit=1e-5, int8=frozenset({"yq"}), only=scratch)


KERNEL = Kernel("attention_q8", launch, reference, cases, needs=q8.needs)
