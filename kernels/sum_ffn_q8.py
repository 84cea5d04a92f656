"""sum_ffn_q8: a narrow feed-forward network (gate, up, SiLU, down), from parts to parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import narrow, q8
from . import reference as plain
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, silu, step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """A workgroup per slice of the inner values, of which y has a row each."""
    cols, parts, slices = ops["x"].cols, ops["x"].rows, ops["y"].rows - 1
    part = int(params["rows"]) // slices
    invocations = narrow.size(narrow.TILING.ffn, cols, limits)
    spec = (
        invocations, limits.subgroup_size, cols, parts,
        narrow.split(cols, parts, invocations, limits), part,
        *narrow.share(part, cols // 32, invocations, limits),
        *narrow.share(cols, part // 32, invocations, limits),
    )  # fmt: skip
    return Launch(ops["w"].format_name, spec, (slices, 1, 1), limits.subgroup_size)


def reference(
    w: Matrix, d: Matrix, g: Matrix, x: Array, y: Array, step: Array, *, rows: int, eps: float
) -> None:
    """y[0] = s, the sum of x (parts, width); y[1 + i] = D q8(silu(G n) * (U n)), n = rmsnorm(s) * g
    in int8, for slice i of the inner values. w = [G; U] (2 rows, width), d (width, rows)."""
    y[0], xq, xs, norm = narrow.normed(x, g, eps)
    both = q8.product_q8(xq, xs, w) * norm
    y[1:] = narrow.products(
        silu(both[:rows]) * both[rows:], plain.parts(d)[0].dequantize(), len(y) - 1
    )


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format: sizes of small models, widths that fill no subgroup, one slice, many parts."""
    shapes = (576, 128, 10, 2), (96, 64, 2, 1), (256, 288, 3, 9), (1024, 64, 17, 1), (64, 32, 2, 1)
    for i, fmt in enumerate(narrow.FORMATS):
        for cols, rows, parts, slices in (shapes[i], shapes[1]):
            x: Any = rng.standard_normal((parts, cols)).astype(np.float32)
            ops = {
                "w": random_matrix(rng, fmt, 2 * rows, cols, 1 / np.sqrt(cols)),
                "d": random_matrix(rng, fmt, cols, rows, 1 / np.sqrt(rows)),
                "g": random_matrix(rng, "F32", 1, cols), "x": x,
                "y": np.zeros((1 + slices, cols), np.float32), "step": step_words(1, 5),
            }  # fmt: skip
            name = f"{fmt} {cols} inner={rows} parts={parts} slices={slices}"
            yield Case(name, ops, {"rows": rows, "eps": 1e-5}, limit=1e-5)


KERNEL = Kernel("sum_ffn_q8", launch, reference, cases, needs=narrow.needs)
