"""How the matmul family is launched, and the operands of its cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .kernel import Array, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """64 x 64 tiles with 256 invocations where the device allows it, else 64 x 32 with 128."""
    bm, bn = 64, 64
    fits = limits.workgroup_invocations >= 256 and limits.shared_bytes >= (bm + bn) * 33 * 4
    if not fits or rows <= 32:
        bn = 32
    size = bm // 4 * (bn // 4)
    grid = (-(-int(params["rows"]) // bm), -(-rows // bn), 1)
    return Launch(ops["w"].format_name, (size, bm, bn), grid)


def case_operands(
    rng: np.random.Generator, fmt: str, n: int, rows: int, cols: int
) -> dict[str, Array | Matrix]:
    """x (n, cols), w (rows, cols), y (n, rows), step."""
    x: Any = rng.standard_normal((n, cols)).astype(np.float32)
    y: Any = rng.standard_normal((n, rows)).astype(np.float32)
    w = random_matrix(rng, fmt, rows, cols, 1 / np.sqrt(cols))
    return {"x": x, "w": w, "y": y, "step": step_words(n, 2)}


def case_params(rows: int, cols: int) -> dict[str, int | float]:
    """Push words of a product over whole rows."""
    return {"cols": cols, "rows": rows, "x_stride": cols, "y_stride": rows, "y_off": 0}


# (tokens, rows, cols): one token, ragged tiles, a tile exactly, several tiles
SHAPES = ((1, 3, 256), (33, 65, 512), (64, 64, 256), (70, 192, 768))
