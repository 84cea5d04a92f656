"""bias_add: a bias added to every row of a batch, or to its only row of logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, step_words, vector


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One invocation per value, rows along y."""
    size = limits.workgroup(128)
    grid = (-(-int(params["cols"]) // size), min(rows, int(params["rows"])), 1)
    return Launch("", (size,), grid)


def reference(y: Array, b: Matrix, step: Array, *, cols: int, rows: int) -> None:
    """y[i] += b for i < min(n, rows); b (1, cols)."""
    y[: min(int(step[words.N]), rows), :cols] += vector(b)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One row, fewer rows than the launch, and one row for a batch."""
    for n, rows, cols in ((1, 2, 2880), (3, 4, 37), (5, 1, 9001), (3, 3, 4096)):
        y: Any = rng.standard_normal((rows, cols)).astype(np.float32)
        ops = {"y": y, "b": random_matrix(rng, "F32", 1, cols), "step": step_words(n, 2)}
        params = {"cols": cols, "rows": rows}
        yield Case(f"n={n} rows={rows} cols={cols}", ops, params, rows=max(n, rows))


KERNEL = Kernel("bias_add", launch, reference, cases)
