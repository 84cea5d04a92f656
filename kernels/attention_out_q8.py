"""attention_out_q8: attention over a short context and output projection of a narrow model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import attention, attention_combine, attention_short_q8, narrow
from . import reference as plain
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix


def shared_bytes(dim: int, invocations: int, subgroup: int) -> int:
    """Shared memory of a workgroup: sums and states of its subgroups, the result in int8."""
    return invocations // subgroup * (dim + 2) * 4 + dim + dim // 2


def suits(dim: int, limits: Limits) -> bool:
    """Whether heads of this size can take this kernel."""
    invocations, subgroup = narrow.size(narrow.TILING.attention, 0, limits), limits.subgroup_size
    fits = shared_bytes(dim, invocations, subgroup) <= limits.shared_bytes
    return narrow.needs(limits) and dim % 32 == 0 and fits


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """(heads, blocks of output rows) workgroups."""
    heads, dim, n = int(params["n_head"]), int(params["head_dim"]), int(params["rows"])
    subgroup, blocks = limits.subgroup_size, max(1, narrow.TILING.workgroups // heads)
    invocations = narrow.size(narrow.TILING.attention, 0, limits)
    while invocations > subgroup and (
        shared_bytes(dim, invocations, subgroup) > limits.shared_bytes
    ):
        invocations //= 2
    shared_by = attention_short_q8.lanes(dim, subgroup)
    pieces = -(-dim // 8 // shared_by)
    unroll = narrow.TILING.unroll or (1 if pieces > 2 else 4 if shared_by <= 8 else 2)
    lanes, each = narrow.share(-(-n // blocks), dim // 32, invocations, limits)
    ring = int(params.get("ring", 0))
    early = 0 if ring or params["window"] else ops["k"].rows
    spec = (invocations, subgroup, dim, shared_by, unroll, ring, lanes, each, early)
    grid = (heads, -(-n // (invocations // lanes * each)), 1)
    return Launch(ops["w"].format_name, spec, grid, subgroup)


def reference(
    w: Matrix, qkv: Array, k: Array, v: Array, y: Array, step: Array, *, rows: int, n_head: int,
    n_head_kv: int, head_dim: int, scale: float, window: int, softcap: float, ring: int = 0,
) -> None:
    """y[1 + h] = columns of W (rows, n_head head_dim) of head h times its attention in int8; the
    rest as in `attention`."""
    whole: Any = np.zeros((n_head, 1, head_dim + 2), np.float32)
    attention.reference(
        qkv, k, v, whole, step, n_head=n_head, n_head_kv=n_head_kv, head_dim=head_dim, splits=1,
        scale=scale, window=window, softcap=softcap, ring=ring,
    )  # fmt: skip
    out: Any = np.zeros((1, n_head * head_dim), np.float32)
    attention_combine.reference(whole, out, step, n_head=n_head, head_dim=head_dim, splits=1)
    y[1:] = narrow.products(out[0], plain.parts(w)[0].dequantize(), n_head)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format; contexts around the ends of a pass; sizes and groups of heads; windows, soft
    bounds and rings."""
    shapes = [(pos, 9, 3, 64, 1, 0, 576) for pos in (0, 1, 126, 127, 510)]
    shapes += [(200, 4, 4, 32, 1, 0, 96), (127, 6, 1, 128, 1, 0, 1000), (90, 2, 1, 96, 1, 33, 256),
               (300, 8, 1, 256, 1, 0, 64)]  # fmt: skip
    for i, shape in enumerate(shapes):
        for fmt in narrow.FORMATS if i == 5 else narrow.FORMATS[i % 5 : i % 5 + 1]:
            yield from _cases(rng, fmt, shape)


def _cases(rng: np.random.Generator, fmt: str, shape: tuple[int, ...]) -> Iterator[Case]:
    pos, n_head, n_head_kv, dim, splits, window, rows = shape
    for case in attention.cases_of(
        rng, [(("F16", "F16"), (pos, n_head, n_head_kv, dim, splits, window))]
    ):
        ops = {n: v for n, v in case.operands.items() if n != "part"}
        if not window:  # rows that nobody has written
            for cache in ("k", "v"):
                unwritten: Any = ops[cache]
                unwritten[pos + 1 :] = np.nan
        q_dim = n_head * dim
        ops["w"] = random_matrix(rng, fmt, rows, q_dim, 1 / np.sqrt(q_dim))
        ops["y"] = np.zeros((1 + n_head, rows), np.float32)
        params = {n: v for n, v in case.params.items() if n != "splits"} | {"rows": rows}
        yield Case(f"{fmt} rows={rows} {case.name}", ops, params, limit=1e-5)


KERNEL = Kernel("attention_out_q8", launch, reference, cases, needs=narrow.needs)
