"""Decode attention by tiles: which caches take it, what fits a device, how exact its scores are."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ring_models import mistral

from kompute_llm.engine.builder_base import SHORT
from kompute_llm.engine.container import open_model
from kompute_llm.engine.device import Device
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.harness import can_run, run_case, run_shader
from kompute_llm.engine.spec import model_spec
from kompute_llm.kernels import attention, attention_q8, attention_tiles_q8, q8
from kompute_llm.kernels.attention_tiles_q8 import (
    HALVES,
    KERNEL,
    MANY,
    TYPES,
    shared_bytes,
    sizes,
    suits,
)
from kompute_llm.kernels.kernel import Case
from kompute_llm.kernels.limits import Limits

MIXES = list(itertools.product(TYPES, TYPES))


@pytest.mark.parametrize("k,v", MIXES)
def test_all_mixes_are_taken(tmp_path: Path, k: str, v: str) -> None:
    """With one head a workgroup in short contexts; without the option position by position."""
    c = open_model(mistral().write(tmp_path / "m.gguf"))
    opts = PlanOptions(1024, 8, k, v, splits=2, int8=True, tiles=True)
    for reach, heads, tiles in ((0, 2, True), (SHORT, 1, True), (0, 0, False)):
        plan = Forward(c, model_spec(c), replace(opts, tiles=tiles)).decode(reach=reach)
        found = [d for d in plan.dispatches if d.kernel.name.startswith("attention")]
        kernel = KERNEL if tiles else attention_q8.KERNEL
        assert found and {d.kernel.name for d in found} == {kernel.name}
        assert {d.params.get("heads", 0) for d in found} == {heads}


def test_float32_is_not_taken(tmp_path: Path) -> None:
    """Caches that are asked for where float16 is not exact enough."""
    c = open_model(mistral().write(tmp_path / "m.gguf"))
    opts = PlanOptions(1024, 8, "F32", "Q8_0", int8=True, tiles=True)
    names = {d.kernel.name for d in Forward(c, model_spec(c), opts).decode().dispatches}
    assert "attention_q8" in names and KERNEL.name not in names
    assert not suits(4, 128, Limits(subgroup_size=32, shared_bytes=49152), "F32", "Q8_0")


@pytest.mark.parametrize("k,v", MIXES)
def test_what_fits(k: str, v: str) -> None:
    """Head sizes of models on GPUs of 48 KB; never more than a device has."""
    gpu = Limits(
        workgroup_invocations=1024, workgroup_size=(1024, 1024, 64), shared_bytes=49152,
        subgroup_size=32, subgroup_arithmetic=True, full_subgroups=True, subgroup_count=32,
    )  # fmt: skip
    for group, dim in itertools.product((1, 4, 8), (64, 80, 96, 112, 128, 192, 256)):
        assert suits(group, dim, gpu, k, v)
        for shared, subgroup in itertools.product((16384, 32768, 49152), (4, 8, 16, 32, 64)):
            limits = gpu.with_(shared_bytes=shared, subgroup_size=subgroup)
            size, tile = sizes(group, dim, limits, k, v)
            assert size % subgroup == tile % 4 == 0
            assert shared_bytes(group, dim, size, subgroup, tile, k) <= shared
    assert not suits(1, 72, gpu, k, v)


def test_many_splits_position_by_position(vulkan: Device) -> None:
    """More than are joined at once, as the tiles' cases have them."""
    if not can_run(vulkan, attention_q8.KERNEL):
        pytest.skip(f"{vulkan.info.name} lacks what {attention_q8.KERNEL.name} needs")
    rng = np.random.default_rng(5)
    (case,) = attention_q8.adapted(attention.cases_of(rng, [(HALVES, MANY)]))
    result = run_case(vulkan, attention_q8.KERNEL, case)
    assert result.ok, (result.nmse, result.note)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_scores_are_exact(vulkan: Device, kind: str) -> None:
    """Large queries of which most values are small: sharp softmaxes, where a query of eight bits
    differs by more than a percent."""
    if not can_run(vulkan, KERNEL):
        pytest.skip(f"{vulkan.info.name} lacks what {KERNEL.name} needs")
    rng = np.random.default_rng(4)
    shape = (40, 4, 2, 64, 1, 0)  # that of a case: a pipeline less
    (case,) = attention_q8.adapted(attention.cases_of(rng, [((kind, kind), shape)]))
    heads = 1 if kind == "Q8_0" else 2
    qkv: Any = case.operands["qkv"]
    qkv *= rng.lognormal(1, 1, qkv.shape).astype(np.float32)
    ops: dict[str, Any] = {**case.operands, "arrived": np.zeros(4, np.uint32)}
    params = {**case.params, "heads": heads}
    got, _ = run_shader(vulkan, KERNEL, Case("large", ops, params))
    rough = {n: np.array(x) for n, x in ops.items()}
    rough["qkv"][0, :256] = q8.values(*q8.quantize(qkv[0, :256]))
    for values in (ops, rough):
        attention_tiles_q8.reference(**values, **params)  # type: ignore[arg-type]
    want = q8.values(ops["yq"], ops["ys"])

    def error(found: dict[str, Any]) -> float:
        off = q8.values(found["yq"], found["ys"]) - want
        return float(np.square(off).sum() / np.square(want).sum())

    assert error(got) < 1e-5 < 1e-4 < error(rough)
