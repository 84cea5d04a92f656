"""Latent attention of a token in one dispatch: unrolled as on GPUs, and in plans."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import expert_models
import numpy as np
import pytest
from test_plans import N_CTX, Arrays

from kompute_llm.engine.builder_base import SHORT_LATENT
from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.device import Device
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.harness import can_run, run_case
from kompute_llm.engine.rope import rope_table
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner
from kompute_llm.kernels import mla_token, mla_token_plain
from kompute_llm.kernels.limits import Limits
from kompute_llm.kernels.mla_token_launch import LARGE, ODD, SMALL, Head, Rows, suits, team

IDS = [3, 141, 59, 26, 53, 58, 97, 93, 238, 46, 264, 33]
H200 = Limits(
    workgroup_invocations=1024, workgroup_size=(1024, 1024, 64), shared_bytes=49152,
    subgroup_size=32, subgroup_arithmetic=True, full_subgroups=True, int_dot=True,
)  # fmt: skip


@pytest.mark.parametrize("which", range(3))
def test_unrolled(vulkan: Device, monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """Several rows and cache rows at once, as devices that are no software take them."""
    if not can_run(vulkan, mla_token.KERNEL):
        pytest.skip("no packed dot products or subgroups")
    monkeypatch.setattr(vulkan, "limits", vulkan.limits.with_(software=False))
    rng = np.random.default_rng(which)
    size, fmt, length = ((SMALL, "Q4_0", 200), (SMALL, "Q3_K", 70), (ODD, "Q4_0", 64))[which]
    kernel, case = mla_token.KERNEL, mla_token.case(rng, fmt, *size, length)
    if which == 2:
        kernel, case = mla_token_plain.KERNEL, mla_token_plain.case(rng, fmt, *size, length, True)
    result = run_case(vulkan, kernel, case)
    assert result.ok, (result.nmse, result.note)


def test_teams() -> None:
    """Real heads fit 48 KiB of shared memory with 512 invocations; others take turns, or not."""
    large = team(LARGE[1], H200, "Q3_K")
    assert large is not None and (large.size, large.slots) == (512, 16)
    assert (large.keys, large.values, large.queries) == (Rows(2, 2), Rows(4, 2), Rows(2, 1))
    chunks = team(LARGE[1], H200, "Q4_K")
    assert chunks is not None and (chunks.values, chunks.queries) == (Rows(8, 4), Rows(8, 2))
    small = team(LARGE[1], H200.with_(shared_bytes=32768), "Q3_K")
    assert small is not None and small.slots == 8
    wide = team(Head(512, 128, 64, 128, 1536), H200, "Q4_K")  # DeepSeek V3
    assert wide is not None and wide.queries == Rows(8, 1)
    assert not suits(Head(1 << 15, 64, 64, 64), H200)
    assert not suits(Head(512, 64, 20, 64), H200)
    assert not suits(LARGE[1], H200.with_(subgroup_size=2))


def logits(c: Container, latent: str) -> tuple[Any, list[str]]:
    """Logits of a prompt and three tokens by the NumPy references, and the kernels of the last."""
    opts = PlanOptions(N_CTX, 32, splits=2, int8=True, latent=latent)
    forward, arrays = Forward(c, model_spec(c), opts), Arrays()
    arrays["rope.0"] = rope_table(model_spec(c).rope, N_CTX)
    arrays.run(forward.prefill(32, head=True), IDS[:9], 0)
    plan = forward.decode(reach=SHORT_LATENT)
    for i in range(9, 12):
        arrays.run(plan, [IDS[i]], i)
    return arrays["logits"][0].copy(), [d.kernel.name for d in plan.dispatches]


@pytest.mark.parametrize("q_rank", [0, 256])
@pytest.mark.parametrize("latent", ["core", "head"])
def test_plans(tmp_path: Path, latent: str, q_rank: int) -> None:
    """Short plans give what those do that take every stage for itself, with plain queries in
    float32 for k_b."""
    model = expert_models.deepseek2("Q4_K", q_rank=q_rank)
    with open_model(model.write(tmp_path / "model.gguf")) as c:
        want, apart = logits(c, "")
        got, names = logits(c, latent)
    kernel = "mla_token" if latent == "head" and q_rank else "mla_token_plain"
    assert names.count(kernel) == 3 and apart.count("mla_expand_q8") == 3
    assert "mla_expand_q8" not in names and "mla_absorb" not in names
    assert ("mla_compress_q8" in names) == (latent == "core" and q_rank > 0)
    assert np.square(got - want).sum() <= 1e-3 * np.square(want).sum()


def test_formats_apart(tmp_path: Path) -> None:
    """q_b and v_b of different formats: plain queries first. k_b in float16, float32 caches: every
    stage for itself."""
    formats = {"blk.1.attn_v_b.weight": "Q6_K", "blk.2.attn_k_b.weight": "F16"}
    model = expert_models.deepseek2("Q4_K", formats=formats)
    with open_model(model.write(tmp_path / "model.gguf")) as c:
        _, names = logits(c, "head")
        opts = PlanOptions(N_CTX, 32, "F32", "F32", int8=True, latent="head")
        plan = Forward(c, model_spec(c), opts).decode(reach=SHORT_LATENT)
    assert [n for n in names if "mla_token" in n] == ["mla_token", "mla_token_plain"]
    assert names.count("mla_absorb") == 1
    assert not any("mla_token" in d.kernel.name for d in plan.dispatches)


def test_device(vulkan: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device's plans for short contexts give the logits of its other ones."""
    if not can_run(vulkan, mla_token.KERNEL):
        pytest.skip("no packed dot products or subgroups")
    model = expert_models.deepseek2("Q4_0", formats={"blk.1.attn_v_b.weight": "Q8_0"})
    with open_model(model.write(tmp_path / "model.gguf")) as c:
        r = VulkanRunner(c, model_spec(c), vulkan, 64, batch=16, math="int8")
        want = np.concatenate([r.logits([token], i) for i, token in enumerate(IDS)])
        r._one = None
        monkeypatch.setattr(r._forward, "decode", partial(r._forward.decode, reach=SHORT_LATENT))
        got = np.concatenate([r.logits([token], i) for i, token in enumerate(IDS)])
        assert {mla_token.KERNEL.name, mla_token_plain.KERNEL.name} <= {
            d.kernel.name for d in r._decode_plan(1).dispatches
        }
    errors = np.square(got - want).sum(axis=1) / np.square(want).sum(axis=1)
    assert np.median(errors) <= 1e-3  # a choice of experts on the edge may fall either way
