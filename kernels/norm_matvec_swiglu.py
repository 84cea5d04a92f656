"""norm_matvec_swiglu: normalise, multiply by gate and up, y = silu(gate) * up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Matrix, Reference
from .matvec_launch import ALL_FORMATS, SHAPES, case_operands, case_params, launch
from .reference import Floats, product, random_matrix, rms_normalise, silu, vector


def gated_by(activated: Callable[[Floats], Floats]) -> Reference:
    """The reference for one activation."""

    def reference(
        x: Array, w: Matrix, y: Array, step: Array, g: Matrix, *,
        cols: int, rows: int, y_stride: int, y_off: int, eps: float,
    ) -> None:
        """y[0, :rows] = activated(G xn) * (U xn), xn = rmsnorm(x[n-1]) * g; w = [G; U]."""
        last = int(step[words.N]) - 1
        xn = rms_normalise(x[last : last + 1, :cols], vector(g), eps)
        both = product(xn, w)[0]
        y[0, y_off : y_off + rows] = activated(both[:rows]) * both[rows:]

    return reference


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    for fmt in ALL_FORMATS:
        for rows, cols in SHAPES:
            ops = case_operands(rng, fmt, rows, cols, stacked=2)
            ops["g"] = random_matrix(rng, "F32", 1, cols)
            params = {**case_params(rows, cols), "eps": 1e-5}
            yield Case(f"{fmt} {rows}x{cols}", ops, params, scale=0.5)


KERNEL = Kernel("norm_matvec_swiglu", launch, gated_by(silu), cases)
