"""norm_matvec_q8: y = W x / rms, x in int8 groups; the head, and projections without a fusion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from . import q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Any number of rows."""
    return q8.launch_as(ops, params, limits, q8.plain_tiling)


def reference(
    w: Matrix, xq: Array, xs: Array, ssq: Array, y: Array, step: Array, *,
    cols: int, rows: int, y_off: int, eps: float,
) -> None:
    """y[0, y_off : y_off + rows] = W x / rms; ssq (cols / 16,) of the values before the gain."""
    norm = q8.inverse_rms(ssq, cols, eps)
    y[0, y_off : y_off + rows] = q8.product_q8(xq, xs, w) * norm


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape, rows that fill no workgroup."""
    for fmt in q8.FORMATS:
        for rows, cols in (*q8.SHAPES, (3, 512)):
            ops = q8.vector_operands(rng, cols)
            ops["w"] = random_matrix(rng, fmt, rows, cols, 1 / np.sqrt(cols))
            ops["y"] = np.zeros((1, rows), np.float32)
            params = {"cols": cols, "rows": rows, "y_off": 0, "eps": 1e-5}
            yield Case(f"{fmt} {rows}x{cols}", ops, params, scale=0.5)


KERNEL = Kernel("norm_matvec_q8", launch, reference, cases, needs=q8.needs)
