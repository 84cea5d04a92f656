"""How the int8 products of a batch are launched, and the operands of their cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .kernel import Array, Case, Launch, Matrix, Params, Shaped
from .limits import Limits
from .matmul_launch import SHAPES, Tile, case_operands, case_params, choose, launch_tile
from .q8 import FORMATS
from .quantize_layout import pack, row_words
from .reference import step_words

ROW_BYTES, FINE_BYTES = 80, 96  # 64 columns of int8 and their scales; minima per 16 columns
# Speeds on an H200, products of 512 tokens (docs/kernels-prefill.md)
TILES = (
    Tile(128, 128, 4, 8, 1.02),
    Tile(64, 128, 8, 8, 1.0),
    Tile(64, 64, 4, 4, 0.93),
    Tile(64, 32, 4, 4, 0.6),
    Tile(32, 32, 4, 2, 0.4),
    Tile(32, 16, 4, 1, 0.2),
)
SOFTWARE = (Tile(32, 32, 4, 2, 1.0),)  # only there to be tested: small code compiles sooner


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """The best tile for the shape."""
    m = int(params["rows"])
    fmt = ops["w"].format_name
    row_bytes = FINE_BYTES if fmt == "Q2_K" else ROW_BYTES
    tile = choose(SOFTWARE if limits.software else TILES, row_bytes, m, rows, limits)
    return launch_tile(tile, fmt, m, rows)


def int8_operands(ops: Mapping[str, Array | Matrix], cols: int) -> dict[str, Array | Matrix]:
    """The operands with x packed into int8 rows."""
    x: Any = ops["x"]
    return {**ops, "x": pack(x[:, :cols])}


def format_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    for fmt in FORMATS:
        for n, rows, cols in SHAPES:
            ops = int8_operands(case_operands(rng, fmt, n, rows, cols), cols)
            params = case_params(rows, cols) | {"x_stride": row_words(cols)}
            yield Case(f"{fmt} n={n} {rows}x{cols}", ops, params, rows=n, scale=0.5)


def odd_case(rng: np.random.Generator) -> Case:
    """A batch smaller than the launch, an odd number of blocks, columns in the middle of y."""
    ops = int8_operands(case_operands(rng, "Q4_1", 50, 40, 224), 224)
    ops |= {"step": step_words(37, 0), "y": np.zeros((50, 96), np.float32)}
    inside = np.zeros((50, 96), bool)
    inside[:37, 32:72] = True
    params = case_params(40, 224) | {"x_stride": row_words(224), "y_stride": 96, "y_off": 32}
    return Case("Q4_1 37 of 50 rows, into the middle", ops, params, rows=50, only={"y": inside})
