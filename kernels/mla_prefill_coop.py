"""mla_prefill_coop: causal latent attention of a batch over a float16 cache, on matrix cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .attention_prefill_coop import needs
from .kernel import Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .mla_prefill import reference
from .reference import step_words

LIMIT = 2e-6  # f16 queries and weights


@dataclass(frozen=True)
class Tile:
    """BM rows (heads of tokens) and BT positions by some subgroups, which for the scores share the
    columns in `parts` parts and take `group` tiles of rows each; `ahead`: load before use."""

    bm: int
    bt: int
    subgroups: int
    parts: int
    group: int = 1
    ahead: int = 1

    def shared_bytes(self, width: int, limits: Limits) -> int:
        """Shared memory, as in shaders/mla_prefill_coop.glsl."""
        m, n, _ = limits.coopmat_shape
        row = max(self.bt // 4, self.bt // 8 + n // 4) | 1
        rows = self.bt * (width // 8 | 1) + self.parts * self.bm * row
        return 16 * rows + 8 * (self.bm // m)

    def fits(self, rank: int, rot: int, limits: Limits) -> bool:
        """Whether a device can run it for rows of rank + rot values."""
        m, n, k = limits.coopmat_shape
        width, size = rank + rot, self.subgroups * limits.subgroup_size
        if self.bm % (m * self.group) or any(self.bt % side for side in (m, n, k)):
            return False
        if width % k or width % 8 or rank % n or n % 4 or size % self.bm:
            return False
        users = self.bm // (m * self.group) * self.parts  # subgroups per tile of positions
        lanes = size // self.bm
        return (
            size <= limits.most
            and self.subgroups % users == 0 and self.bt // n % (self.subgroups // users) == 0
            and self.parts <= width // k
            and limits.subgroup_size % lanes == 0 and self.bt // lanes % 2 == 0
            and self.subgroups * m * n // 4 <= self.bt * (width // 8 | 1)
            and self.shared_bytes(width, limits) <= limits.shared_bytes
        )  # fmt: skip


# The first one that fits is taken, of the second list where the first leaves units idle
TILES = (Tile(32, 32, 8, 2), Tile(32, 16, 8, 4), Tile(32, 16, 4, 2))
SMALL = (Tile(16, 32, 8, 4), Tile(16, 16, 4, 4), Tile(16, 16, 4, 2), Tile(16, 16, 2, 2))


def choose(rank: int, rot: int, rows: int, limits: Limits) -> Tile | None:
    """The tile for that many rows of a batch; None where none fits."""
    large = [t for t in TILES if t.fits(rank, rot, limits) and rows >= limits.units * t.bm]
    fit = large + [t for t in (*SMALL, *TILES) if t.fits(rank, rot, limits)]
    return fit[0] if fit else None


def suits(rank: int, rot: int, limits: Limits) -> bool:
    """Whether latents of this size can be cut into the device's matrices and fit its memory."""
    return choose(rank, rot, 1, limits) is not None


def launch_tile(
    tile: Tile, build: str, sizes: tuple[int, int, int], rows: int, limits: Limits
) -> Launch:
    """A launch with a given tile; `sizes`: heads, rank, n_rot; `rows`: tokens."""
    heads, rank, rot = sizes
    spec = (
        tile.subgroups * limits.subgroup_size, limits.subgroup_size, rank, rot, tile.bm, tile.bt,
        tile.parts, tile.group, tile.ahead, *limits.coopmat_shape,
    )  # fmt: skip
    return Launch(build, spec, (-(-rows * heads // tile.bm), 1, 1), limits.subgroup_size)


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Tiles of (token, head) rows along x."""
    heads, rank, rot = (int(params[name]) for name in ("heads", "rank", "n_rot"))
    tile = choose(rank, rot, rows * heads, limits)
    if tile is None:
        raise ValueError(f"latent attention of {rank} + {rot} values does not fit the device")
    build = "HALF" if ops["y"].format_name == "F16" else "WIDE"
    return launch_tile(tile, build, (heads, rank, rot), rows, limits)


def make_case(
    rng: np.random.Generator, sizes: tuple[int, int, int], n: int, pos: int, dtype: Any
) -> Case:
    """n tokens after pos positions, in buffers for one more; y float16 or float32."""
    heads, rank, rot = sizes
    ops: dict[str, Any] = {
        "q": rng.standard_normal((n + 1, heads * (rank + rot))).astype(np.float32),
        "k": rng.standard_normal((pos + n + 2, rank + rot)).astype(np.float16),
        "y": np.zeros((n + 1, heads * rank), dtype), "step": step_words(n, pos),
    }  # fmt: skip
    params = {"heads": heads, "rank": rank, "n_rot": rot, "scale": 0.07}
    only = {"y": np.arange(n + 1)[:, None].repeat(heads * rank, 1) < n}
    name = f"{heads} heads {rank}+{rot} n={n} pos={pos} {np.dtype(dtype).name}"
    return Case(name, ops, params, rows=n + 1, only=only, limit=LIMIT)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """From the start and in the middle, ragged tiles, both results, many heads and few."""
    shapes: Any = (
        ((4, 64, 32), 1, 0, np.float32), ((20, 512, 64), 5, 30, np.float16),
        ((3, 96, 16), 40, 7, np.float16), ((20, 512, 64), 230, 90, np.float16),
        ((128, 512, 64), 3, 300, np.float32),
    )  # fmt: skip
    for sizes, n, pos, dtype in shapes:
        yield make_case(rng, sizes, n, pos, dtype)


KERNEL = Kernel("mla_prefill_coop", launch, reference, cases, needs=needs)
