"""Every family against logits of llama.cpp: all forms of plans, both executors.

Golden files where there are some (../shared/golden), else the tiny models of family_models.py,
whose logits are in data/families.npz (recipe: make_family_data.py). GELU in llama.cpp goes through
a table of float16, which makes most of the difference that is left in gemma's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import MODELS, POSITIONS, prompt
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

DATA = Path(__file__).parent / "data" / "families.npz"
GOLDEN = ("llama3", "qwen3", "gemma3", "gemma4")
NEAR = 0.05  # gap between the best two logits below which rounding may decide


@dataclass(frozen=True)
class Reference:
    """What llama.cpp makes of a prompt: logits of some positions; greedy ids behind it and the
    gaps between the best two logits, where they are known."""

    ids: list[int]
    n_ctx: int
    positions: list[int]
    logits: Any
    cont: list[int]
    gaps: Any


def nmse(got: Any, want: Any) -> float:
    assert np.isfinite(got).all()
    return float(np.square(got - want).sum() / np.square(want).sum())


@pytest.fixture(scope="module", params=(*GOLDEN, *MODELS))
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Reference]:
    """A file and its reference."""
    name = request.param
    if name in MODELS:
        make, n_ctx = MODELS[name]
        path = make().write(tmp_path_factory.mktemp("family") / f"{name}.gguf")
        with np.load(DATA) as z:
            return path, Reference(prompt(name), n_ctx, list(POSITIONS), z[name], [], np.zeros(0))
    folder = golden()
    if folder is None:
        pytest.skip("the golden models are not beside this repository")
    path = folder / "models" / f"{name}.F16.gguf"
    with np.load(path.with_suffix(".npz")) as z:
        ids = z["prompt_2"].tolist()
        known = z["ref_cont_2"].tolist(), z["ref_gap_2"]
        return path, Reference(ids, 128, list(range(len(ids))), z["ref_logits_2"], *known)


@pytest.mark.parametrize(
    "products,int8,cache,limit",
    [("f32", False, "F32", 1e-6), ("f16", False, "F16", 1e-4), ("int8", True, "F16", 5e-3)],
)
def test_references(
    model: tuple[Path, Reference], products: str, int8: bool, cache: str, limit: float
) -> None:
    """A batch and single tokens through the NumPy references of a form."""
    path, ref = model
    c, ids = open_model(path), ref.ids
    spec = model_spec(c)
    opts = PlanOptions(ref.n_ctx, 64, cache, cache, 2, int8=int8, products=products,
                       coop_attention=products == "f16")  # fmt: skip
    forward, arrays = Forward(c, spec, opts), Arrays()
    for i, rope in enumerate(spec.ropes):
        arrays[rope_name(i)] = rope_table(rope.within(ref.n_ctx), ref.n_ctx)
    arrays.run(forward.score(), ids, 0)
    assert nmse(arrays["all_logits"][ref.positions], ref.logits) <= limit
    decode = forward.decode()
    arrays.run(forward.prefill(64, head=True), ids[:34], 0)
    assert nmse(arrays["logits"][0], ref.logits[ref.positions.index(33)]) <= 2 * limit
    for i in range(34, len(ids)):
        arrays.run(decode, [ids[i]], i)
    assert nmse(arrays["logits"][0], ref.logits[-1]) <= 2 * limit


def check_runner(r: CpuRunner | VulkanRunner, ref: Reference, limit: float) -> None:
    """Logits of a prompt, of a token alone, and the greedy continuation up to a near tie."""
    assert nmse(r.logits(ref.ids)[ref.positions], ref.logits) <= limit
    last = len(ref.ids) - 1
    assert nmse(r.logits(ref.ids[-1:], last), ref.logits[-1:]) <= 2 * limit
    if not ref.cont:
        return
    sure = int(np.argmax(ref.gaps < NEAR)) if (ref.gaps < NEAR).any() else len(ref.cont)
    r.begin(Sampling(temp=0.0, seed=1), (), len(ref.ids) + len(ref.cont) - 1)
    for start in range(0, len(ref.ids), 16):
        r.prefill(ref.ids[start : start + 16], sample=start + 16 >= len(ref.ids))
    r.decode(len(ref.cont))
    found, _, bad = r.poll()
    assert bad == 0 and found[:sure] == ref.cont[:sure]


def test_cpu(model: tuple[Path, Reference]) -> None:
    """The CPU executor with float32 caches."""
    path, ref = model
    c = open_model(path)
    r = CpuRunner(c, model_spec(c), ref.n_ctx, cache_k="f32", cache_v="f32", threads=2)
    check_runner(r, ref, 1e-6)
    r.close()


@pytest.mark.parametrize("math,cache,limit", [("f32", "f32", 1e-6), ("auto", "f16", 5e-3)])
def test_vulkan(
    vulkan: Device, model: tuple[Path, Reference], math: str, cache: str, limit: float
) -> None:
    """The Vulkan executor, in float32 and in the products that the device chooses."""
    path, ref = model
    c = open_model(path)
    if math == "auto" and not ref.cont and vulkan.info.int_dot != "none":
        math = "int8"  # the tiny models are quantized; this also takes it where it is slow
    r = VulkanRunner(c, model_spec(c), vulkan, ref.n_ctx, cache, cache, batch=64, math=math)
    check_runner(r, ref, limit)
