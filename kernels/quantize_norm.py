"""quantize_norm: normalised rows of a batch, as float16 or as int8 blocks of 32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Matrix
from .quantize_layout import forms, launch, write
from .reference import random_matrix, rms_normalise, step_words, vector


def reference(
    x: Array, g: Matrix, y: Array, step: Array, *, cols: int, y_stride: int, eps: float
) -> None:
    """y[i] = x[i] / rms(x[i]) * g for i < n, as kernels/quantize_layout.py says."""
    n = int(step[words.N])
    write(rms_normalise(x[:n, :cols], vector(g), eps).astype(np.float32), y)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Narrow and wide rows of small and large magnitude."""
    for n, cols, scale in ((1, 576, 1.0), (3, 64, 1e3), (4, 4096, 1e-3)):
        ops: dict[str, Any] = {
            "x": (rng.standard_normal((n, cols)) * scale).astype(np.float32),
            "g": random_matrix(rng, "F32", 1, cols), "step": step_words(n, 0),
        }  # fmt: skip
        params: dict[str, int | float] = {"cols": cols, "eps": 1e-5}
        yield from forms(rng, f"n={n} cols={cols}", ops, params, n, cols)


KERNEL = Kernel("quantize_norm", launch, reference, cases)
