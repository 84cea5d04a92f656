"""roof_coop: the rate of products on matrix cores, f16 factors and f32 sums (bench --roof)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .matvec_launch import grid_2d

TILES = 4  # products that a subgroup makes side by side


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """`count` results, TILES matrices of them per subgroup."""
    m, n, k = limits.coopmat_shape
    size = limits.workgroup(256, limits.subgroup_size)
    results = size // limits.subgroup_size * TILES * m * n
    spec = (size, limits.subgroup_size, m, n, k)
    grid = grid_2d(-(-int(params["count"]) // results), limits)
    return Launch("", spec, grid, limits.subgroup_size)


def reference(y: Array, *, count: int, depth: int, left: float, right: float) -> None:
    """y = depth · left · right, the product of constant matrices of `depth` columns."""
    y[:count] = depth * left * right


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Values whose products and sums are exact; whole tiles of every shape."""
    for count, depth in ((4096, 64), (1024, 128)):
        params = {"count": count, "depth": depth, "left": 1.5, "right": 0.25}
        yield Case(f"{count} results, depth {depth}", {"y": np.zeros(count, np.float32)}, params)


KERNEL = Kernel("roof_coop", launch, reference, cases, needs=lambda limits: limits.coopmat)
