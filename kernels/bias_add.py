"""bias_add: a bias added to every row of a batch."""

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
    return Launch("", (size,), (-(-int(params["cols"]) // size), rows, 1))


def reference(y: Array, b: Matrix, step: Array, *, cols: int) -> None:
    """y[i] += b for i < n; b (1, cols)."""
    y[: int(step[words.N]), :cols] += vector(b)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One row, and fewer rows than the launch."""
    for n, cols in ((1, 2880), (3, 37)):
        y: Any = rng.standard_normal((n + 1, cols)).astype(np.float32)
        ops = {"y": y, "b": random_matrix(rng, "F32", 1, cols), "step": step_words(n, 2)}
        yield Case(f"n={n} cols={cols}", ops, {"cols": cols}, rows=n + 1)


KERNEL = Kernel("bias_add", launch, reference, cases)
