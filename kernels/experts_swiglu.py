"""experts_swiglu: norm, gate, up and SiLU of all experts of a token, in float32."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .experts import inner, slots_of, swiglu_f32
from .experts_cases import f32_swiglu_cases
from .kernel import Array, Case, Kernel, Matrix
from .reference import rms_normalise, vector


def reference(
    x: Array, g: Matrix, w: Matrix, route: Array, y: Array, step: Array, *,
    cols: int, rows: int, eps: float, experts: int, first: int,
) -> None:
    """y[0] (slots, rows) = silu(gate) * up of the experts of route[0]; w: experts.py."""
    xn, out = rms_normalise(x[:1, :cols], vector(g), eps), y[0].reshape(-1, rows)
    for slot, expert, _ in slots_of(route[0], experts, first):
        out[slot] = inner(w, xn, rows, experts, expert, None)[0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    return f32_swiglu_cases(rng, biased=False)


KERNEL = Kernel("experts_swiglu", swiglu_f32, reference, cases)
