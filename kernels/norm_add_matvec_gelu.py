"""norm_add_matvec_gelu: y = gelu(W (x + rmsnorm(z) * g)) * e, the sum never written (Gemma 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .kernel import Array, Case, Kernel, Matrix
from .matvec_launch import ALL_FORMATS, case_operands, launch
from .reference import gelu, product, random_matrix, rms_normalise, vector

# rows, columns, rows that are no padding
SHAPES = ((32, 512, 16), (67, 256, 67), (256, 1536, 256))


def reference(
    x: Array, z: Array, w: Matrix, y: Array, e: Array, step: Array, g: Matrix, *,
    cols: int, rows: int, y_off: int, eps: float, e_off: int, e_cols: int,
) -> None:
    """y[0, y_off + r] = gelu(W (x[0] + z[0] / rms(z[0]) * g))[r] * e[0, e_off + r] for the rows
    r < e_cols, else 0; x, z (1, cols or more), w (rows, cols), g (cols,)."""
    total = x[:1, :cols] + rms_normalise(z[:1, :cols], vector(g), eps)
    y[0, y_off : y_off + rows] = 0
    gate = gelu(product(total, w)[0, :e_cols])
    y[0, y_off : y_off + e_cols] = gate * e[0, e_off : e_off + e_cols]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape, rows that are padding, the last part of e."""
    for fmt in ALL_FORMATS:
        for rows, cols, used in SHAPES:
            z: Any = rng.standard_normal((1, 2 * cols)) * 20
            e: Any = rng.standard_normal((1, 3 * used))
            ops = case_operands(rng, fmt, rows, cols) | {
                "z": z.astype(np.float32), "e": e.astype(np.float32),
                "g": random_matrix(rng, "F32", 1, cols),
            }  # fmt: skip
            params = {"cols": cols, "rows": rows, "y_off": 0, "eps": 1e-5, "e_off": 2 * used,
                      "e_cols": used}  # fmt: skip
            yield Case(f"{fmt} {rows}x{cols} of {used}", ops, params, scale=0.5)


KERNEL = Kernel("norm_add_matvec_gelu", launch, reference, cases)
