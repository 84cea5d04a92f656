"""Converted models on both executors: against NumPy on the same weights, and against llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy_llama
import pytest
from helpers import golden

from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.convert import Conversion
from kompute_llm.engine.convert_formats import Choice, target
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.device import Device
from kompute_llm.engine.families import FAMILIES
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner

FOLDER = golden()
pytestmark = pytest.mark.skipif(FOLDER is None, reason="no golden data beside the repository")
# NMSE of logits against llama.cpp's float32 run on the F16 file: what rounding the weights costs
# (random weights are the worst case: docs/containers.md has a real model's figures)
LIMITS = {"int8": 1e-3, "int4-g32": 0.2, "int4-g128": 0.3, "int3-g64": 1.2}
Logits = Any


def nmse(got: Logits, want: Logits) -> float:
    """Squared error over squared values; no NaN passes."""
    assert np.isfinite(got).all()
    return float(np.square(got - want).sum() / np.square(want).sum())


@pytest.fixture(scope="module", params=LIMITS)
def converted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Container]]:
    """llama.F16 in a format."""
    assert FOLDER is not None
    dst = tmp_path_factory.mktemp("models") / request.param
    job = Conversion(FOLDER / "models" / "llama.F16.gguf", dst,
                     Choice(target(request.param, False), {}, False))  # fmt: skip
    job.run(lambda done, total: None)
    with open_model(dst) as c:
        yield request.param, c


def prompt(name: str, number: int = 2) -> tuple[list[int], Logits]:
    """Ids and reference logits of a golden model."""
    assert FOLDER is not None
    data = np.load(FOLDER / "models" / f"{name}.npz")
    return data[f"prompt_{number}"].tolist(), data[f"ref_logits_{number}"]


def test_cpu(converted: tuple[str, Container]) -> None:
    name, c = converted
    ids, reference = prompt("llama.F16")
    runner = CpuRunner(c, model_spec(c), 64, cache_k="f32", cache_v="f32", threads=1)
    got = runner.logits(ids)
    runner.close()
    assert nmse(got, numpy_llama.logits(c, model_spec(c), ids)) < 1e-9
    assert nmse(got, reference) < LIMITS[name]


@pytest.mark.parametrize(("math", "limit"), [("f32", 1e-9), ("int8", 2e-3)])
def test_vulkan(
    converted: tuple[str, Container], vulkan: Device, math: str, limit: float
) -> None:
    _, c = converted
    ids, _ = prompt("llama.F16", 1)
    spec = model_spec(c)
    runner = VulkanRunner(c, spec, vulkan, 64, "f32", "f32", batch=32, math=math)
    want = numpy_llama.logits(c, spec, ids)
    assert nmse(runner.logits(ids), want) < limit
    one = np.concatenate([runner.logits([token], i) for i, token in enumerate(ids)])
    assert nmse(one, want) < limit


@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2-v3"])
def test_models_with_experts(tmp_path: Path, vulkan: Device, name: str) -> None:
    """Experts in int4, the rest in int8; the CPU's references are the measure."""
    assert FOLDER is not None
    choice = Choice(target("int8", False), {"experts": target("int4-g32", False)}, False)
    job = Conversion(FOLDER / "models" / f"{name}.F16.gguf", tmp_path / "out", choice)
    job.run(lambda done, total: None)
    ids, _ = prompt(f"{name}.F16", 1)
    if name.split("-")[0] not in FAMILIES:
        pytest.skip(f"architecture {name} is not supported yet")
    with open_model(tmp_path / "out") as c:
        spec = model_spec(c)
        fast = CpuRunner(c, spec, 64, cache_k="f32", cache_v="f32", threads=1)
        got = fast.logits(ids)
        fast.close()
        slow = CpuRunner(c, spec, 64, cache_k="f32", cache_v="f32", reference=True)
        want = slow.logits(ids)
        slow.close()
        assert nmse(got, want) < 1e-9
        gpu = VulkanRunner(c, spec, vulkan, 64, "f32", "f32", batch=32, math="f32")
        assert nmse(gpu.logits(ids), want) < 1e-9
        one = np.concatenate([gpu.logits([token], i) for i, token in enumerate(ids)])
        assert nmse(one, want) < 1e-9
