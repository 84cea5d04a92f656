"""matvec_q8_add: y += W x, and the sum times the next norm's gain as int8 groups of 16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, vector


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Workgroups of whole groups of 16 rows, which they quantize."""
    return q8.launch_as(ops, params, limits, q8.add_tiling, whole=q8.GROUP)


def reference(
    w: Matrix, xq: Array, xs: Array, g: Matrix, y: Array, yq: Array, ys: Array, ssq: Array,
    step: Array, *, cols: int, rows: int,
) -> None:
    """y[0] += W x; yq, ys = q8(y[0] * g); ssq = sums of squares of y[0] per group of 16."""
    y[0, :rows] += q8.product_q8(xq, xs, w)
    yq[: rows // 4], ys[: rows // q8.GROUP] = q8.quantize(y[0, :rows] * vector(g))
    ssq[: rows // q8.GROUP] = q8.squares(y[0, :rows])


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    for fmt in q8.FORMATS:
        for rows, cols in q8.SHAPES:
            ops = q8.vector_operands(rng, cols)
            y: Any = rng.standard_normal((1, rows)).astype(np.float32)
            ops |= {
                "w": random_matrix(rng, fmt, rows, cols, 1 / np.sqrt(cols)), "y": y,
                "g": random_matrix(rng, "F32", 1, rows),
                "yq": np.zeros(rows // 4, np.uint32),
                "ys": np.zeros((rows // 16, 2), np.float32),
                "ssq": np.zeros(rows // 16, np.float32),
            }
            params = {"cols": cols, "rows": rows}
            yield Case(f"{fmt} {rows}x{cols}", ops, params, limit=1e-5, int8=frozenset({"yq"}))


KERNEL = Kernel("matvec_q8_add", launch, reference, cases, needs=q8.needs)
