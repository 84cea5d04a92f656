"""The Vulkan executor on tiny models: logits, replay, batches, limits of the device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import fixtures
import numpy as np
import numpy.typing as npt
import pytest
from helpers import golden

from kompute_llm.engine import vulkan as vulkan_runner
from kompute_llm.engine.container import open_model
from kompute_llm.engine.device import Device
from kompute_llm.engine.errors import UsageError
from kompute_llm.engine.forward import PlanOptions
from kompute_llm.engine.plan import Buf
from kompute_llm.engine.products import plan_options
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.step import StopReason
from kompute_llm.engine.vulkan import VulkanRunner

FORMATS = (
    "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K_S",
    "IQ4_NL", "IQ4_XS", "MXFP4",
)  # fmt: skip
GREEDY = Sampling(temp=0.0, seed=1)
NEAR = 0.05  # gap between the best two logits below which rounding may decide


def runner(device: Device, path: Path, cache: str = "f32", n_ctx: int = 256) -> VulkanRunner:
    c = open_model(path)
    return VulkanRunner(c, model_spec(c), device, n_ctx, cache, cache, batch=64, math="f32")


def nmse(got: npt.NDArray[np.float32], want: npt.NDArray[np.float32]) -> float:
    assert np.isfinite(got).all()
    return float(np.square(got - want).sum() / np.square(want).sum())


def greedy(r: VulkanRunner, ids: list[int], n: int, batch: int = 64) -> list[int]:
    r.begin(GREEDY, (), len(ids) + n - 1)
    for i in range(0, len(ids), batch):
        r.prefill(ids[i : i + batch], sample=i + batch >= len(ids))
    out, reason, _ = r.poll()
    while reason is StopReason.RUNNING:
        r.decode(4)
        fresh, reason, _ = r.poll()
        out += fresh
    return out


def golden_model(name: str) -> tuple[Path, dict[str, npt.NDArray[np.float32]]]:
    folder = golden()
    if folder is None:
        pytest.skip("the golden models are not beside this repository")
    with np.load(folder / "models" / f"{name}.npz") as z:
        return folder / "models" / f"{name}.gguf", dict(z)


@pytest.mark.parametrize("cache,limit", [("f32", 1e-6), ("f16", 1e-4)])
@pytest.mark.parametrize("name", [*(f"llama.{f}" for f in FORMATS), "llama3.F16"])
def test_golden(vulkan: Device, name: str, cache: str, limit: float) -> None:
    """Logits of all positions, and the greedy continuation up to the first near tie."""
    path, ref = golden_model(name)
    r = runner(vulkan, path, cache)
    for i in range(int(ref["n_prompts"])):
        ids = [int(t) for t in ref[f"prompt_{i}"]]
        assert nmse(r.logits(ids), ref[f"ref_logits_{i}"]) <= limit
        want, gaps = ref[f"ref_cont_{i}"], ref[f"ref_gap_{i}"]
        sure = int(np.argmax(gaps < NEAR)) if (gaps < NEAR).any() else len(gaps)
        assert greedy(r, ids, len(want))[:sure] == [int(t) for t in want[:sure]]


@pytest.mark.parametrize("fmt", [f for f in FORMATS if f not in ("F16", "BF16")])
def test_golden_int8(vulkan: Device, fmt: str) -> None:
    """Decode with activations in int8, token by token."""
    if vulkan.info.int_dot == "none" or not vulkan.limits.subgroups:
        pytest.skip("no packed dot products")
    path, ref = golden_model(f"llama.{fmt}")
    c = open_model(path)
    r = VulkanRunner(c, model_spec(c), vulkan, 256, batch=64, math="int8")
    ids = [int(t) for t in ref["prompt_2"]]
    got = np.concatenate([r.logits([t], i) for i, t in enumerate(ids)])
    assert nmse(got, ref["ref_logits_2"]) <= 5e-3
    assert nmse(r.logits(ids), ref["ref_logits_2"]) <= 5e-3
    assert "int8" in r.describe


def last_logits(r: VulkanRunner) -> npt.NDArray[np.float32]:
    """What the last prompt batch left: logits (n_vocab,) of its last token."""
    n_vocab = r.spec.n_vocab
    seq, out = r.device.sequence(), r.device.exchange(n_vocab, "logits")
    r.device.copy(seq, r._buffers["logits"], out, 0, 0, n_vocab)
    r.device.sync_local(seq, [out])
    r.device.eval(seq)
    logits: npt.NDArray[np.float32] = out.data().view(np.float32).copy()
    return logits


@pytest.mark.parametrize("batch", [3, 8, 64])
def test_few_tokens(vulkan: Device, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few tokens in int8, also what is left over from the widest tiles."""
    if vulkan.info.int_dot == "none" or not vulkan.limits.subgroups:
        pytest.skip("no packed dot products")
    path, ref = golden_model("llama.Q8_0")
    c = open_model(path)
    monkeypatch.setattr(vulkan_runner, "WIDE", 32)  # 40 tokens are 32 and 8
    r = VulkanRunner(c, model_spec(c), vulkan, 256, batch=64, math="int8")
    ids, want = [int(t) for t in ref["prompt_2"]], ref["ref_logits_2"]
    r.begin(GREEDY, (), 256)
    for i in range(0, len(ids), batch):
        r.prefill(ids[i : i + batch], sample=True)
        assert nmse(last_logits(r), want[min(i + batch, len(ids)) - 1]) <= 5e-3


@pytest.mark.parametrize("name", ["llama.Q4_0", "deepseek2-v3.F16"])
def test_buffers_of_all_plans(
    vulkan: Device, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every plan finds its buffers, also the forms that this device may not have."""
    def with_tiles(*args: Any) -> tuple[Any, PlanOptions]:
        products, opts = plan_options(*args)
        return products, replace(opts, tiles=True, int8=True)

    monkeypatch.setattr(vulkan_runner, "plan_options", with_tiles)
    c = open_model(golden_model(name)[0])
    r = VulkanRunner(c, model_spec(c), vulkan, 2048)
    plans = [r._decode_plan(n) for n in (1, r.n_ctx)]
    plans += [r._forward.prefill(n) for n in (2, 8, 16, 512)]
    for plan in plans:
        named = {op.name for d in plan.dispatches for op in d.operands.values()
                 if isinstance(op, Buf)}  # fmt: skip
        assert named <= set(r._buffers.bufs), plan.name


def test_golden_auto(vulkan: Device) -> None:
    """The products that the device chooses: matrix cores in batches where it has some."""
    path, ref = golden_model("llama.Q4_K")
    c = open_model(path)
    r = VulkanRunner(c, model_spec(c), vulkan, 256, batch=64)
    ids = [int(t) for t in ref["prompt_2"]]
    limit = 5e-3 if "int8 products in batches" in r.describe else 1e-4
    assert nmse(r.logits(ids), ref["ref_logits_2"]) <= limit


def test_forced_f16(vulkan: Device, tmp_path: Path) -> None:
    """`--math f16` runs on matrix cores or is refused by name."""
    c = open_model(fixtures.write_tiny(tmp_path / "m.gguf", quant="Q8_0"))
    if vulkan.limits.coopmat:
        r = VulkanRunner(c, model_spec(c), vulkan, 64, math="f16")
        assert "f32 products, f16 in batches" in r.describe
    else:
        with pytest.raises(UsageError, match="no matrix cores"):
            VulkanRunner(c, model_spec(c), vulkan, 64, math="f16")


def test_batches_agree(vulkan: Device, tmp_path: Path) -> None:
    """A prompt in one batch, in ragged batches and token by token: the same continuation."""
    r = runner(vulkan, fixtures.write_tiny(tmp_path / "m.gguf"))
    ids = [int(t) for t in np.random.default_rng(3).integers(3, 288, 45)]
    whole = greedy(r, ids, 24)
    assert greedy(r, ids, 24, batch=7) == whole
    assert greedy(r, ids, 24, batch=1) == whole


def test_replay_is_exact(vulkan: Device, tmp_path: Path) -> None:
    """A replayed recording and a fresh one give the same logits, bit for bit."""
    path = fixtures.write_tiny(tmp_path / "m.gguf")
    r = runner(vulkan, path, "f16")
    ids = [int(t) for t in np.random.default_rng(4).integers(3, 288, 30)]
    first, again = r.logits(ids), r.logits(ids)
    assert np.array_equal(first, again)
    r._recordings.clear()
    assert np.array_equal(first, r.logits(ids))
    assert greedy(r, ids, 20) == greedy(r, ids, 20)


def test_one_submit_or_many(vulkan: Device, tmp_path: Path) -> None:
    """Several decode steps per submit draw the same tokens as one step per submit."""
    r = runner(vulkan, fixtures.write_tiny(tmp_path / "m.gguf"), "f16")
    sampling = Sampling(temp=1.0, seed=11)
    drawn = []
    for steps in (1, 4, 16):
        r.begin(sampling, (), 40)
        r.prefill([5, 6, 7], sample=True)
        while r.poll()[1] is StopReason.RUNNING:
            r.decode(steps)
        r.begin(sampling, (), 40)
        r.prefill([5, 6, 7], sample=True)
        out, reason, _ = r.poll()
        while reason is StopReason.RUNNING:
            r.decode(steps)
            fresh, reason, _ = r.poll()
            out += fresh
        drawn.append(out)
    assert drawn[0] == drawn[1] == drawn[2]
    assert len(drawn[0]) == 38


def test_small_binding_range(
    vulkan: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors larger than one binding are split by rows: the same tokens (case R15)."""
    path = fixtures.write_tiny(tmp_path / "m.gguf", vocab=4096)
    ids = [300, 4000, 5, 77]
    want = runner(vulkan, path)
    tokens, logits = greedy(want, ids, 12), want.logits(ids)
    monkeypatch.setattr(vulkan, "limits", vulkan.limits.with_(storage_range=1 << 20))
    small = runner(vulkan, path)
    assert all(t.size() * 4 <= 1 << 20 for t in small._buffers._weights.tensors)
    assert nmse(small.logits(ids), logits) < 1e-12
    assert greedy(small, ids, 12) == tokens


def test_profile(vulkan: Device, tmp_path: Path) -> None:
    """Profiling names all phases and does not change what is drawn."""
    r = runner(vulkan, fixtures.write_tiny(tmp_path / "m.gguf"))
    plain = greedy(r, [5, 6, 7], 10)
    r.profile(True)
    assert greedy(r, [5, 6, 7], 10) == plain
    phases = r.phases()
    assert {"embed", "qkv", "attention", "output projection", "ffn", "head", "sampling",
            "host"} <= set(phases)  # fmt: skip
    assert all(seconds >= 0 for seconds in phases.values())
