"""experts_q8_down: weighted sum of the experts into the residual stream, next input in int8."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import q8
from .experts import down_q8, slots_of, times_rows
from .experts_cases import q8_down_cases
from .kernel import Array, Case, Kernel, Matrix
from .reference import Floats, vector


def run(
    w: Matrix, xq: Array, xs: Array, route: Array, g: Matrix, y: Array, yq: Array, ys: Array,
    ssq: Array, bias: Floats | None, cols: int, rows: int, experts: int, first: int,
) -> None:
    """The reference with and without biases."""
    x = q8.values(xq, xs).reshape(-1, cols)
    for slot, expert, share in slots_of(route[0], experts, first):
        y[0, :rows] += share * times_rows(x[slot : slot + 1], w, expert * rows, rows)[0]
        if bias is not None:
            y[0, :rows] += share * bias[expert * rows : (expert + 1) * rows]
    yq[: rows // 4], ys[: rows // q8.GROUP] = q8.quantize(y[0, :rows] * vector(g))
    ssq[: rows // q8.GROUP] = q8.squares(y[0, :rows])


def reference(
    w: Matrix, xq: Array, xs: Array, route: Array, g: Matrix, y: Array, yq: Array, ys: Array,
    ssq: Array, step: Array, *, cols: int, rows: int, experts: int, first: int,
) -> None:
    """y[0] += sum of weight * D x over the slots; yq, ys, ssq as matvec_q8_add."""
    run(w, xq, xs, route, g, y, yq, ys, ssq, None, cols, rows, experts, first)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    return q8_down_cases(rng, biased=False)


KERNEL = Kernel("experts_q8_down", down_q8, reference, cases, needs=q8.needs)
