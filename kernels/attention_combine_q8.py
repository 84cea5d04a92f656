"""attention_combine_q8: the splits of a decode attention joined, as int8 groups of 16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from . import attention_combine, q8
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per query head."""
    dim = int(params["head_dim"])
    size = limits.workgroup(min(128, max(32, dim)))
    return Launch("", (size, dim), (int(params["n_head"]), 1, 1))


def reference(
    part: Array, yq: Array, ys: Array, step: Array, *, n_head: int, head_dim: int, splits: int
) -> None:
    """yq, ys = q8 of what attention_combine gives; head_dim is a multiple of 16."""
    n = n_head * head_dim
    y = np.zeros((1, n), np.float32)
    attention_combine.reference(
        part, y, step, n_head=n_head, head_dim=head_dim, splits=splits
    )
    yq[: n // 4], ys[: n // q8.GROUP] = q8.quantize(y[0])


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of attention_combine whose heads are whole groups."""
    for case in attention_combine.cases(rng):
        if int(case.params["head_dim"]) % q8.GROUP:
            continue
        ops = {k: v for k, v in case.operands.items() if k != "y"}
        n = int(case.params["head_dim"]) * int(case.params["n_head"])
        ops["yq"] = np.zeros(n // 4, np.uint32)
        ops["ys"] = np.zeros((n // q8.GROUP, 2), np.float32)
        yield Case(case.name, ops, case.params, limit=1e-5, int8=frozenset({"yq"}))


KERNEL = Kernel("attention_combine_q8", launch, reference, cases)
