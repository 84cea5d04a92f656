"""experts_down: weighted sum of a token's experts into the residual stream, in float32."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .experts import down_f32, slots_of, times_rows
from .experts_cases import f32_down_cases
from .kernel import Array, Case, Kernel, Matrix


def reference(
    x: Array, w: Matrix, route: Array, y: Array, step: Array, *,
    cols: int, rows: int, experts: int, first: int,
) -> None:
    """y[0] += sum of weight * D x over the slots of route[0]; x[0] (slots, cols)."""
    inner = x[0].reshape(-1, cols)
    for slot, expert, share in slots_of(route[0], experts, first):
        out = times_rows(inner[slot : slot + 1], w, expert * rows, rows)[0]
        y[0, :rows] += share * out


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    return f32_down_cases(rng, biased=False)


KERNEL = Kernel("experts_down", down_f32, reference, cases)
