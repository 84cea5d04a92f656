"""experts_gate_oai: experts_gate with biases and the limited gate of gpt-oss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .experts import oai
from .experts_gate import forms, launch, put
from .experts_rows import batches, pick
from .kernel import Array, Case, Kernel, Matrix
from .reference import vector
from .routing import f32_matrix


def reference(
    gu: Array, start: Array, y: Array, step: Array, route: Array, order: Array, b: Matrix, *,
    cols: int, y_stride: int, experts: int, slots: int,
) -> None:
    """As experts_gate; b (1, 2 experts cols): biases of the gates, then of the ups."""
    count, bias = int(start[experts]), vector(b)
    inner = np.empty((count, cols), np.float32)
    for e in range(experts):
        rows = slice(int(start[e]), int(start[e + 1]))
        inner[rows] = oai(gu[rows, :cols], gu[rows, cols:], bias, cols, experts, e)
    put(inner, y, cols)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every form."""
    for name, n, experts, slots, ops in batches(rng):
        pairs, cols = (n + 1) * slots, 32 * experts
        chosen: dict[str, Any] = pick(ops, "start", "route", "order")
        chosen["gu"] = (rng.standard_normal((pairs, 2 * cols)) * 5).astype(np.float32)
        chosen["b"] = f32_matrix(rng.standard_normal((1, 2 * experts * cols)))
        params: dict[str, int | float] = {"cols": cols, "experts": experts, "slots": slots}
        yield from forms(name, chosen, params, pairs, cols, n + 1)


KERNEL = Kernel("experts_gate_oai", launch, reference, cases)
