"""Models with experts that need no files: llama.cpp's logits, forms of plans, small bindings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import expert_models
import fixtures
import numpy as np
import pytest

from kompute_llm.engine.builder import PlanOptions
from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.device import Device
from kompute_llm.engine.errors import ModelError, UsageError
from kompute_llm.engine.forward import Forward
from kompute_llm.engine.harness import can_run, run_case
from kompute_llm.engine.plan import Dispatch, Phase
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner
from kompute_llm.kernels import experts_cases, experts_q8_down

LOGITS = dict(np.load(Path(__file__).parent / "data" / "expert_logits.npz"))
IDS = LOGITS["ids"].tolist()


def nmse(got: Any, want: Any) -> float:
    assert np.isfinite(got).all()
    return float(np.square(got - want).sum() / np.square(want).sum())


def written(model: fixtures.Model, folder: Path) -> Container:
    return open_model(model.write(folder / "m.gguf"))


def cpu(c: Container) -> CpuRunner:
    return CpuRunner(c, model_spec(c), 64, cache_k="f32", cache_v="f32", threads=2)


def vulkan_runner(c: Container, device: Device, math: str) -> VulkanRunner:
    return VulkanRunner(c, model_spec(c), device, 64, "f32", "f32", batch=16, math=math)


def token_by_token(r: Any) -> Any:
    return np.concatenate([r.logits([t], i) for i, t in enumerate(IDS)])


@pytest.mark.parametrize("name", expert_models.REFERENCE)
def test_reference_logits(vulkan: Device, tmp_path: Path, name: str) -> None:
    """Both executors, in batches and token by token."""
    with written(expert_models.REFERENCE[name](), tmp_path) as c:
        r = cpu(c)
        assert nmse(r.logits(IDS)[[4, -1]], LOGITS[name]) <= 1e-9
        assert nmse(token_by_token(r)[[4, -1]], LOGITS[name]) <= 1e-9
        r.close()
        v = vulkan_runner(c, vulkan, "f32")
        assert nmse(v.logits(IDS)[[4, -1]], LOGITS[name]) <= 1e-9
        assert nmse(token_by_token(v)[[4, -1]], LOGITS[name]) <= 1e-9


def other(kinds: tuple[str, ...], fmt: str) -> dict[str, str]:
    """Formats of some tensors of the layers with experts."""
    return {f"blk.{i}.ffn_{kind}.weight": fmt for i in (1, 2) for kind in kinds}


MIXES = {
    "shared experts in the group": expert_models.deepseek2("Q4_0"),
    "two shared experts": expert_models.deepseek2("Q4_K", shared=2),
    "shared experts apart": expert_models.deepseek2(
        "Q4_0", formats=other(("gate_shexp", "up_shexp", "down_shexp"), "Q8_0")
    ),
    "gates and ups apart": expert_models.deepseek2("Q5_1", formats=other(("up_exps",), "Q8_0")),
}


@pytest.mark.parametrize("mix", MIXES)
def test_mixed_formats(vulkan: Device, tmp_path: Path, mix: str) -> None:
    """The device's plans against the CPU's."""
    with written(MIXES[mix], tmp_path) as c:
        r = cpu(c)
        want = r.logits(IDS)
        r.close()
        v = vulkan_runner(c, vulkan, "f32")
        assert nmse(v.logits(IDS), want) <= 1e-6
        assert nmse(token_by_token(v), want) <= 1e-6


def test_int8(vulkan: Device, tmp_path: Path) -> None:
    """Single tokens in int8: the typical position, for a choice on the edge may fall either way."""
    if vulkan.info.int_dot == "none" or not vulkan.limits.subgroups:
        pytest.skip("no packed dot products")
    with written(expert_models.deepseek2("Q4_K"), tmp_path) as c:
        r = cpu(c)
        want = r.logits(IDS)
        r.close()
        got = token_by_token(vulkan_runner(c, vulkan, "int8"))
        errors = [nmse(a, b) for a, b in zip(got, want, strict=True)]
        assert np.median(errors) <= 2e-3


def dispatches(c: Container, **options: Any) -> tuple[Dispatch, ...]:
    """The decode plan."""
    return Forward(c, model_spec(c), PlanOptions(64, 16, **options)).decode().dispatches


def test_nine_dispatches_a_layer(tmp_path: Path) -> None:
    """Latent attention in six, experts with the shared one in three."""
    with written(expert_models.deepseek2("Q4_0"), tmp_path) as c:
        names = [d.kernel.name for d in dispatches(c, int8=True)]
    last = len(names) - 1 - names[::-1].index("mla_compress_q8")
    assert names[last : last + 9] == [
        "mla_compress_q8", "norm_matvec_q8", "mla_absorb", "mla_attention", "mla_expand_q8",
        "matvec_q8_add", "router_token", "experts_q8_swiglu", "experts_q8_down",
    ]  # fmt: skip


@pytest.mark.parametrize("int8", [False, True])
def test_stacks_beyond_the_binding_limit(tmp_path: Path, int8: bool) -> None:
    """Ranges of experts, each a dispatch, no expert twice; results are the CPU's."""
    with written(expert_models.deepseek2("Q4_0"), tmp_path) as c:
        one = 256 * 256 // 32 * 18
        found = dispatches(c, int8=int8, binding_bytes=8 * one)
        inner = [d for d in found if d.phase is Phase.EXPERTS and "inner" in d.label]
    ranges = [(d.params["first"], d.params["experts"]) for d in inner]
    assert ranges == [(0, 2), (2, 2), (4, 2), (6, 1)] * 2


def test_ranges_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU executor with a binding limit as a small device has it."""
    with written(expert_models.deepseek2("Q4_0"), tmp_path) as c:
        whole = cpu(c)
        want = whole.logits(IDS)
        whole.close()
        monkeypatch.setattr(
            "kompute_llm.engine.weights.Weights.limit", property(lambda self: 5 * 256 * 144)
        )
        r = cpu(c)
        assert nmse(r.logits(IDS), want) <= 1e-12
        assert nmse(token_by_token(r), want) <= 1e-12
        r.close()


def test_expert_top_p(tmp_path: Path) -> None:
    """Fewer experts work; the first always does. Dense models refuse the option."""
    with written(expert_models.deepseek2("Q4_0"), tmp_path) as c:
        spec = model_spec(c)
        few, all_of_them = spec.with_expert_top_p(1e-6), spec.with_expert_top_p(1.0)
        assert all_of_them is spec
        r = CpuRunner(c, few, 64, threads=1)
        assert nmse(r.logits(IDS), r.logits(IDS)) == 0
        r.close()
    dense = fixtures.tiny().write(tmp_path / "dense.gguf")
    with open_model(dense) as c, pytest.raises(UsageError, match="no experts"):
        model_spec(c).with_expert_top_p(0.5)


def test_gates_and_ups_in_one_tensor(tmp_path: Path) -> None:
    """Each expert's gates, then its ups: the same numbers as two tensors."""
    model = expert_models.deepseek2("Q4_0")
    with written(model, tmp_path) as c:
        r = cpu(c)
        want = r.logits(IDS)
        r.close()
    for i in (1, 2):
        halves = [model.tensors.pop(f"blk.{i}.ffn_{kind}_exps.weight") for kind in ("gate", "up")]
        model.tensors[f"blk.{i}.ffn_gate_up_exps.weight"] = np.concatenate(halves, axis=1)
    with written(model, tmp_path) as c:
        r = cpu(c)
        assert nmse(r.logits(IDS), want) <= 1e-12
        assert nmse(token_by_token(r), want) <= 1e-12
        r.close()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("expert_used_count", 7, "from 1 to 6"),
        ("expert_group_count", 4, "does not divide 6 experts"),
        ("expert_gating_func", 4, "from 0 to 3"),
        ("expert_weights_norm", 1, "expected true or false"),
        ("attention.kv_lora_rank", 100, "multiple of 32"),
        ("attention.key_length_mla", 32, "from 33"),
    ],
)
def test_keys_that_cannot_be(tmp_path: Path, key: str, value: int, words: str) -> None:
    """One message that names the key."""
    model = expert_models.deepseek2("Q4_0")
    model.metadata[f"deepseek2.{key}"] = value
    with written(model, tmp_path) as c, pytest.raises(ModelError, match=words) as e:
        model_spec(c)
    assert f"deepseek2.{key}" in str(e.value)


def test_missing_and_left_over_tensors(tmp_path: Path) -> None:
    """A missing stack and a tensor that no plan reads are both refused by name."""
    model = expert_models.deepseek2("Q4_0")
    down = model.tensors.pop("blk.2.ffn_down_exps.weight")
    with written(model, tmp_path) as c, pytest.raises(ModelError, match="ffn_down_exps"):
        model_spec(c)
    model.tensors["blk.2.ffn_down_exps.weight"] = down
    model.tensors["blk.2.ffn_down_chexps.weight"] = down
    with written(model, tmp_path) as c, pytest.raises(ModelError, match="ffn_down_chexps"):
        model_spec(c)


def test_more_slots_than_lanes(vulkan: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes that a subgroup cannot hold lie in shared memory."""
    if not can_run(vulkan, experts_q8_down.KERNEL):
        pytest.skip("no packed dot products or subgroups")
    four, slots = experts_cases.case_route, 4 * vulkan.limits.subgroup_size
    monkeypatch.setattr(experts_cases, "SLOTS", 4)

    def route(rng: np.random.Generator, experts: int, first: int) -> Any:
        out = np.concatenate([four(rng, experts, first) for _ in range(slots // 4)], axis=1)
        monkeypatch.setattr(experts_cases, "SLOTS", slots)  # for the operands that follow
        return out

    monkeypatch.setattr(experts_cases, "case_route", route)
    case = next(iter(experts_q8_down.KERNEL.cases(np.random.default_rng(3))))
    assert run_case(vulkan, experts_q8_down.KERNEL, case).ok
