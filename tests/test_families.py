"""Every family against logits of llama.cpp: all forms of plans, both executors.

Golden files where there are some (../shared/golden), else the tiny files of family_models.py,
whose logits are in data/families.npz (recipe: make_family_data.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import golden
from test_plans import Arrays

from kompute_llm.engine.container import open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.device import Device
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.rope import rope_name, rope_table
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner

N_CTX = 128
GOLDEN = ("llama3", "qwen3", "gemma3")
NEAR = 0.05  # gap between the best two logits below which rounding may decide
Reference = dict[str, Any]


def nmse(got: Any, want: Any) -> float:
    assert np.isfinite(got).all()
    return float(np.square(got - want).sum() / np.square(want).sum())


@pytest.fixture(params=GOLDEN)
def model(request: pytest.FixtureRequest) -> tuple[Path, Reference]:
    """A file and its reference: prompt ids, logits of all positions, greedy ids and their gaps."""
    folder = golden()
    if folder is None:
        pytest.skip("the golden models are not beside this repository")
    path = folder / "models" / f"{request.param}.F16.gguf"
    with np.load(path.with_suffix(".npz")) as z:
        keys = {"ids": "prompt_2", "logits": "ref_logits_2", "cont": "ref_cont_2",
                "gaps": "ref_gap_2"}  # fmt: skip
        return path, {name: z[key] for name, key in keys.items()}


@pytest.mark.parametrize(
    "products,int8,cache,limit",
    [("f32", False, "F32", 1e-6), ("f16", False, "F16", 1e-4), ("int8", True, "F16", 5e-3)],
)
def test_references(
    model: tuple[Path, Reference], products: str, int8: bool, cache: str, limit: float
) -> None:
    """A batch and single tokens through the NumPy references of a form."""
    path, ref = model
    c, ids = open_model(path), ref["ids"].tolist()
    spec = model_spec(c)
    opts = PlanOptions(N_CTX, 64, cache, cache, 2, int8=int8, products=products,
                       coop_attention=products == "f16")  # fmt: skip
    forward, arrays = Forward(c, spec, opts), Arrays()
    for i, rope in enumerate(spec.ropes):
        arrays[rope_name(i)] = rope_table(rope.within(N_CTX), N_CTX)
    arrays.run(forward.score(), ids, 0)
    assert nmse(arrays["all_logits"][: len(ids)], ref["logits"]) <= limit
    decode = forward.decode()
    arrays.run(forward.prefill(64, head=True), ids[:-4], 0)
    assert nmse(arrays["logits"][0], ref["logits"][-5]) <= 2 * limit
    for i in range(len(ids) - 4, len(ids)):
        arrays.run(decode, [ids[i]], i)
        assert nmse(arrays["logits"][0], ref["logits"][i]) <= 2 * limit


def check_runner(r: CpuRunner | VulkanRunner, ref: Reference, limit: float) -> None:
    """Logits of a prompt, and the greedy continuation up to the first near tie."""
    ids, want = ref["ids"].tolist(), ref["cont"].tolist()
    assert nmse(r.logits(ids), ref["logits"]) <= limit
    sure = int(np.argmax(ref["gaps"] < NEAR)) if (ref["gaps"] < NEAR).any() else len(want)
    r.begin(Sampling(temp=0.0, seed=1), (), len(ids) + len(want) - 1)
    for start in range(0, len(ids), 16):
        r.prefill(ids[start : start + 16], sample=start + 16 >= len(ids))
    r.decode(len(want))
    found, _, bad = r.poll()
    assert bad == 0 and found[:sure] == want[:sure]


def test_cpu(model: tuple[Path, Reference]) -> None:
    """The CPU executor with float32 caches."""
    path, ref = model
    c = open_model(path)
    r = CpuRunner(c, model_spec(c), N_CTX, cache_k="f32", cache_v="f32", threads=2)
    check_runner(r, ref, 1e-6)
    r.close()


@pytest.mark.parametrize("math,cache,limit", [("f32", "f32", 1e-6), ("auto", "f16", 5e-3)])
def test_vulkan(
    vulkan: Device, model: tuple[Path, Reference], math: str, cache: str, limit: float
) -> None:
    """The Vulkan executor, in float32 and in the products that the device chooses."""
    path, ref = model
    c = open_model(path)
    r = VulkanRunner(c, model_spec(c), vulkan, N_CTX, cache, cache, batch=64, math=math)
    check_runner(r, ref, limit)
