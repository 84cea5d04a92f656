"""quantize_rows: the rows of a batch as float16 or as int8 blocks of 32."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel
from .quantize_layout import forms, launch, write
from .reference import step_words


def reference(x: Array, y: Array, step: Array, *, cols: int, x_stride: int, y_stride: int) -> None:
    """y[i] = x[i, :cols] for i < n, as kernels/quantize_layout.py says; x (batch, x_stride)."""
    write(x[: int(step[words.N]), :cols], y)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Widths below and above a workgroup's share, a block of zeros, values beyond float16."""
    for n, cols, scale in ((1, 32, 1.0), (3, 576, 1.0), (2, 4096, 1e3)):
        x = (rng.standard_normal((n, cols)) * scale).astype(np.float32)
        x[0, :32] = 0
        if scale > 1:
            x[:, 40] = 1e6
        ops = {"x": x, "step": step_words(n, 0)}
        yield from forms(rng, f"n={n} cols={cols}", ops, {"cols": cols, "x_stride": cols}, n, cols)


KERNEL = Kernel("quantize_rows", launch, reference, cases)
