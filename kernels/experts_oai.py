"""experts_oai: experts_swiglu with biases and the limited gate of gpt-oss."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .experts import inner, slots_of, swiglu_f32
from .experts_cases import f32_swiglu_cases
from .kernel import Array, Case, Kernel, Matrix
from .reference import rms_normalise, vector


def reference(
    x: Array, g: Matrix, w: Matrix, route: Array, y: Array, step: Array, b: Matrix, *,
    cols: int, rows: int, eps: float, experts: int, first: int,
) -> None:
    """As experts_swiglu; b (1, 2 experts rows): biases of the gates, then of the ups."""
    xn, out = rms_normalise(x[:1, :cols], vector(g), eps), y[0].reshape(-1, rows)
    for slot, expert, _ in slots_of(route[0], experts, first):
        out[slot] = inner(w, xn, rows, experts, expert, vector(b))[0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    return f32_swiglu_cases(rng, biased=True)


KERNEL = Kernel("experts_oai", swiglu_f32, reference, cases)
