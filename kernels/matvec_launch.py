"""How the mat-vec family is launched, and the operands of its cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from .kernel import Array, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, step_words

T = TypeVar("T")
ALL_FORMATS = (
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "Q2_K",
    "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4", "INT8", "INT4_G32", "INT4_G64", "INT4_G128",
    "INT3_G64",
)  # fmt: skip
# Only in embed, norm_matvec, matvec_add, matmul, matmul_add, matmul_coop and matmul_coop_add
PLAIN_FORMATS = (
    "NVFP4", "TQ1_0", "TQ2_0", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
)  # fmt: skip


# Those of them that cases of kernels with many formats take: a codebook, one with shifts, codes
FEW_PLAIN = ("IQ2_XXS", "IQ1_M", "NVFP4")


def grid_2d(count: int, limits: Limits) -> tuple[int, int, int]:
    """`count` workgroups as a grid within the device's limits; shaders ignore the surplus."""
    x = min(count, limits.grid[0])
    return (x, -(-count // x), 1)


def lanes_per_row(cols: int, rows: int, limits: Limits) -> int:
    """Lanes that share a row: one for each chunk of 32 values while that leaves units idle."""
    chunks, idle = cols // 32, limits.units * 1024
    lanes = 8
    while lanes < min(32, chunks) and (rows * lanes <= idle or lanes * 4 <= chunks):
        lanes *= 2
    return min(lanes, limits.subgroup_size) if limits.subgroups else lanes


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Groups of lanes take rows; small matrices get small workgroups so that all units work.

    A software device takes one row per lane, so that all its lanes load the same inputs.
    """
    n, cols = int(params["rows"]), int(params["cols"])
    fmt = ops["w"].format_name
    shuffles = limits.subgroups and fmt not in PLAIN_FORMATS
    build = f"{fmt}.{'SG1' if shuffles else 'SG0'}"
    subgroup = limits.subgroup_size if shuffles else 0
    if limits.software:
        size, lanes, per_group = max(subgroup, 8), 1, 8
    else:
        lanes = lanes_per_row(cols, n, limits)
        # several rows per group reuse the inputs from registers once there is work for everyone
        enough = limits.units * 2048
        per_group = 4 if n * lanes >= enough * 4 else 2 if n * lanes >= enough * 2 else 1
        size = limits.workgroup(64 if n * lanes < enough else 128, lanes)
    groups = -(-n // (size // lanes * per_group))
    return Launch(build, (size, lanes, per_group), grid_2d(groups, limits), subgroup)


def case_operands(
    rng: np.random.Generator, fmt: str, rows: int, cols: int, stacked: int = 1
) -> dict[str, Array | Matrix]:
    """x (1, cols), w (stacked * rows, cols), y (1, rows), step: one token."""
    w = random_matrix(rng, fmt, stacked * rows, cols, 1 / np.sqrt(cols))
    x: Any = rng.standard_normal((1, cols)).astype(np.float32)
    y: Any = rng.standard_normal((1, rows)).astype(np.float32)
    return {"x": x, "w": w, "y": y, "step": step_words(1, 5)}


def case_params(rows: int, cols: int) -> dict[str, int | float]:
    """Push words of a product that writes its rows at the start of y."""
    return {"cols": cols, "rows": rows, "y_stride": rows, "y_off": 0}


# (rows, cols): one row, ragged rows, long rows, real shapes of a small model
SHAPES = ((1, 256), (3, 512), (67, 256), (576, 768), (33, 4096), (192, 1536), (2, 28672))
PLAIN_SHAPES = ((1, 256), (67, 256), (33, 4096), (2, 28672))


def every_format(shapes: Sequence[T], few: Sequence[T]) -> Iterator[tuple[str, T]]:
    """(format, shape) of the cases of a kernel that takes plain formats too, those in `few`."""
    yield from itertools.product(ALL_FORMATS, shapes)
    yield from itertools.product(PLAIN_FORMATS, few)
