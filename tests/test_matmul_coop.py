"""Products and attention on matrix cores: emulated, in several tilings; how tiles are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from coop_emulation import LANES, emulated

from kompute_llm.engine.blocks import FORMATS
from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import run_case, run_shader
from kompute_llm.engine.plan import Buf
from kompute_llm.kernels import (
    attention_prefill_coop,
    cache_rows,
    matmul_coop,
    matmul_coop_add,
    matmul_coop_swiglu,
    quantize_layout,
    quantize_rows,
)
from kompute_llm.kernels.kernel import Array, Case, Kernel, Launch, Matrix
from kompute_llm.kernels.limits import Limits
from kompute_llm.kernels.matmul_coop_launch import TILES, Tile, choose, launch_tile
from kompute_llm.kernels.matmul_launch import case_operands, case_params
from kompute_llm.kernels.reference import random_matrix, step_words

LARGE = Limits(
    workgroup_invocations=1024, workgroup_size=(1024, 1024, 64), shared_bytes=49152,
    subgroup_size=32, subgroup_arithmetic=True, full_subgroups=True, coopmat=True,
    compute_units=132,
)  # fmt: skip


def product_case(fmt: str, cols: int, kernel: Kernel, dtype: Any) -> Case:
    """A product of the kernel's kind, ragged in rows (40) and tokens (20)."""
    rng = np.random.default_rng(5)
    ops = case_operands(rng, fmt, 20, 40, cols)
    ops["x"] = np.asarray(ops["x"], dtype)
    if kernel is matmul_coop_swiglu.KERNEL:
        ops["w"] = random_matrix(rng, fmt, 80, cols, 1 / np.sqrt(cols))
        ops["y"] = np.zeros((20, 40), np.float16)
    return Case(fmt, ops, case_params(40, cols), rows=20, limit=3e-6)


TILINGS = {
    "one subgroup": ("Q4_0", Tile(16, 16, 16, 16, 1), matmul_coop.KERNEL, np.float16),
    "deep, f32 inputs": ("Q4_K", Tile(16, 16, 16, 16, 2), matmul_coop.KERNEL, np.float32),
    "three teams": ("Q6_K", Tile(16, 16, 16, 16, 2, 1, 3), matmul_coop.KERNEL, np.float16),
    "two stages": ("Q5_0", Tile(32, 16, 16, 16, 1, 2), matmul_coop_add.KERNEL, np.float16),
    "four subgroups": ("Q8_0", Tile(16, 64, 16, 16, 1), matmul_coop.KERNEL, np.float16),
    "gated": ("Q4_1", Tile(32, 16, 32, 16, 1), matmul_coop_swiglu.KERNEL, np.float16),
    "2 bits": ("Q2_K", Tile(16, 16, 16, 16, 2), matmul_coop.KERNEL, np.float16),
    "3 bits": ("Q3_K", Tile(16, 16, 16, 16, 2), matmul_coop_add.KERNEL, np.float16),
    "codes": ("IQ4_XS", Tile(16, 16, 16, 16, 2), matmul_coop.KERNEL, np.float16),
    "exponents": ("MXFP4", Tile(16, 16, 16, 16, 1), matmul_coop.KERNEL, np.float16),
    "ternary": ("TQ1_0", Tile(16, 16, 16, 16, 1), matmul_coop.KERNEL, np.float16),
    "codebook": ("IQ3_S", Tile(16, 16, 16, 16, 1), matmul_coop_add.KERNEL, np.float16),
    "shifted codebook": ("IQ1_M", Tile(16, 16, 16, 16, 1), matmul_coop.KERNEL, np.float16),
}


def needs_lanes(device: Device) -> None:
    """Skip on a device whose subgroups are not those of the emulation."""
    if device.limits.subgroup_size != LANES or not device.limits.float16:
        pytest.skip(f"the emulation wants float16 and subgroups of {LANES}")


@pytest.mark.parametrize("name", TILINGS)
def test_product(vulkan: Device, name: str) -> None:
    """Tilings with one and two stages, teams, odd numbers of chunks, both kinds of inputs."""
    needs_lanes(vulkan)
    fmt, tile, kernel, dtype = TILINGS[name]
    case = product_case(fmt, max(96, FORMATS[fmt].elems), kernel, dtype)
    rows = 80 if kernel is matmul_coop_swiglu.KERNEL else 40
    limits = Limits(subgroup_size=LANES)
    launch = launch_tile(tile, fmt, rows, 20, dtype is np.float32, limits)
    result = run_case(vulkan, emulated(kernel, launch), case)
    assert result.ok, (result.nmse, result.note)


@pytest.mark.parametrize(
    "subgroups,dtype,mix,ring",
    [(1, np.float32, ("F16", "F16"), 0), (4, np.float16, ("F16", "F16"), 0),
     (1, np.float16, ("Q8_0", "Q4_0"), 0), (1, np.float32, ("Q4_0", "F32"), 0),
     (4, np.float32, ("F16", "F16"), 83), (1, np.float16, ("Q8_0", "Q4_0"), 83)],
)  # fmt: skip
def test_attention(
    vulkan: Device, subgroups: int, dtype: Any, mix: tuple[str, str], ring: int
) -> None:
    """Ragged query tiles, a filled cache, grouped heads and a window; both kinds of results;
    caches of several types; rings that begin anew within a tile."""
    needs_lanes(vulkan)
    rng = np.random.default_rng(6)
    n, pos, dim = 70, 21, 16
    ops: dict[str, Array | Matrix] = {
        "qkv": rng.standard_normal((n, 4 * dim)).astype(np.float32),
        **cache_rows.random_caches(rng, mix, ring or pos + n, dim),
        "y": np.zeros((n, 2 * dim), dtype), "step": step_words(n, pos),
    }  # fmt: skip
    params = {"n_head": 2, "n_head_kv": 1, "head_dim": dim, "scale": 0.25,
              "window": 14 if ring else 40, "softcap": 5.0, "ring": ring}  # fmt: skip
    case = Case("attention", ops, params, rows=n, limit=2e-6)
    caches = Buf("k", (ring or pos + n, dim), mix[0]), Buf("v", (ring or pos + n, dim), mix[1])
    build = f"{cache_rows.build(*caches)}.{'HALF' if dtype is np.float16 else 'WIDE'}"
    spec = (subgroups * LANES, LANES, dim, 32, 16, 16, 16, *cache_rows.constants(*caches, params))
    launch = Launch(build, spec, (-(-n // (16 * subgroups)), 2, 1), LANES)
    result = run_case(vulkan, emulated(attention_prefill_coop.KERNEL, launch), case)
    assert result.ok, (result.nmse, result.note)


def shapes() -> Iterator[tuple[int, int]]:
    """(weight rows, tokens) of models from tiny to large."""
    for rows in (3, 576, 3072, 6144, 28672, 128256):
        for tokens in (1, 9, 16, 64, 500, 512, 2048):
            yield rows, tokens


@pytest.mark.parametrize(
    "limits",
    [
        LARGE, Limits(subgroup_size=8), Limits(subgroup_size=32),
        LARGE.with_(subgroup_size=64, shared_bytes=65536),
        LARGE.with_(coopmat_shape=(8, 16, 16), subgroup_size=16, shared_bytes=32768),
    ],
    ids=["NVIDIA", "smallest", "32 lanes", "AMD", "Intel"],
)  # fmt: skip
def test_tiles_fit(limits: Limits) -> None:
    """Every shape gets a tile that the device can run, gated or not."""
    for rows, tokens in shapes():
        for gated in (False, True):
            tile = choose(rows, tokens, limits, gated)
            assert tile.fits(limits, gated)
            launch = launch_tile(tile, "Q4_0", rows, tokens, False, limits)
            assert launch.grid[0] * tile.bn >= tokens and launch.grid[1] * tile.bm >= rows


def test_tiles_follow_the_shape() -> None:
    """Large tiles where there is work for all units, teams where there is not."""
    assert choose(28672, 512, LARGE).bm == 128
    assert choose(6144, 512, LARGE).most == 2  # 192 tiles for 132 units: two share a unit
    assert choose(576, 512, LARGE).bm == 64
    assert choose(4096, 16, LARGE).split > 1
    assert any(t.fits(LARGE) for t in TILES)


def test_scales_of_int8_rows(vulkan: Device) -> None:
    """The scales after the quants, which the kernel's own cases leave out."""
    x: Any = np.random.default_rng(1).standard_normal((3, 96)).astype(np.float32)
    x[1, 32:64] = 0
    y = np.zeros((3, quantize_layout.row_words(96)), np.uint32)
    params = {"cols": 96, "x_stride": 96, "y_stride": y.shape[1]}
    case = Case("scales", {"x": x, "y": y, "step": step_words(3, 0)}, params, rows=3)
    got, _ = run_shader(vulkan, quantize_rows.KERNEL, case)
    mine, want = (w[:, 24:30].copy().view(np.float32) for w in (got["y"], quantize_layout.pack(x)))
    np.testing.assert_allclose(mine, want, rtol=1e-6, atol=1e-6)
    values = quantize_layout.unpack(got["y"], 96)
    np.testing.assert_allclose(values, x, atol=np.abs(x).max() / 200)
