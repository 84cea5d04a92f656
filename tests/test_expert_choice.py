"""Experts chosen where their gates are multiplied: as the router does, in plans and on a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import expert_models
import numpy as np
import pytest
from test_plans import N_CTX, Arrays

from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.device import Device
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.harness import can_run, run_shader
from kompute_llm.engine.plan import Dispatch
from kompute_llm.engine.recorder import Hazards
from kompute_llm.engine.rope import rope_table
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner
from kompute_llm.engine.work import plan_work
from kompute_llm.kernels import (
    experts_q8_choose_swiglu,
    experts_q8_swiglu,
    q8,
    router_token,
    router_token_logits,
)
from kompute_llm.kernels.experts_cases import swiglu_case
from kompute_llm.kernels.kernel import Case
from kompute_llm.kernels.reference import step_words
from kompute_llm.kernels.routing import RULES, Routing, case_bias, f32_matrix

LATE = experts_q8_choose_swiglu.KERNEL
RULE_NAMES = [n for n, r in RULES.items() if experts_q8_choose_swiglu.suits(r, 32)]
IDS = [3, 141, 59, 26, 53, 58]
SHARED_APART = {
    f"blk.{i}.ffn_{kind}_shexp.weight": "Q8_0" for i in (1, 2) for kind in ("gate", "up", "down")
}


def operands(rng: np.random.Generator, rule: Routing, cols: int) -> dict[str, Any]:
    """Of the router; two experts out of three have the same row, so that scores are equal."""
    w = rng.standard_normal((rule.experts, cols)) * 1.5 / np.sqrt(cols)
    w = w[np.arange(rule.experts) // 3]
    bias = case_bias(rng, rule)
    bias[:] = bias[:, np.arange(rule.experts) // 3]
    x = rng.standard_normal((1, cols)).astype(np.float32)
    return {
        "x": x, "g": f32_matrix(rng.uniform(0.5, 1.5, (1, cols))), "w": f32_matrix(w),
        "b": f32_matrix(bias), "arrived": np.zeros(1, np.uint32), "step": step_words(1, 3),
        "logits": np.zeros((1, rule.experts), np.float32),
        "route": np.zeros((1, rule.slots, 2), np.float32),
    }  # fmt: skip


@pytest.mark.parametrize("name", RULE_NAMES)
def test_same_bits(vulkan: Device, name: str) -> None:
    """Logits, route and inner vectors of a device are those of router_token and
    experts_q8_swiglu, ties too."""
    if not (can_run(vulkan, LATE) and vulkan.limits.subgroups):
        pytest.skip("no packed dot products or subgroups")
    rng, rule, cols, rows = np.random.default_rng(5), RULES[name], 256, 32
    ops, norm = operands(rng, rule, cols), {"cols": cols, "eps": 1e-5}
    want, build = run_shader(vulkan, router_token.KERNEL, Case("", ops, norm | rule.params()))
    made, _ = run_shader(vulkan, router_token_logits.KERNEL, Case("", ops, norm))
    assert build == "SG1" and np.array_equal(made["logits"], want["logits"])
    count = rule.experts + rule.shared
    ops |= {"logits": made["logits"], "route": want["route"]}
    ops |= q8.vector_operands(rng, cols) | swiglu_case(rng, "Q4_0", (count, 0, rows, cols), False)
    ops["yq"] = np.zeros((rule.slots, rows // 4), np.uint32)
    ops["ys"] = np.zeros((rule.slots, rows // 16, 2), np.float32)
    params = norm | {"rows": rows, "experts": count, "first": 0}
    inner, _ = run_shader(vulkan, experts_q8_swiglu.KERNEL, Case("", ops, params))
    more = experts_q8_choose_swiglu.params_of(rule)
    got, _ = run_shader(vulkan, LATE, Case("", ops, params | more))
    assert np.array_equal(got["route"].view(np.uint32), want["route"].view(np.uint32))
    used = want["route"][0, :, 0] >= 0
    assert np.array_equal(got["yq"][used], inner["yq"][used])
    assert np.array_equal(got["ys"][used], inner["ys"][used])


def logits(c: Container, **options: Any) -> tuple[Any, tuple[Dispatch, ...]]:
    """Logits of three tokens by the NumPy references, and the dispatches."""
    forward = Forward(c, model_spec(c), PlanOptions(N_CTX, 32, int8=True, **options))
    arrays = Arrays()
    arrays["rope.0"] = rope_table(model_spec(c).rope, N_CTX)
    plan = forward.decode()
    for i, token in enumerate(IDS[:3]):
        arrays.run(plan, [token], i)
    assert all(w.bytes > 0 for w in plan_work(plan, 1, 5).values())
    return arrays["logits"][0].copy(), plan.dispatches


MODELS = {
    "one": (expert_models.deepseek2("Q4_0"), {}),
    "two": (expert_models.deepseek2("Q4_K", shared=2), {}),
    "none": (expert_models.deepseek2("Q4_0", shared=0), {}),
    "apart": (expert_models.deepseek2("Q4_0", formats=SHARED_APART), {}),
    "ranges": (expert_models.deepseek2("Q4_0", shared=2), {"binding_bytes": 5 * 36864}),
}


@pytest.mark.parametrize("name", MODELS)
def test_plans(tmp_path: Path, name: str) -> None:
    """The same logits as with router_token; shared experts apart from the group go beside it."""
    model, options = MODELS[name]
    with open_model(model.write(tmp_path / "m.gguf")) as c:
        want, _ = logits(c, **options)
        got, dispatches = logits(c, choosers=32, **options)
    names = [d.kernel.name for d in dispatches]
    assert np.array_equal(got, want)
    assert "router_token" not in names and names.count("router_token_logits") == 2
    hazards = Hazards()
    free = [d.kernel.name for d in dispatches if hazards.admit(d)]
    assert free.count("norm_matvec_q8_swiglu") == (2 if name == "apart" else 0)
    assert "experts_q8_choose_swiglu" not in free


def test_rules_of_router_token(tmp_path: Path) -> None:
    """Groups, and more experts than lanes hold, leave the choice to the router."""
    assert not experts_q8_choose_swiglu.suits(Routing(8, 2, groups=2), 32)
    assert not experts_q8_choose_swiglu.suits(Routing(256, 8), 32)
    assert not experts_q8_choose_swiglu.suits(Routing(8, 2), 0)
    with open_model(expert_models.deepseek2("Q4_0").write(tmp_path / "m.gguf")) as c:
        names = [d.kernel.name for d in logits(c, choosers=1)[1]]
    assert names.count("router_token") == 2


def test_device(vulkan: Device, tmp_path: Path) -> None:
    """A device gives the logits of its plans with router_token."""
    if not (can_run(vulkan, LATE) and vulkan.limits.subgroups):
        pytest.skip("no packed dot products or subgroups")
    with open_model(expert_models.deepseek2("Q4_0").write(tmp_path / "m.gguf")) as c:
        r = VulkanRunner(c, model_spec(c), vulkan, 64, batch=16, math="int8")
        want = np.concatenate([r.logits([token], i) for i, token in enumerate(IDS)])
        r._one = None
        r._forward.opts = replace(r._forward.opts, choosers=8)
        got = np.concatenate([r.logits([token], i) for i, token in enumerate(IDS)])
    assert np.array_equal(got, want)
