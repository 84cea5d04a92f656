"""How the products of experts on matrix cores are launched: tiles by the tokens of an expert.

The tokens of a routed expert are few, some more and some fewer than the mean. A tile should hold
them all, for a second one decodes the weights again; what it lacks costs little, since tokens that
are not there are neither loaded nor multiplied. So a subgroup has all of a tile's tokens, tiles are
narrow and small enough for several workgroups on a compute unit.
"""

from __future__ import annotations

from collections.abc import Mapping

from .kernel import Launch, Params, Shaped
from .limits import Limits
from .matmul_coop_launch import Tile, choose, launch_tile

# For at most that many tokens an expert in the mean; more of them take the tiles of other products
NARROW = (
    (10, Tile(128, 16, 32, 16, depth=2)),
    (21, Tile(128, 32, 32, 32, depth=1)),
    (44, Tile(128, 64, 32, 64, depth=1)),
)


def expert_tile(tokens: int, rows: int, limits: Limits, gated: bool) -> Tile:
    """The tile for experts that see `tokens` tokens in the mean; `rows` counts those of all."""
    for most, tile in NARROW:
        if tokens <= most and tile.fits(limits, gated):
            return tile
    return choose(rows, max(1, tokens), limits, gated)


def launch_experts(
    ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits, gated: bool = False
) -> Launch:
    """An expert along z; in the gated form twice the rows. RAGGED unless it sees all tokens."""
    m, groups = int(params["rows"]) * (2 if gated else 1), int(params["groups"])
    slots, experts = int(params["slots"]), int(params["experts"])
    tokens = rows * slots // experts
    ragged = slots < experts
    tile = expert_tile(tokens, m * groups, limits, gated) if ragged else choose(
        m * groups, max(1, tokens), limits, gated)  # fmt: skip
    wide = ops["x"].format_name == "F32"
    made = launch_tile(tile, ops["w"].format_name, m, rows, wide, limits)
    spec = (*made.spec, int(ragged))
    return Launch(made.build, spec, (*made.grid[:2], groups), made.subgroup_size)
