"""experts_down_bias: experts_down with a bias per expert."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .experts import down_f32, rows_of, slots_of
from .experts_cases import f32_down_cases
from .kernel import Array, Case, Kernel, Matrix
from .reference import vector


def reference(
    x: Array, w: Matrix, route: Array, y: Array, step: Array, b: Matrix, *,
    cols: int, rows: int, experts: int, first: int,
) -> None:
    """As experts_down; b (1, experts rows)."""
    inner = x[0].reshape(-1, cols)
    for slot, expert, share in slots_of(route[0], experts, first):
        out = rows_of(w, expert * rows, rows) @ inner[slot]
        y[0, :rows] += share * (out + vector(b)[expert * rows : (expert + 1) * rows])


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    return f32_down_cases(rng, biased=True)


KERNEL = Kernel("experts_down_bias", down_f32, reference, cases)
