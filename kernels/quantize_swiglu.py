"""quantize_swiglu: silu(gate) * up of a batch, as float16 or as int8 blocks of 32."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Reference
from .quantize_layout import forms, launch, write
from .reference import Floats, silu, step_words


def gated_by(activated: Callable[[Floats], Floats]) -> Reference:
    """The reference for one activation."""

    def reference(gu: Array, y: Array, step: Array, *, cols: int, y_stride: int) -> None:
        """y[i] = activated(gu[i, :cols]) * gu[i, cols : 2 cols] for i < n (quantize_layout.py)."""
        n = int(step[words.N])
        write(activated(gu[:n, :cols]) * gu[:n, cols : 2 * cols], y)

    return reference


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Narrow and wide rows, and gates where exp overflows."""
    for n, cols, scale in ((1, 1536, 1.0), (3, 96, 1.0), (2, 320, 60.0)):
        gu = (rng.standard_normal((n, 2 * cols)) * scale).astype(np.float32)
        ops = {"gu": gu, "step": step_words(n, 9)}
        yield from forms(rng, f"n={n} cols={cols} scale={scale:g}", ops, {"cols": cols}, n, cols)


KERNEL = Kernel("quantize_swiglu", launch, gated_by(silu), cases)
