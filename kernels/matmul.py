"""matmul: every row of a batch times a weight matrix."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Matrix
from .matmul_launch import PLAIN_SHAPES, SHAPES, case_operands, case_params, launch
from .matvec_launch import every_format
from .reference import product, step_words


def reference(
    x: Array, w: Matrix, y: Array, step: Array, *,
    cols: int, rows: int, x_stride: int, y_stride: int, y_off: int,
) -> None:
    """y[i, y_off : y_off + rows] = W x[i] for i < n; x (batch, >= cols), w (rows, cols)."""
    n = int(step[words.N])
    y[:n, y_off : y_off + rows] = product(x[:n, :cols], w)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape; a batch smaller than the launch; columns in the middle of y."""
    for fmt, (n, rows, cols) in every_format(SHAPES, PLAIN_SHAPES):
        ops = case_operands(rng, fmt, n, rows, cols)
        params = case_params(rows, cols)
        yield Case(f"{fmt} n={n} {rows}x{cols}", ops, params, rows=n, scale=0.5)
    ops = case_operands(rng, "Q4_0", 50, 40, 256)
    ops |= {"step": step_words(37, 0), "y": np.zeros((50, 96), np.float32)}
    inside = np.zeros((50, 96), bool)
    inside[:37, 32:72] = True
    params = {**case_params(40, 256), "y_stride": 96, "y_off": 32}
    yield Case("Q4_0 37 of 50 rows, into the middle", ops, params, rows=50, only={"y": inside})


KERNEL = Kernel("matmul", launch, reference, cases)
