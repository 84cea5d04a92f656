"""norm_add: a normalised vector added to the residual stream, or group by group to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, rms_normalise, step_words, vector


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per group and row; a tree sum in shared memory."""
    size = limits.workgroup(min(256, max(32, int(params["cols"]) // 4)))
    return Launch("", (size,), (int(params["groups"]), rows, 1))


def reference(
    x: Array, g: Matrix, y: Array, step: Array, *, cols: int, groups: int, eps: float, scale: float
) -> None:
    """y[i] = (y[i] + x[i] / rms(x[i]) * g) * scale for every group of `cols` values, i < n.

    x, y (batch, groups * cols); g (cols,).
    """
    n = int(step[words.N])
    source = x[:n, : groups * cols].reshape(n, groups, cols)
    out = y[:n, : groups * cols].reshape(n, groups, cols)
    normed = rms_normalise(source, vector(g), eps)
    y[:n, : groups * cols] = ((out + normed) * np.float32(scale)).reshape(n, -1)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Widths below and above a workgroup, odd ones, several groups, large magnitudes."""
    for n, cols, groups, magnitude, scale in (
        (1, 576, 1, 1.0, 1.0), (3, 1, 1, 1.0, 0.5), (2, 257, 1, 1e3, 1.0), (4, 4096, 1, 1e-3, 2.0),
        (3, 48, 5, 1.0, 0.7),
    ):  # fmt: skip
        shape, y = (n, groups * cols), rng.standard_normal((n, groups * cols))
        ops: dict[str, Any] = {
            "x": (rng.standard_normal(shape) * magnitude).astype(np.float32),
            "g": random_matrix(rng, "F32", 1, cols), "y": y.astype(np.float32),
            "step": step_words(n, 0),
        }  # fmt: skip
        params = {"cols": cols, "groups": groups, "eps": 1e-5, "scale": scale}
        yield Case(f"n={n} cols={cols} groups={groups}", ops, params, rows=n, limit=1e-12)


KERNEL = Kernel("norm_add", launch, reference, cases)
