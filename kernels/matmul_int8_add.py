"""matmul_int8_add: a projection of a batch in int8, added to the residual stream."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Matrix
from .matmul_int8_launch import format_cases, launch
from .quantize_layout import unpack
from .reference import product


def reference(
    x: Array, w: Matrix, y: Array, step: Array, *,
    cols: int, rows: int, x_stride: int, y_stride: int, y_off: int,
) -> None:
    """y[i, y_off : y_off + rows] += W x[i] for i < n; x int8 rows (quantize_layout.py)."""
    n = int(step[words.N])
    y[:n, y_off : y_off + rows] += product(unpack(x[:n], cols), w)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    return format_cases(rng)


KERNEL = Kernel("matmul_int8_add", launch, reference, cases, needs=lambda limits: limits.int_dot)
