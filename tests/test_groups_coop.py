"""Products of experts and heads on emulated matrix cores: rows, tokens and offsets of one group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coop_emulation import LANES, emulated

from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import run_case
from kompute_llm.kernels import (
    experts_matmul_coop,
    experts_matmul_coop_swiglu,
    heads_matmul_coop,
)
from kompute_llm.kernels.experts_coop_launch import NARROW, expert_tile
from kompute_llm.kernels.experts_rows import case_batch, pick
from kompute_llm.kernels.kernel import Case, Kernel, Launch
from kompute_llm.kernels.limits import Limits
from kompute_llm.kernels.matmul_coop_launch import Tile, launch_tile
from kompute_llm.kernels.reference import random_matrix, step_words

ROWS, TILE, RAGGED = 40, Tile(16, 16, 16, 16, 2), Tile(32, 32, 32, 32, 1)
NVIDIA = Limits(
    workgroup_invocations=1024, workgroup_size=(1024, 1024, 64), shared_bytes=49152,
    subgroup_size=32, subgroup_arithmetic=True, full_subgroups=True, coopmat=True,
    compute_units=132,
)  # fmt: skip


def checked(
    device: Device, kernel: Kernel, case: Case, fmt: str, wide: bool, tile: Tile = TILE
) -> None:
    """The case in a tiling that the emulation knows; it wants one group along z."""
    if device.limits.subgroup_size != LANES or not device.limits.float16:
        pytest.skip(f"the emulation wants float16 and subgroups of {LANES}")
    rows = ROWS * (2 if kernel is experts_matmul_coop_swiglu.KERNEL else 1)
    made = launch_tile(tile, fmt, rows, case.rows, wide, Limits(subgroup_size=LANES))
    spec = (*made.spec, int(tile is RAGGED))
    launch = Launch(made.build, spec, made.grid, made.subgroup_size)
    result = run_case(device, emulated(kernel, launch), case)
    assert result.ok, (result.nmse, result.note)


@pytest.mark.parametrize("fmt,tile", [("Q4_0", RAGGED), ("Q3_K", TILE)])
def test_experts(vulkan: Device, fmt: str, tile: Tile) -> None:
    """The second of three experts, ups behind gates: rows of others stay as they are. A tile that
    has fewer tokens than it could have."""
    rng, cols = np.random.default_rng(4), 256
    ops: dict[str, Any] = pick(case_batch(rng, 20, 3, 2, 0), "start")
    x: Any = rng.standard_normal((42, cols)).astype(np.float16)
    w = random_matrix(rng, fmt, 2 * ROWS, cols, cols**-0.5)
    ops |= {"x": x, "w": w, "y": np.zeros((42, 2 * ROWS), np.float32)}
    row = np.arange(42)[:, None]
    inside = (row >= ops["start"][1]) & (row < ops["start"][2])
    only = {"y": inside & (np.arange(2 * ROWS) >= ROWS)}
    params: dict[str, int | float] = {
        "cols": cols, "rows": ROWS, "x_stride": cols, "y_stride": 2 * ROWS, "y_off": ROWS,
        "first": 1, "row0": ROWS, "groups": 1, "slots": 2, "experts": 3,
    }  # fmt: skip
    case = Case(fmt, ops, params, rows=21, only=only, limit=3e-6)
    checked(vulkan, experts_matmul_coop.KERNEL, case, fmt, False, tile)


def test_gated_experts(vulkan: Device) -> None:
    """The second of three experts: gates of two experts, then their ups."""
    rng, cols = np.random.default_rng(5), 96
    ops: dict[str, Any] = pick(case_batch(rng, 20, 3, 2, 0), "start")
    x: Any = rng.standard_normal((42, cols)).astype(np.float16)
    w = random_matrix(rng, "Q4_0", 4 * ROWS, cols, cols**-0.5)
    ops |= {"x": x, "w": w, "y": np.zeros((42, ROWS), np.float16)}
    row = np.arange(42)[:, None]
    inside = (row >= ops["start"][1]) & (row < ops["start"][2])
    only = {"y": np.broadcast_to(inside, (42, ROWS))}
    params: dict[str, int | float] = {
        "cols": cols, "rows": ROWS, "x_stride": cols, "y_stride": ROWS, "y_off": 0,
        "first": 1, "row0": ROWS, "up": 2 * ROWS, "groups": 1, "slots": 2, "experts": 3,
    }  # fmt: skip
    case = Case("Q4_0", ops, params, rows=21, only=only, limit=3e-6)
    checked(vulkan, experts_matmul_coop_swiglu.KERNEL, case, "Q4_0", False, RAGGED)


def test_tiles_of_experts() -> None:
    """Tiles that hold an expert's tokens, what other products take where they do not fit."""
    for tokens, bn in ((1, 16), (16, 32), (32, 64)):
        for gated in (False, True):
            tile = expert_tile(tokens, 64 * 3072, NVIDIA, gated)
            assert tile.bn == bn and tile.fits(NVIDIA, gated)
    assert expert_tile(200, 64 * 3072, NVIDIA, True).bn >= 64
    small = NVIDIA.with_(shared_bytes=16384, workgroup_invocations=128)
    for tokens in (1, 16, 32, 64):
        assert expert_tile(tokens, 4096, small, True).fits(small, True)
    assert all(tile.fits(NVIDIA, True) for _, tile in NARROW)


def test_heads(vulkan: Device) -> None:
    """Float32 inputs, values beside the head's in both rows."""
    rng, cols, n = np.random.default_rng(6), 96, 19
    x: Any = rng.standard_normal((n, cols + 32)).astype(np.float32)
    ops: dict[str, Any] = {
        "x": x, "w": random_matrix(rng, "F16", ROWS, cols, cols**-0.5), "step": step_words(n, 2),
        "y": np.zeros((n, ROWS + 24), np.float32),
    }  # fmt: skip
    params: dict[str, int | float] = {
        "cols": cols, "rows": ROWS, "x_stride": cols + 32, "y_stride": ROWS + 24, "y_off": 0,
        "x_head": cols + 32, "y_head": ROWS + 24, "groups": 1,
    }  # fmt: skip
    only = {"y": np.broadcast_to(np.arange(ROWS + 24) < ROWS, (n, ROWS + 24))}
    case = Case("F16", ops, params, rows=n, only=only, limit=3e-6)
    checked(vulkan, heads_matmul_coop.KERNEL, case, "F16", wide=True)
