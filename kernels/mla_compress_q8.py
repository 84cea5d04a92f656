"""mla_compress_q8: compressed query, latent and key of a token; the query in int8 for its norm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from . import q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, vector


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Rows in whole groups of 16."""
    return q8.launch_as(ops, params, limits, q8.qkv_tiling, q8.GROUP)


def reference(
    w: Matrix, xq: Array, xs: Array, ssq: Array, g: Matrix, y: Array, yq: Array, ys: Array,
    squares_of: Array, step: Array, *, cols: int, rows: int, y_off: int, width: int, eps: float,
) -> None:
    """y[0, y_off : y_off + rows] = W x / rms. yq, ys, squares_of: q8 of y * g, and sums of squares
    of y, where y is one of the first `width` values; a multiple of 16, as y_off below it."""
    out = q8.product_q8(xq, xs, w) * q8.inverse_rms(ssq, cols, eps)
    y[0, y_off : y_off + rows] = out
    stop = min(width, y_off + rows)
    if y_off < stop:
        own, groups = out[: stop - y_off], slice(y_off // q8.GROUP, stop // q8.GROUP)
        quants, ys[groups] = q8.quantize(own * vector(g)[y_off:stop])
        yq[y_off // 4 : stop // 4], squares_of[groups] = quants, q8.squares(own)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format; some rows, all rows or no rows in int8."""
    for i, fmt in enumerate(q8.FORMATS):
        rows, cols = ((112, 256), (96, 768), (40, 512))[i % 3]
        y_off, width = ((0, 48), (0, 96), (64, 64))[i % 3]
        ops = q8.vector_operands(rng, cols)
        ops |= {
            "w": random_matrix(rng, fmt, rows, cols, 1 / np.sqrt(cols)),
            "g": random_matrix(rng, "F32", 1, width), "y": np.zeros((1, y_off + rows), np.float32),
            "yq": np.zeros(width // 4, np.uint32), "ys": np.zeros((width // 16, 2), np.float32),
            "squares_of": np.zeros(width // 16, np.float32),
        }  # fmt: skip
        params = {"cols": cols, "rows": rows, "y_off": y_off, "width": width, "eps": 1e-5}
        done = y_off < width
        only = {
            "y": np.arange(y_off + rows)[None] >= y_off, "yq": np.full(width, done),
            "ys": np.full((width // 16, 2), done), "squares_of": np.full(width // 16, done),
        }  # fmt: skip
        yield Case(f"{fmt} {rows}x{cols}, {width} from {y_off}", ops, params, scale=0.5,
                   limit=1e-5, only=only, int8=frozenset({"yq"}))  # fmt: skip


KERNEL = Kernel("mla_compress_q8", launch, reference, cases, needs=q8.needs)
