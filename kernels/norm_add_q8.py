"""norm_add_q8: a normalised vector added to the residual stream, and the sum's int8 form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, rms_normalise, step_words, vector


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One invocation per value."""
    cols, subgroup = int(params["cols"]), limits.subgroup_size
    size = limits.workgroup(256, max(subgroup, q8.GROUP))
    return Launch("", (size, subgroup), (-(-cols // size), 1, 1), subgroup)


def reference(
    x: Array, post: Matrix, g: Matrix, y: Array, yq: Array, ys: Array, ssq: Array, step: Array, *,
    cols: int, eps: float, scale: float,
) -> None:
    """y[0] = (y[0] + x[0] / rms(x[0]) * post) * scale; yq, ys = q8(y[0] * g); ssq of y[0]."""
    normed = rms_normalise(x[:1, :cols], vector(post), eps)
    y[0, :cols] = (y[0, :cols] + normed[0]) * np.float32(scale)
    yq[: cols // 4], ys[: cols // q8.GROUP] = q8.quantize(y[0, :cols] * vector(g))
    ssq[: cols // q8.GROUP] = q8.squares(y[0, :cols])


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Widths below and above a workgroup, ragged ones, a scale."""
    for cols, scale in ((96, 1.0), (576, 0.25), (4096, 1.0), (2320, 3.0)):
        values = rng.standard_normal((2, 1, cols)).astype(np.float32)
        ops: dict[str, Any] = {
            "x": values[0] * np.float32(30), "y": values[1],
            "post": random_matrix(rng, "F32", 1, cols), "g": random_matrix(rng, "F32", 1, cols),
            "yq": np.zeros(cols // 4, np.uint32), "ys": np.zeros((cols // 16, 2), np.float32),
            "ssq": np.zeros(cols // 16, np.float32), "step": step_words(1, 3),
        }  # fmt: skip
        params = {"cols": cols, "eps": 1e-5, "scale": scale}
        yield Case(f"cols={cols} scale={scale:g}", ops, params, limit=1e-5, int8=frozenset({"yq"}))


KERNEL = Kernel("norm_add_q8", launch, reference, cases, needs=q8.needs)
