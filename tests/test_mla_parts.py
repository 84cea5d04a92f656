"""Latent attention of a token in two dispatches, several workgroups per head."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import expert_models
import numpy as np
import pytest
from test_mla_token import H200 as LIMITS
from test_mla_token import IDS
from test_plans import N_CTX, Arrays

from kompute_llm.engine.builder_base import SHORT_LATENT
from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.device import Device
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.harness import can_run, run_case, shapes_of
from kompute_llm.engine.products import plan_options
from kompute_llm.engine.rope import rope_table
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner
from kompute_llm.kernels import mla_absorb_q8, mla_attend_q8
from kompute_llm.kernels.mla_parts import WHOLE, Parts, fits, parts_of, spread
from kompute_llm.kernels.mla_token_launch import LARGE, ODD, SMALL, Head, Rows

H200 = LIMITS.with_(compute_units=132)


@pytest.mark.parametrize("which", range(3))
def test_unrolled(vulkan: Device, monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """Several rows and cache rows at once, as devices that are no software take them."""
    if not can_run(vulkan, mla_absorb_q8.KERNEL):
        pytest.skip("no packed dot products or subgroups")
    monkeypatch.setattr(vulkan, "limits", vulkan.limits.with_(software=False))
    rng, (heads, head) = np.random.default_rng(which), (SMALL, SMALL, ODD)[which]
    fmt, parts, shares, length = (
        ("Q4_0", 1, 2, 200), ("Q3_K", 1, 1, 70), ("Q4_0", 3, 3, 64)
    )[which]  # fmt: skip
    cases = (
        (mla_absorb_q8.KERNEL, mla_absorb_q8.case(rng, fmt, heads, head, parts)),
        (mla_attend_q8.KERNEL, mla_attend_q8.case(rng, fmt, heads, head, length, parts, shares)),
    )
    for kernel, case in cases:
        result = run_case(vulkan, kernel, case)
        assert result.ok, (case.name, result.nmse, result.note)


def test_parts() -> None:
    """Workgroups for every unit of a large device, one per head on small ones."""
    assert parts_of(LARGE[1], 20, H200) == Parts(3, 4)
    assert parts_of(LARGE[1], 4, H200) == Parts(6, 8)
    assert parts_of(LARGE[1], 128, H200) == Parts(1, 1)
    assert parts_of(Head(512, 128, 64, 128, 1536), 64, H200) == Parts(1, 2)
    assert parts_of(LARGE[1], 20, H200.with_(compute_units=8)) == WHOLE
    assert mla_absorb_q8.query_team(LARGE[1], 3, H200, 4) == (256, Rows(2, 4), Rows(4, 1))
    assert mla_attend_q8.team(LARGE[1], 4, H200, 4) == (512, 16, 2, 4, 1)
    for module, groups in ((mla_absorb_q8, 81), (mla_attend_q8, 80)):
        case = next(c for c in module.KERNEL.cases(np.random.default_rng(0)) if "Q3_K" in c.name)
        params = {**case.params, "heads": 20, "parts": 3, "shares": 4}
        assert module.KERNEL.launch(shapes_of(case), params, 1, H200).grid == (groups, 1, 1)
    assert spread(64, 6, 512, 32) == Rows(8, 1)
    assert fits(LARGE[1], H200)
    assert not fits(replace(LARGE[1], q_rank=0), H200)
    assert not fits(replace(LARGE[1], q_rank=40), H200)
    assert not fits(LARGE[1], H200.with_(subgroup_size=2))


def logits(c: Container, latent: str, parts: Parts = WHOLE) -> tuple[Any, list[str]]:
    """Logits of a prompt and three tokens by the NumPy references, and the kernels of the last."""
    opts = PlanOptions(N_CTX, 32, splits=2, int8=True, latent=latent, latent_parts=parts)
    forward, arrays = Forward(c, model_spec(c), opts), Arrays()
    arrays["rope.0"] = rope_table(model_spec(c).rope, N_CTX)
    arrays.run(forward.prefill(32, head=True), IDS[:9], 0)
    plan = forward.decode(reach=SHORT_LATENT)
    for i in range(9, 12):
        arrays.run(plan, [IDS[i]], i)
    return arrays["logits"][0].copy(), [d.kernel.name for d in plan.dispatches]


@pytest.mark.parametrize("parts", [WHOLE, Parts(2, 1), Parts(2, 4)], ids=str)
def test_plans(tmp_path: Path, parts: Parts) -> None:
    """Short plans give what those do that take every stage for itself; q_b and v_b may differ in
    format."""
    model = expert_models.deepseek2("Q4_K", formats={"blk.1.attn_v_b.weight": "Q6_K"})
    with open_model(model.write(tmp_path / "model.gguf")) as c:
        want, _ = logits(c, "")
        got, names = logits(c, "parts", parts)
    assert names.count("mla_absorb_q8") == names.count("mla_attend_q8") == 3
    assert "mla_compress_q8" not in names and "mla_absorb" not in names
    assert np.square(got - want).sum() <= 1e-3 * np.square(want).sum()


@pytest.mark.parametrize(("q_rank", "kernel"), [(0, "mla_token_plain"), (256, "mla_expand_q8")])
def test_other_layers(tmp_path: Path, q_rank: int, kernel: str) -> None:
    """Plain queries, and a k_b finer than Q8_0, have no parts."""
    formats = {f"blk.{i}.attn_k_b.weight": "F16" for i in range(3)} if q_rank else {}
    model = expert_models.deepseek2("Q4_K", q_rank=q_rank, formats=formats)
    with open_model(model.write(tmp_path / "model.gguf")) as c:
        names = logits(c, "parts")[1]
    assert names.count(kernel) == 3 and "mla_absorb_q8" not in names


def test_device(vulkan: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device's plans for short contexts give the logits of its other ones."""
    if not can_run(vulkan, mla_absorb_q8.KERNEL):
        pytest.skip("no packed dot products or subgroups")
    def in_parts(*args: Any) -> Any:
        products, opts = plan_options(*args)
        return products, replace(opts, latent="parts", latent_parts=Parts(2, 2))

    monkeypatch.setattr("kompute_llm.engine.vulkan.plan_options", in_parts)
    with open_model(expert_models.deepseek2("Q4_0").write(tmp_path / "model.gguf")) as c:
        r = VulkanRunner(c, model_spec(c), vulkan, 64, batch=16, math="int8")
        want = np.concatenate([r.logits([token], i) for i, token in enumerate(IDS)])
        r._one = None
        monkeypatch.setattr(r._forward, "decode", partial(r._forward.decode, reach=SHORT_LATENT))
        got = np.concatenate([r.logits([token], i) for i, token in enumerate(IDS)])
        names = [d.kernel.name for d in r._decode_plan(1).dispatches]
    assert names.count("mla_attend_q8") == 3
    errors = np.square(got - want).sum(axis=1) / np.square(want).sum(axis=1)
    assert np.median(errors) <= 1e-3  # a choice of experts on the edge may fall either way
