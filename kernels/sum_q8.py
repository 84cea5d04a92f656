"""sum_q8: the residual stream of a narrow model from its parts, and times a gain in int8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import narrow, q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, step_words, vector


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup, in which several lanes share the parts of a value."""
    cols, parts = ops["x"].cols, ops["x"].rows
    invocations = narrow.size(0, cols, limits)
    spec = (invocations, limits.subgroup_size, cols, parts,
            narrow.split(cols, parts, invocations, limits))  # fmt: skip
    return Launch("", spec, (1, 1, 1), limits.subgroup_size)


def reference(
    g: Matrix, x: Array, y: Array, yq: Array, ys: Array, ssq: Array, step: Array
) -> None:
    """y[0] = s, the sum of x (parts, width); yq, ys = q8(s * g); ssq as in quantize_q8."""
    n = x.shape[1]
    y[0, :n] = x.sum(axis=0, dtype=np.float32)
    yq[: n // 4], ys[: n // q8.GROUP] = q8.quantize(y[0, :n] * vector(g))
    ssq[: n // q8.GROUP] = q8.squares(y[0, :n])


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Widths that fill no subgroup, two parts and many."""
    for cols, parts in ((576, 25), (96, 2), (1024, 49), (256, 7), (32, 3)):
        x: Any = rng.standard_normal((parts, cols)).astype(np.float32)
        ops = {
            "g": random_matrix(rng, "F32", 1, cols), "x": x, "y": np.zeros((2, cols), np.float32),
            "yq": np.zeros(cols // 4, np.uint32), "ys": np.zeros((cols // 16, 2), np.float32),
            "ssq": np.zeros(cols // 16, np.float32), "step": step_words(1, 5),
        }  # fmt: skip
        yield Case(f"{cols} parts={parts}", ops, limit=1e-5, int8=frozenset({"yq"}))


KERNEL = Kernel("sum_q8", launch, reference, cases, needs=narrow.needs)
