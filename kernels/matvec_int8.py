"""matvec_int8: a few tokens in int8 times a weight matrix that is read once, as by a mat-vec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from . import matmul_int8, q8
from .kernel import Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .matmul_int8_launch import int8_operands
from .matmul_launch import case_operands, case_params
from .matvec_launch import grid_2d
from .quantize_layout import row_words
from .reference import step_words

MOST = 8  # tokens; more are faster on matrix cores or in tiles
SUMS = 32  # sums of a lane: rows times tokens


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """As many rows per lane group as its registers hold sums for, fewer for small matrices."""
    m, chunks, subgroup = int(params["rows"]), int(params["cols"]) // 32, limits.subgroup_size
    tokens, lanes = 2, subgroup
    while tokens < rows:
        tokens *= 2
    while lanes > 8 and lanes // 2 >= chunks:
        lanes //= 2
    each = 4
    while each > 1 and (each * tokens > SUMS or m * lanes < each * limits.units * 512):
        each //= 2
    size = limits.workgroup(256, subgroup)
    grid = grid_2d(-(-m // (size // lanes * each)), limits)
    return Launch(ops["w"].format_name, (size, lanes, each, subgroup, tokens), grid, subgroup)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format, 1 to 8 tokens, ragged rows; a batch smaller than the launch."""
    for i, fmt in enumerate(q8.FORMATS):
        for j, (rows, cols) in enumerate(((65, 512), (192, 768), (4100, 256))):
            n = 1 + (3 * i + 2 * j) % MOST
            ops = int8_operands(case_operands(rng, fmt, n, rows, cols), cols)
            params = case_params(rows, cols) | {"x_stride": row_words(cols)}
            case = Case(f"{fmt} n={n} {rows}x{cols}", ops, params, rows=max(n, 2), scale=0.5)
            yield case
    ops = int8_operands(case_operands(rng, "Q4_0", 8, 40, 224), 224)
    ops |= {"step": step_words(5, 0), "y": np.zeros((8, 96), np.float32)}
    inside = np.zeros((8, 96), bool)
    inside[:5, 32:72] = True
    params = case_params(40, 224) | {"x_stride": row_words(224), "y_stride": 96, "y_off": 32}
    yield replace(
        case, name="Q4_0 5 of 8 rows, into the middle", operands=ops, params=params, rows=8,
        only={"y": inside},
    )  # fmt: skip


KERNEL = Kernel("matvec_int8", launch, matmul_int8.reference, cases, needs=q8.needs)
