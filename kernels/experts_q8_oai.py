"""experts_q8_oai: experts_q8_swiglu with biases and the limited gate of gpt-oss."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import q8
from .experts import swiglu_q8
from .experts_cases import q8_swiglu_cases
from .experts_q8_swiglu import run
from .kernel import Array, Case, Kernel, Matrix
from .reference import vector


def reference(
    w: Matrix, xq: Array, xs: Array, ssq: Array, route: Array, yq: Array, ys: Array, step: Array,
    b: Matrix, *, cols: int, rows: int, eps: float, experts: int, first: int,
) -> None:
    """As experts_q8_swiglu; b (1, 2 experts rows): biases of the gates, then of the ups."""
    run(w, xq, xs, ssq, route, yq, ys, vector(b), cols, rows, eps, experts, first)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape; gates and ups beyond the limit."""
    return q8_swiglu_cases(rng, biased=True)


KERNEL = Kernel("experts_q8_oai", swiglu_q8, reference, cases, needs=q8.needs)
