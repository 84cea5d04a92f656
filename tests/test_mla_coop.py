"""Latent attention on emulated matrix cores, in several tilings; which tile a device gets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coop_emulation import LANES, emulated

from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import run_case
from kompute_llm.kernels import mla_prefill_coop
from kompute_llm.kernels.limits import Limits
from kompute_llm.kernels.mla_prefill_coop import SMALL, TILES, Tile, choose, launch_tile, make_case

LARGE = Limits(
    workgroup_invocations=1024, workgroup_size=(1024, 1024, 64), shared_bytes=49152,
    subgroup_size=32, subgroup_arithmetic=True, full_subgroups=True, coopmat=True,
    compute_units=132,
)  # fmt: skip
EMULATED = Limits(subgroup_size=LANES, shared_bytes=1 << 14)  # and 16 KB for the matrices
TILINGS = {  # with heads, rank and n_rot, tokens, positions before them
    "groups of rows, uneven parts": (
        Tile(32, 32, 4, 2, 2, ahead=0), (5, 64, 16), 8, 38, np.float32
    ),
    "two bands": (Tile(32, 16, 4, 2), (3, 128, 32), 13, 5, np.float16),
    "shared positions": (Tile(16, 32, 4, 2), (2, 96, 16), 9, 60, np.float16),
}  # fmt: skip


@pytest.mark.parametrize("name", TILINGS)
def test_tilings(vulkan: Device, name: str) -> None:
    """Ragged tiles of rows and positions, tokens inside of a tile, large queries, both results."""
    if vulkan.limits.subgroup_size != LANES or not vulkan.limits.float16:
        pytest.skip(f"the emulation wants float16 and subgroups of {LANES}")
    tile, sizes, n, pos, dtype = TILINGS[name]
    assert tile.fits(*sizes[1:], EMULATED.with_(workgroup_invocations=1 << 10))
    case = make_case(np.random.default_rng(7), sizes, n, pos, dtype)
    q: Any = case.operands["q"]  # absorbed queries can be large, some beyond the range of float16
    q[:, 5 :: sum(sizes[1:])] *= np.float32(1e6)
    build = "HALF" if dtype is np.float16 else "WIDE"
    launch = launch_tile(tile, build, sizes, case.rows, EMULATED)
    result = run_case(vulkan, emulated(mla_prefill_coop.KERNEL, launch), case)
    assert result.ok, (result.nmse, result.note)


@pytest.mark.parametrize(
    "limits,fits",
    [
        (LARGE, True), (LARGE.with_(subgroup_size=64, shared_bytes=65536), True),
        (LARGE.with_(coopmat_shape=(8, 16, 16), subgroup_size=16, shared_bytes=65536), True),
        (LARGE.with_(shared_bytes=32768), True), (LARGE.with_(shared_bytes=16384), False),
        (LARGE.with_(workgroup_invocations=32), False),
    ],
    ids=["NVIDIA", "AMD", "Intel", "32 KB", "16 KB", "32 invocations"],
)  # fmt: skip
def test_tiles_fit(limits: Limits, fits: bool) -> None:
    """Rows of 512 + 64 values: a tile that the device can run, or none."""
    assert mla_prefill_coop.suits(512, 64, limits) == fits
    for rows in (1, 20, 640, 10240) if fits else ():
        tile = choose(512, 64, rows, limits)
        assert tile is not None and tile.fits(512, 64, limits)


def test_tiles_follow_the_rows() -> None:
    """Large tiles where all units have some; latents that matrices do not divide are refused."""
    assert choose(512, 64, 512 * 20, LARGE) is TILES[0]
    assert choose(512, 64, 16 * 20, LARGE) is SMALL[0]
    assert not mla_prefill_coop.suits(500, 64, LARGE)
