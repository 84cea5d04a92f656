"""How the matmul family is launched, and the operands of its cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .kernel import Array, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, step_words


@dataclass(frozen=True)
class Tile:
    """BM weight rows by BN tokens per workgroup, RT by CT per invocation; `speed`: products per
    compute unit and time, relative to the best tile, when the device is full."""

    bm: int
    bn: int
    rt: int
    ct: int
    speed: float

    @property
    def size(self) -> int:
        """Invocations per workgroup."""
        return self.bm // self.rt * (self.bn // self.ct)


ROW_BYTES = 128  # 32 columns in float32
# Speeds on an H200, products of 512 tokens (docs/kernels-prefill.md)
TILES = (
    Tile(128, 128, 16, 8, 1.0),
    Tile(128, 64, 8, 8, 0.87),
    Tile(64, 64, 4, 4, 0.83),
    Tile(64, 64, 8, 8, 0.7),
    Tile(64, 32, 8, 4, 0.6),
    Tile(32, 32, 4, 4, 0.4),
    Tile(32, 16, 4, 4, 0.3),
)
# Where lanes are SIMD elements, loads from shared memory cost most: large tiles per invocation
SOFTWARE = (Tile(64, 64, 8, 8, 1.0), Tile(32, 32, 4, 4, 0.8), Tile(32, 16, 4, 4, 0.6))


def choose(
    tiles: Iterable[Tile], row_bytes: int, rows: int, tokens: int, limits: Limits
) -> Tile:
    """Of the tiles that fit, the one with the least estimated time: rounds over the compute units
    at its speed. `row_bytes`: shared memory for each row and each token of a tile."""
    most = limits.most
    fit = [t for t in tiles if t.size <= most and (t.bm + t.bn) * row_bytes <= limits.shared_bytes]

    def cost(t: Tile) -> float:
        count = -(-tokens // t.bn) * -(-rows // t.bm)
        return -(-count // limits.units) * t.bm * t.bn / t.speed

    return min(fit, key=cost)


def launch_tile(tile: Tile, build: str, rows: int, tokens: int) -> Launch:
    """A launch with a given tile; `rows` counts weight rows."""
    grid = (-(-tokens // tile.bn), -(-rows // tile.bm), 1)
    return Launch(build, (tile.size, tile.bm, tile.bn, tile.rt, tile.ct), grid)


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """The best tile for the shape."""
    m = int(params["rows"])
    tile = choose(SOFTWARE if limits.software else TILES, ROW_BYTES, m, rows, limits)
    return launch_tile(tile, ops["w"].format_name, m, rows)


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
PLAIN_SHAPES = ((1, 3, 256), (33, 65, 512))
