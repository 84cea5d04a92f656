"""router_token_logits: norm and router product of one token, for kernels that choose experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import product, rms_normalise, step_words, vector
from .routing import f32_matrix

SHAPES = ((8, 96), (64, 2048), (5, 4100), (128, 6144))  # (experts, cols)


def row_size(cols: int, limits: Limits) -> int:
    """Invocations of a row: at most some 6 vectors of each operand in one of them."""
    return limits.workgroup(128 if cols <= 2048 else 256, limits.subgroup_size)


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """A workgroup per expert."""
    cols, subgroup = int(params["cols"]), limits.subgroup_size
    return Launch("", (row_size(cols, limits), subgroup, cols), (ops["w"].rows, 1, 1), subgroup)


def reference(
    x: Array, g: Matrix, w: Matrix, logits: Array, step: Array, *, cols: int, eps: float
) -> None:
    """logits[0] (experts,) = W (rmsnorm(x) * g) from x[0] (cols,), W float32 (experts, cols)."""
    logits[0] = product(rms_normalise(x[:1, :cols], vector(g), eps), w)[0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Rows of one step and of several, ragged ones too."""
    for experts, cols in SHAPES:
        x = rng.standard_normal((1, cols)).astype(np.float32)
        ops: dict[str, Any] = {
            "x": x, "g": f32_matrix(rng.uniform(0.5, 1.5, (1, cols))),
            "w": f32_matrix(rng.standard_normal((experts, cols)) / np.sqrt(cols)),
            "logits": np.zeros((1, experts), np.float32), "step": step_words(1, 3),
        }  # fmt: skip
        yield Case(f"{experts} experts from {cols}", ops, {"cols": cols, "eps": 1e-5}, limit=1e-11)


KERNEL = Kernel("router_token_logits", launch, reference, cases,
                needs=lambda limits: limits.subgroups)  # fmt: skip
