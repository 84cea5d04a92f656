"""norm_slice: normalised part of each row of a batch, in the form that products read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .experts_gate import put
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .quantize_layout import forms
from .reference import random_matrix, rms_normalise, step_words, vector


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per row; y says by its type which form it has."""
    cols = int(params["cols"])
    form = {"F16": "F16", "F32": "F32", "U32": "Q8"}[ops["y"].format_name]
    return Launch(form, (limits.workgroup(min(256, max(32, cols // 8)), 4),), (rows, 1, 1))


def reference(
    x: Array, g: Matrix, y: Array, step: Array, *,
    cols: int, width: int, x_stride: int, x_off: int, y_stride: int, eps: float,
) -> None:
    """y[i] (cols,) = x[i, x_off : x_off + width] / rms * g, then zeros, for i < n."""
    n = int(step[words.N])
    out = np.zeros((n, cols), np.float32)
    out[:, :width] = rms_normalise(x[:n, x_off : x_off + width], vector(g), eps)
    put(out, y, cols)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Whole rows and parts of rows."""
    for n, width, cols in ((1, 768, 768), (3, 48, 64), (4, 4096, 4096)):
        ops: dict[str, Any] = {
            "x": rng.standard_normal((n, width + 31)).astype(np.float32),
            "g": random_matrix(rng, "F32", 1, width), "step": step_words(n, 0),
        }  # fmt: skip
        params: dict[str, int | float] = {
            "cols": cols, "width": width, "x_stride": width + 31, "x_off": 7, "eps": 1e-5,
        }  # fmt: skip
        yield from forms(rng, f"n={n} cols={cols}", ops, params, n, cols)
        plain = {**ops, "y": np.zeros((n, cols), np.float32)}
        yield Case(f"n={n} cols={cols} f32", plain, {**params, "y_stride": cols}, rows=n)


KERNEL = Kernel("norm_slice", launch, reference, cases)
