"""embed_q8: a token's row of the embedding matrix, in float32 and times a gain in int8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..engine.blocks import FORMATS
from . import embed, quantize_q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .q8 import GROUP
from .reference import random_matrix, step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One invocation per group."""
    size = limits.workgroup(64)
    grid = (-(-int(params["n_embd"]) // (GROUP * size)), 1, 1)
    return Launch(ops["w"].format_name, (size,), grid)


def reference(
    tokens: Array, w: Matrix, g: Matrix, x: Array, yq: Array, ys: Array, ssq: Array, step: Array,
    *, n_embd: int, row0: int, rows: int, scale: float,
) -> None:
    """As embed for one token, then as quantize_q8, where the token is in [row0, row0 + rows)."""
    if 0 <= int(tokens[0]) - row0 < rows:
        embed.reference(tokens, w, x, step, n_embd=n_embd, row0=row0, rows=rows, scale=scale)
        quantize_q8.reference(x, g, yq, ys, ssq, step, cols=n_embd)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format; a row width that is not a power of two; rows from the middle of a matrix."""
    for i, name in enumerate(FORMATS):
        cols, row0 = (256, 768)[i % 2], 5 * (i % 3)
        ops: dict[str, Array | Matrix] = {
            "tokens": np.array([row0 + 11 + i % 9], np.uint32),
            "w": random_matrix(rng, name, 37, cols), "g": random_matrix(rng, "F32", 1, cols),
            "x": np.zeros((1, cols), np.float32), "yq": np.zeros(cols // 4, np.uint32),
            "ys": np.zeros((cols // GROUP, 2), np.float32),
            "ssq": np.zeros(cols // GROUP, np.float32), "step": step_words(1, 3),
        }  # fmt: skip
        params = {"n_embd": cols, "row0": row0, "rows": 37, "scale": (1.0, 27.5)[i % 2]}
        yield Case(f"{name} cols={cols}", ops, params, limit=1e-5, int8=frozenset({"yq"}))


KERNEL = Kernel("embed_q8", launch, reference, cases)
