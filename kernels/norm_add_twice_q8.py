"""norm_add_twice_q8: two normalised vectors added to the residual stream, the sum's int8 form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from . import norm_add_q8, q8
from .kernel import Array, Case, Kernel, Matrix
from .reference import random_matrix, rms_normalise, vector


def reference(
    x: Array, post: Matrix, g: Matrix, y: Array, yq: Array, ys: Array, ssq: Array, step: Array, *,
    cols: int, eps: float, scale: float,
) -> None:
    """y[0] = (y[0] + rmsnorm(x0) * p0 + rmsnorm(x1) * p1) * scale for x[0] = [x0; x1; …] and
    post = [p0; p1]; yq, ys = q8(y[0] * g); ssq of y[0]."""
    gains, total = vector(post), y[0, :cols]
    for i in range(2):
        part = slice(i * cols, (i + 1) * cols)
        total = total + rms_normalise(x[:1, part], gains[part], eps)[0]
    y[0, :cols] = total * np.float32(scale)
    yq[: cols // 4], ys[: cols // q8.GROUP] = q8.quantize(y[0, :cols] * vector(g))
    ssq[: cols // q8.GROUP] = q8.squares(y[0, :cols])


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of norm_add_q8, with a smaller vector behind the first."""
    for case in norm_add_q8.cases(rng):
        cols = int(case.params["cols"])
        x = case.operands["x"]
        more = rng.standard_normal((1, cols)).astype(np.float32)
        assert isinstance(x, np.ndarray)
        both = np.concatenate([x, more], axis=1)
        post = random_matrix(rng, "F32", 1, 2 * cols)
        yield replace(case, operands={**case.operands, "x": both, "post": post})


KERNEL = Kernel("norm_add_twice_q8", norm_add_q8.launch, reference, cases, needs=q8.needs)
