"""experts_q8_down_bias: experts_q8_down with a bias per expert."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import q8
from .experts import down_q8
from .experts_cases import q8_down_cases
from .experts_q8_down import run
from .kernel import Array, Case, Kernel, Matrix
from .reference import vector


def reference(
    w: Matrix, xq: Array, xs: Array, route: Array, g: Matrix, y: Array, yq: Array, ys: Array,
    ssq: Array, step: Array, b: Matrix, *, cols: int, rows: int, experts: int, first: int,
) -> None:
    """As experts_q8_down; b (1, experts rows)."""
    run(w, xq, xs, route, g, y, yq, ys, ssq, vector(b), cols, rows, experts, first)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    return q8_down_cases(rng, biased=True)


KERNEL = Kernel("experts_q8_down_bias", down_q8, reference, cases, needs=q8.needs)
