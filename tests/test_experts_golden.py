"""Models with experts and latent attention against llama.cpp's logits, on both executors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import golden

from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.device import Device
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.step import StopReason
from kompute_llm.engine.vulkan import VulkanRunner

GREEDY = Sampling(temp=0.0, seed=1)
NEAR = 0.05  # gap between the best two logits below which rounding may decide
MODELS = (
    "qwen3moe.F16", "qwen3moe.Q4_K_M", "glm4moe.F16", "minimax-m2.F16", "deepseek2.F16",
    "deepseek2-v3.F16", "glm-dsa.F16", "glm-dsa-sparse.F16",
    "gpt-oss.MXFP4",
)  # fmt: skip
FOLDER = golden()
pytestmark = pytest.mark.skipif(FOLDER is None, reason="no golden data beside the repository")


def nmse(got: Any, want: Any) -> float:
    assert np.isfinite(got).all()
    return float(np.square(got - want).sum() / np.square(want).sum())


def model(name: str) -> tuple[Container, dict[str, Any]]:
    assert FOLDER is not None
    with np.load(FOLDER / "models" / f"{name}.npz") as z:
        return open_model(Path(FOLDER) / "models" / f"{name}.gguf"), dict(z)


def greedy(r: Any, ids: list[int], n: int) -> list[int]:
    r.begin(GREEDY, (), len(ids) + n - 1)
    for i in range(0, len(ids), r.batch):
        r.prefill(ids[i : i + r.batch], sample=i + r.batch >= len(ids))
    out, reason, _ = r.poll()
    while reason is StopReason.RUNNING:
        r.decode(4)
        fresh, reason, _ = r.poll()
        out += fresh
    return list(out)


def check(r: Any, ref: dict[str, Any], limit: float) -> None:
    """Logits of all positions in one batch, and greedy ids up to the first near tie."""
    for i in range(int(ref["n_prompts"])):
        ids = [int(t) for t in ref[f"prompt_{i}"]]
        assert nmse(r.logits(ids), ref[f"ref_logits_{i}"]) <= limit
        want, gaps = ref[f"ref_cont_{i}"], ref[f"ref_gap_{i}"]
        sure = int(np.argmax(gaps < NEAR)) if (gaps < NEAR).any() else len(gaps)
        assert greedy(r, ids, len(want))[:sure] == [int(t) for t in want[:sure]]


@pytest.mark.parametrize("name", MODELS)
def test_cpu(name: str) -> None:
    container, ref = model(name)
    with container:
        r = CpuRunner(container, model_spec(container), 256, cache_k="f32", cache_v="f32",
                      threads=2)  # fmt: skip
        check(r, ref, 1e-6)
        r.close()


@pytest.mark.parametrize("cache,limit", [("f32", 1e-6), ("f16", 1e-4)])
@pytest.mark.parametrize("name", MODELS)
def test_vulkan(vulkan: Device, name: str, cache: str, limit: float) -> None:
    container, ref = model(name)
    r = VulkanRunner(container, model_spec(container), vulkan, 256, cache, cache, batch=64,
                     math="f32")  # fmt: skip
    check(r, ref, limit)
