"""norm_matvec: y = W (rmsnorm(x) * g) for the last row of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Matrix
from .matvec_launch import (
    PLAIN_SHAPES,
    SHAPES,
    case_operands,
    case_params,
    every_format,
    launch,
)
from .reference import product, random_matrix, rms_normalise, step_words, vector


def reference(
    x: Array, w: Matrix, y: Array, step: Array, g: Matrix, *,
    cols: int, rows: int, y_stride: int, y_off: int, eps: float,
) -> None:
    """y[0, y_off : y_off + rows] = W (x[n-1] / rms(x[n-1]) * g); x (batch, cols), g (cols,)."""
    last = int(step[words.N]) - 1
    xn = rms_normalise(x[last : last + 1, :cols], vector(g), eps)
    y[0, y_off : y_off + rows] = product(xn, w)[0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape; the last of several rows."""
    for fmt, (rows, cols) in every_format(SHAPES, PLAIN_SHAPES):
        ops = case_operands(rng, fmt, rows, cols)
        ops["g"] = random_matrix(rng, "F32", 1, cols)
        params = {**case_params(rows, cols), "eps": 1e-5}
        yield Case(f"{fmt} {rows}x{cols}", ops, params, scale=0.5)
    ops = case_operands(rng, "Q4_0", 20, 256)
    x: Any = rng.standard_normal((7, 256)).astype(np.float32)
    ops |= {"g": random_matrix(rng, "F32", 1, 256), "x": x, "step": step_words(5, 0)}
    yield Case("Q4_0 20x256 last of 5", ops, {**case_params(20, 256), "eps": 1e-5})


KERNEL = Kernel("norm_matvec", launch, reference, cases)
