"""experts_matmul_coop_swiglu: gate and up of each expert for its tokens on matrix cores, gated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from . import matmul_coop
from .experts import times_rows
from .experts_coop_launch import launch_experts
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .matmul_groups import experts_cases
from .matvec_launch import ALL_FORMATS, FEW_PLAIN
from .reference import silu


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """As for products of twice the rows: half of each tile are gates."""
    return launch_experts(ops, params, rows, limits, gated=True)


def reference(
    x: Array, w: Any, y: Array, step: Array, start: Array, *, cols: int, rows: int,
    x_stride: int, y_stride: int, y_off: int, first: int, row0: int, up: int, groups: int,
    slots: int, experts: int,
) -> None:
    """y[row, y_off : y_off + rows] = silu(G x[row]) * (U x[row]) as float16, for rows in order of
    the experts; an expert's U lies `up` rows behind its G. `rows` is even."""
    for e in range(groups):
        a, b = int(start[first + e]), int(start[first + e + 1])
        if a < b:
            values = np.asarray(x[a:b, :cols], np.float32)
            gate, value = (
                times_rows(values, w, row0 + at + e * rows, rows) for at in (0, up)
            )  # fmt: skip
            y[a:b, y_off : y_off + rows] = np.clip(silu(gate) * value, -65504, 65504)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of the plain product, whose weights have gates before the ups."""
    for case in experts_cases("coop", (*ALL_FORMATS, *FEW_PLAIN))(rng):
        params = dict(case.params)
        params |= {"row0": 0, "up": params["row0"]}
        y: Any = case.operands["y"]
        ops = {**case.operands, "y": np.zeros(y.shape, np.float16)}
        yield replace(case, operands=ops, params=params)


KERNEL = Kernel(
    "experts_matmul_coop_swiglu", launch, reference, cases, needs=matmul_coop.KERNEL.needs
)
