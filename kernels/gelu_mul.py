"""gelu_mul: a gate of a few values opened by GELU on columns of a wider buffer (Gemma 3n, 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .reference import gelu, step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One invocation per value; rows along y."""
    size = limits.workgroup(64)
    return Launch("", (size,), (-(-int(params["cols"]) // size), rows, 1))


def reference(
    y: Array, e: Array, step: Array, *, cols: int, y_stride: int, e_stride: int, e_off: int
) -> None:
    """y[i, :cols] = gelu(y[i, :cols]) * e[i, e_off : e_off + cols] for i < n."""
    n = int(step[words.N])
    y[:n, :cols] = gelu(y[:n, :cols]) * e[:n, e_off : e_off + cols]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """First, middle and last columns; gates where exp overflows."""
    for n, cols, parts, part, scale in ((1, 16, 6, 0, 1.0), (3, 80, 3, 2, 1.0), (2, 256, 4, 1, 60)):
        wide, total = -(-cols // 32) * 32, parts * cols
        y, e = rng.standard_normal((n, wide)) * scale, rng.standard_normal((n, total))
        ops = {"y": y.astype(np.float32), "e": e.astype(np.float32), "step": step_words(n, 1)}
        params = {"cols": cols, "y_stride": wide, "e_stride": total, "e_off": part * cols}
        yield Case(f"n={n} cols={cols} part {part} of {parts}", ops, params, rows=n, limit=1e-11)


KERNEL = Kernel("gelu_mul", launch, reference, cases)
