"""matvec_add: y += W x, a projection added to the residual stream."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .kernel import Array, Case, Kernel, Matrix
from .matvec_launch import (
    PLAIN_SHAPES,
    SHAPES,
    case_operands,
    case_params,
    every_format,
    launch,
)
from .reference import product


def reference(
    x: Array, w: Matrix, y: Array, step: Array, *, cols: int, rows: int, y_stride: int, y_off: int
) -> None:
    """y[0, y_off : y_off + rows] += W x[0]; x (1, cols), w (rows, cols)."""
    y[0, y_off : y_off + rows] += product(x[:1, :cols], w)[0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    for fmt, (rows, cols) in every_format(SHAPES, PLAIN_SHAPES):
        ops = case_operands(rng, fmt, rows, cols)
        yield Case(f"{fmt} {rows}x{cols}", ops, case_params(rows, cols), scale=0.5)


KERNEL = Kernel("matvec_add", launch, reference, cases)
