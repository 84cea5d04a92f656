"""matmul_add: a projection of every row of a batch, added to the residual stream."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Matrix
from .matmul_launch import PLAIN_SHAPES, SHAPES, case_operands, case_params, launch
from .matvec_launch import every_format
from .reference import product


def reference(
    x: Array, w: Matrix, y: Array, step: Array, *,
    cols: int, rows: int, x_stride: int, y_stride: int, y_off: int,
) -> None:
    """y[i, y_off : y_off + rows] += W x[i] for i < n; x (batch, >= cols), w (rows, cols)."""
    n = int(step[words.N])
    y[:n, y_off : y_off + rows] += product(x[:n, :cols], w)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    for fmt, (n, rows, cols) in every_format(SHAPES, PLAIN_SHAPES):
        ops = case_operands(rng, fmt, n, rows, cols)
        params = case_params(rows, cols)
        yield Case(f"{fmt} n={n} {rows}x{cols}", ops, params, rows=n, scale=0.5)


KERNEL = Kernel("matmul_add", launch, reference, cases)
