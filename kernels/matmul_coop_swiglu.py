"""matmul_coop_swiglu: gate and up projections of a batch on matrix cores, gated, as f16."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Reference, Shaped
from .limits import Limits
from .matmul_coop_launch import choose, format_cases, launch_tile
from .matvec_launch import ALL_FORMATS
from .reference import Floats, product, silu


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """As for a product of twice the rows: half of each tile are gates."""
    m = 2 * int(params["rows"])
    wide = ops["x"].format_name == "F32"
    tile = choose(m, rows, limits, gated=True)
    return launch_tile(tile, ops["w"].format_name, m, rows, wide, limits)


def gated_by(activated: Callable[[Floats], Floats]) -> Reference:
    """The reference for one activation."""

    def reference(
        x: Array, w: Matrix, y: Array, step: Array, *,
        cols: int, rows: int, x_stride: int, y_stride: int, y_off: int,
    ) -> None:
        """y[i, y_off : y_off + rows] = activated(G x[i]) * (U x[i]) for i < n; w = [G; U].

        w has 2 `rows` rows of `cols` values, y is float16, `rows` is even.
        """
        n = int(step[words.N])
        both = product(x[:n, :cols].astype(np.float32), w)
        gated = activated(both[:, :rows]) * both[:, rows:]
        y[:n, y_off : y_off + rows] = np.clip(gated, -65504, 65504)

    return reference


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    for case in format_cases(rng, ALL_FORMATS, stacked=2):
        rows = int(case.params["rows"]) & ~1
        w = case.operands["w"]
        assert isinstance(w, Matrix)
        w = Matrix(w.fmt, w.raw[: 2 * rows], 2 * rows, w.cols)
        y = np.zeros((case.rows, rows), np.float16)
        params = {**case.params, "rows": rows, "y_stride": rows}
        yield replace(case, operands={**case.operands, "w": w, "y": y}, params=params)


def needs(limits: Limits) -> bool:
    """Matrix cores."""
    return limits.coopmat


KERNEL = Kernel("matmul_coop_swiglu", launch, gated_by(silu), cases, needs=needs)
