"""experts_q8_swiglu: gate, up and SiLU of all experts of a token, in and out as int8 groups."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import q8
from .experts import inner, slots_of, swiglu_q8
from .experts_cases import q8_swiglu_cases
from .kernel import Array, Case, Kernel, Matrix
from .reference import Floats


def run(
    w: Matrix, xq: Array, xs: Array, ssq: Array, route: Array, yq: Array, ys: Array,
    bias: Floats | None, cols: int, rows: int, eps: float, experts: int, first: int,
) -> None:
    """The reference with and without biases."""
    quants, scales = yq.reshape(-1, rows // 4), ys.reshape(-1, rows // q8.GROUP, 2)
    xn = q8.values(xq, xs)[None, :cols] * q8.inverse_rms(ssq, cols, eps)
    for slot, expert, _ in slots_of(route[0], experts, first):
        out = inner(w, xn, rows, experts, expert, bias)
        quants[slot], scales[slot] = q8.quantize(out[0])


def reference(
    w: Matrix, xq: Array, xs: Array, ssq: Array, route: Array, yq: Array, ys: Array, step: Array,
    *, cols: int, rows: int, eps: float, experts: int, first: int,
) -> None:
    """yq, ys (slots, rows) = q8(silu(gate) * up) of the experts of route[0]; w: experts.py."""
    run(w, xq, xs, ssq, route, yq, ys, None, cols, rows, eps, experts, first)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    return q8_swiglu_cases(rng, biased=False)


KERNEL = Kernel("experts_q8_swiglu", swiglu_q8, reference, cases, needs=q8.needs)
