"""rmsnorm: root-mean-square normalisation of every row of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, rms_normalise, step_words, vector


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per row; a tree sum in shared memory."""
    return Launch("", (limits.workgroup(256),), (rows, 1, 1))


def reference(
    x: Array, g: Matrix, y: Array, step: Array, *, n_embd: int, eps: float
) -> None:
    """y[i] = x[i] / rms(x[i]) * g for the rows i < n; x and y (batch, n_embd), g (n_embd,)."""
    n = int(step[words.N])
    y[:n, :n_embd] = rms_normalise(x[:n, :n_embd], vector(g), eps)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Widths below, at and above a workgroup, odd ones, and large magnitudes."""
    for n, cols, scale in ((1, 576, 1.0), (3, 1, 1.0), (2, 257, 1e3), (4, 4096, 1e-3)):
        ops: dict[str, Array | Matrix] = {
            "x": (rng.standard_normal((n, cols)) * scale).astype(np.float32),
            "g": random_matrix(rng, "F32", 1, cols),
            "y": np.zeros((n, cols), np.float32),
            "step": step_words(n, 0),
        }
        yield Case(f"n={n} cols={cols}", ops, {"n_embd": cols, "eps": 1e-5}, rows=n, limit=1e-12)


KERNEL = Kernel("rmsnorm", launch, reference, cases)
