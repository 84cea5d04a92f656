"""quantize_q8: x * gain as int8 groups of 16, and the sums of squares for its norm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from . import q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, step_words, vector


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One invocation per group of 16 values."""
    size = limits.workgroup(64)
    return Launch("", (size,), (-(-int(params["cols"]) // (q8.GROUP * size)), 1, 1))


def reference(
    x: Array, g: Matrix, yq: Array, ys: Array, ssq: Array, step: Array, *, cols: int
) -> None:
    """yq, ys = q8(x[n-1] * g), ssq = sums of squares of x[n-1] per group; x (batch, cols)."""
    row = x[int(step[words.N]) - 1, :cols]
    yq[: cols // 4], ys[: cols // q8.GROUP] = q8.quantize(row * vector(g))
    ssq[: cols // q8.GROUP] = q8.squares(row)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """The last row of several; a group of zeros."""
    for n, cols in ((1, 576), (3, 32), (2, 4096)):
        x: Any = rng.standard_normal((n, cols)).astype(np.float32)
        x[n - 1, :16] = 0
        ops: dict[str, Array | Matrix] = {
            "x": x, "g": random_matrix(rng, "F32", 1, cols),
            "yq": np.zeros(cols // 4, np.uint32), "ys": np.zeros((cols // 16, 2), np.float32),
            "ssq": np.zeros(cols // 16, np.float32), "step": step_words(n, 0),
        }
        yield Case(f"n={n} cols={cols}", ops, {"cols": cols}, limit=1e-5, int8=frozenset({"yq"}))


KERNEL = Kernel("quantize_q8", launch, reference, cases)
