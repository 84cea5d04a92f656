"""How the cooperative matrix products are launched, and the operands of their cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from .kernel import Array, Case, Launch, Matrix, Params, Shaped
from .limits import Limits
from .matmul_launch import case_operands, case_params
from .reference import random_matrix, step_words

LIMIT = 2e-6  # f16 factors and, in gated form, results: about 1e-7, with minima 5e-7


@dataclass(frozen=True)
class Tile:
    """BM weight rows by BN tokens per workgroup, WM x WN per subgroup, `depth` chunks of 32
    columns per step, `stages` steps in shared memory, `split` teams that share the columns.
    Products per compute unit and time, as parts of the best: `speed` with as many workgroups on
    a unit as its memory holds (`most` at most, for registers), `alone` with one."""

    bm: int
    bn: int
    wm: int
    wn: int
    depth: int = 2
    stages: int = 1
    split: int = 1
    speed: float = 1.0
    alone: float = 0.0
    most: int = 1

    @property
    def team(self) -> int:
        """Subgroups that make one tile together."""
        return self.bm // self.wm * (self.bn // self.wn)

    @property
    def team_bytes(self) -> int:
        """Shared memory of a team, as in shaders/matmul_coop.glsl."""
        return self.stages * (self.bm + self.bn) * (self.depth * 4 + 1) * 16

    def fits(self, limits: Limits, gated: bool = False) -> bool:
        """Whether a device can run it; the gated form halves the rows of a subgroup."""
        size = self.team * self.split * limits.subgroup_size
        m, n, _ = limits.coopmat_shape
        # teams leave their sums, and ragged edges are staged, in the tiles' memory
        results = self.bm * self.bn * 4 if self.split > 1 else self.team * m * n * 4
        return (
            size <= limits.most
            and self.split * self.team_bytes <= limits.shared_bytes
            and self.wm % (2 * m if gated else m) == 0 and self.wn % n == 0
            and results <= self.team_bytes
        )  # fmt: skip


# From large to small; speeds on an H200 (docs/kernels-prefill.md). Large tiles read less, small
# ones keep all compute units at work, teams shorten the way through long columns.
TILES = (
    Tile(128, 128, 64, 64, depth=1, speed=0.88, alone=0.66, most=2),
    Tile(128, 128, 32, 64, speed=0.86),
    Tile(64, 64, 32, 32, speed=0.64, alone=0.42, most=2),
    Tile(64, 64, 32, 32, split=2, speed=0.51),
    Tile(64, 64, 32, 32, depth=1, speed=0.4),
    Tile(64, 32, 32, 16, split=2, speed=0.27),
    Tile(64, 16, 32, 16, split=4, speed=0.19),
    Tile(32, 16, 32, 16, split=7, speed=0.15),
    Tile(32, 16, 32, 16, split=4, speed=0.14),
    Tile(32, 16, 32, 16, depth=1, speed=0.05),
)


def tile_count(tile: Tile, rows: int, tokens: int) -> tuple[int, int]:
    """Tiles along the tokens and along the weight rows."""
    return -(-tokens // tile.bn), -(-rows // tile.bm)


def cost(tile: Tile, rows: int, tokens: int, limits: Limits) -> float:
    """Relative time: full rounds of workgroups over the compute units, then what is left."""
    x, y = tile_count(tile, rows, tokens)
    held = max(1, min(tile.most, limits.shared_bytes // (tile.split * tile.team_bytes)))
    rounds, left = divmod(x * y, limits.units * held)
    area = tile.bm * tile.bn
    one = area / (tile.alone or tile.speed)
    full = held * area / tile.speed if held == tile.most else one
    rest = 0.0 if not left else one if left <= limits.units else full
    return rounds * full + rest


def choose(rows: int, tokens: int, limits: Limits, gated: bool = False) -> Tile:
    """The tile with the least estimated time; the last of the table when none fits."""
    fit = [t for t in TILES if t.fits(limits, gated)] or [TILES[-1]]
    return min(fit, key=lambda t: cost(t, rows, tokens, limits))


def launch_tile(
    tile: Tile, build: str, rows: int, tokens: int, wide: bool, limits: Limits
) -> Launch:
    """A launch with a given tile. `rows` counts weight rows; `wide`: x is float32."""
    size = tile.team * tile.split * limits.subgroup_size
    spec = (
        size, tile.bm, tile.bn, tile.wm, tile.wn, tile.depth, tile.stages, tile.split,
        *limits.coopmat_shape, int(wide),
    )  # fmt: skip
    return Launch(build, spec, (*tile_count(tile, rows, tokens), 1), limits.subgroup_size)


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """The best tile for the shape; x is float32 or float16."""
    m = int(params["rows"])
    wide = ops["x"].format_name == "F32"
    return launch_tile(choose(m, rows, limits), ops["w"].format_name, m, rows, wide, limits)


# (tokens, rows, cols): one token, ragged and misaligned, whole tiles, several tiles, odd chunks
SHAPES = ((1, 3, 256), (33, 65, 512), (128, 256, 256), (70, 192, 768))


def format_cases(
    rng: np.random.Generator, formats: tuple[str, ...], stacked: int = 1
) -> Iterator[Case]:
    """Every format and shape, with f16 inputs and some with f32; `stacked` matrices per weight.

    Scales and then products with them are rounded to float16, alike in all of a group of weights,
    and a gate doubles the relative error: a few outputs alone would be a lottery (18 in Q3_K reach
    1.5e-6 in 1500 draws, 96 0.5e-6).
    """
    for fmt in formats:
        for n, rows, cols in SHAPES:
            rows = rows if stacked == 1 else max(rows, 98)
            for dtype in (np.float16, np.float32) if cols == 512 else (np.float16,):
                ops = case_operands(rng, fmt, n, rows, cols)
                ops["x"] = np.asarray(ops["x"], dtype)
                if stacked > 1:
                    ops["w"] = random_matrix(rng, fmt, stacked * rows, cols, 1 / np.sqrt(cols))
                name = f"{fmt} n={n} {rows}x{cols} {np.dtype(dtype).name}"
                params = case_params(rows, cols)
                yield Case(name, ops, params, rows=n, limit=LIMIT, scale=0.5)


def odd_case(rng: np.random.Generator) -> Case:
    """A batch smaller than the launch, an odd number of chunks, columns in the middle of y."""
    ops: dict[str, Array | Matrix] = case_operands(rng, "Q4_0", 150, 96, 544)
    ops |= {"step": step_words(137, 0), "y": np.zeros((150, 160), np.float32)}
    inside = np.zeros((150, 160), bool)
    inside[:137, 32:128] = True
    params = {**case_params(96, 544), "y_stride": 160, "y_off": 32}
    return Case("Q4_0 137 of 150 rows, into the middle", ops, params, rows=150, limit=LIMIT,
                only={"y": inside})  # fmt: skip
