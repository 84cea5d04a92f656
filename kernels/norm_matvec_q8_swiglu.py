"""norm_matvec_q8_swiglu: silu(G x / rms) * (U x / rms), in and out as int8 groups of 16."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from . import q8
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Reference, Shaped
from .limits import Limits
from .reference import Floats, random_matrix, silu


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Workgroups of whole groups of 16 rows, which they quantize."""
    return q8.launch_as(ops, params, limits, q8.swiglu_tiling, whole=q8.GROUP)


def gated_by(activated: Callable[[Floats], Floats]) -> Reference:
    """The reference for one activation."""

    def reference(
        w: Matrix, xq: Array, xs: Array, ssq: Array, yq: Array, ys: Array, step: Array, *,
        cols: int, rows: int, eps: float,
    ) -> None:
        """yq, ys = q8(activated(gate) * up) of `rows` values; w = [G; U] (2 rows, cols)."""
        both = q8.product_q8(xq, xs, w) * q8.inverse_rms(ssq, cols, eps)
        out = activated(both[:rows]) * both[rows:]
        yq[: rows // 4], ys[: rows // q8.GROUP] = q8.quantize(out)

    return reference


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    for fmt in q8.FORMATS:
        for rows, cols in q8.SHAPES:
            ops = q8.vector_operands(rng, cols)
            ops["w"] = random_matrix(rng, fmt, 2 * rows, cols, 1 / np.sqrt(cols))
            ops["yq"] = np.zeros(rows // 4, np.uint32)
            ops["ys"] = np.zeros((rows // 16, 2), np.float32)
            params = {"cols": cols, "rows": rows, "eps": 1e-5}
            yield Case(f"{fmt} {rows}x{cols}", ops, params, limit=1e-5, int8=frozenset({"yq"}))


KERNEL = Kernel("norm_matvec_q8_swiglu", launch, gated_by(silu), cases, needs=q8.needs)
