"""mla_values_q8: mla_values with the result as int8 groups of 16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from . import q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .matvec_launch import ALL_FORMATS, FEW_PLAIN
from .mla import MIN_SPLIT
from .mla_values import case_operands, launch_as, values


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """PARTS workgroups per head, each of whole groups of 16 rows."""
    return launch_as(ops, params, limits, q8.GROUP)


def reference(
    part: Array, w: Matrix, yq: Array, ys: Array, step: Array, *,
    rows: int, splits: int, heads: int, most: int, rank: int, least: int = MIN_SPLIT,
) -> None:
    """yq, ys = q8 of the heads' values."""
    yq[:], ys[:] = q8.quantize(values(part, w, step, rows, splits, heads, most, least))


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format once."""
    for i, fmt in enumerate((*ALL_FORMATS, *FEW_PLAIN)):
        name, ops, params = case_operands(rng, fmt, i)
        n = int(params["heads"] * params["rows"])
        ops |= {"yq": np.zeros(n // 4, np.uint32), "ys": np.zeros((n // 16, 2), np.float32)}
        yield Case(name, ops, params, limit=1e-5, int8=frozenset({"yq"}))


KERNEL = Kernel("mla_values_q8", launch, reference, cases)
