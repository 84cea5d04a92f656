"""softcap: logits kept within bounds by a hyperbolic tangent (Gemma 2, arXiv:2408.00118)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .reference import step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One invocation per value; rows along y."""
    size = limits.workgroup(256)
    grid = (-(-int(params["cols"]) // size), min(rows, int(params["rows"])), 1)
    return Launch("", (size,), grid)


def reference(y: Array, step: Array, *, cols: int, rows: int, cap: float) -> None:
    """y[i] = cap * tanh(y[i] / cap) for the rows i < min(n, rows); NaN and infinities stay."""
    n = min(int(step[words.N]), rows)
    z = y[:n, :cols] / np.float32(cap)
    y[:n, :cols] = np.where(np.isfinite(z), np.tanh(z), z) * np.float32(cap)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Small and large values; fewer rows than the batch has."""
    for n, rows, cols, scale in ((1, 1, 291, 10.0), (5, 1, 33, 1e4), (3, 8, 700, 1.0)):
        y: Any = (rng.standard_normal((rows, cols)) * scale).astype(np.float32)
        params = {"cols": cols, "rows": rows, "cap": 30.0}
        ops = {"y": y, "step": step_words(n, 0)}
        yield Case(f"n={n} rows={rows} cols={cols} scale={scale:g}", ops, params, rows=n)


KERNEL = Kernel("softcap", launch, reference, cases)
