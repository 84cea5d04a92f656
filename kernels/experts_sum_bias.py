"""experts_sum_bias: experts_sum with a bias per expert."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .experts_rows import batches
from .experts_sum import case_operands, launch, run
from .kernel import Array, Case, Kernel, Matrix
from .reference import vector
from .routing import f32_matrix


def reference(
    x: Array, route: Array, place: Array, y: Array, step: Array, b: Matrix, *,
    cols: int, slots: int,
) -> None:
    """As experts_sum; b (1, experts cols)."""
    run(x, route, place, y, step, vector(b).reshape(-1, cols), cols, slots)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Full and empty slots."""
    for name, n, experts, slots, ops in batches(rng):
        cols = 20 * experts
        chosen = case_operands(rng, ops, n, slots, cols)
        chosen["b"] = f32_matrix(rng.standard_normal((1, experts * cols)))
        yield Case(name, chosen, {"cols": cols, "slots": slots}, rows=n + 1)


KERNEL = Kernel("experts_sum_bias", launch, reference, cases)
