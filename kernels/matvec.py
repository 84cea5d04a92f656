"""matvec: one vector times a weight matrix, y = W x."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .kernel import Array, Case, Kernel, Matrix
from .matvec_launch import ALL_FORMATS, SHAPES, case_operands, case_params, launch
from .reference import product


def reference(
    x: Array, w: Matrix, y: Array, step: Array, *, cols: int, rows: int, y_stride: int, y_off: int
) -> None:
    """y[0, y_off : y_off + rows] = W x[0]; x (1, cols), w (rows, cols)."""
    y[0, y_off : y_off + rows] = product(x[:1, :cols], w)[0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape, and a product that fills the middle of y."""
    for fmt in ALL_FORMATS:
        for rows, cols in SHAPES:
            ops = case_operands(rng, fmt, rows, cols)
            yield Case(f"{fmt} {rows}x{cols}", ops, case_params(rows, cols), scale=0.5)
    ops = case_operands(rng, "Q8_0", 40, 256)
    ops["y"] = np.zeros((1, 100), np.float32)
    inside = np.zeros((1, 100), bool)
    inside[0, 30:70] = True
    params = {**case_params(40, 256), "y_stride": 100, "y_off": 30}
    yield Case("Q8_0 40x256 into the middle", ops, params, only={"y": inside})


KERNEL = Kernel("matvec", launch, reference, cases)
