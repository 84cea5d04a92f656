"""The embedding of the next token by the dispatch that draws it: same words, same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fixtures
import numpy as np
import pytest

from kompute_llm.engine import vulkan as vulkan_runner
from kompute_llm.engine.container import open_model
from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import run_shader
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.step import StopReason
from kompute_llm.engine.vulkan import VulkanRunner
from kompute_llm.kernels import embed_q8, sample_pick_embed
from kompute_llm.kernels.kernel import Case
from kompute_llm.kernels.reference import step_words

OPTIONS = (Sampling(temp=0.0, seed=1), Sampling(temp=1.5, seed=2, repeat_penalty=1.3))
PROMPT = [5, 6, 7, 100, 200]


def kernels(r: VulkanRunner) -> list[list[str]]:
    """Kernels of the plans that draw, prompts last."""
    draws = (r._history, *r._sampling)
    plans = [r._decode_plan(256), *(r._forward.prefill(n, draws, head=True) for n in (1, 8))]
    return [[d.kernel.name for d in plan.dispatches] for plan in plans]


def generate(r: VulkanRunner, options: Sampling, prompt: list[int]) -> list[int]:
    """A prompt in two batches, then 20 tokens: replayed chunks, and steps behind the end."""
    r.begin(options, (), len(prompt) + 19)
    r.prefill(prompt[:-1], sample=False)
    r.prefill(prompt[-1:], sample=True)
    r.decode(7)
    r.decode(16)
    out, reason, bad = r.poll()
    assert reason is StopReason.LIMIT and not bad
    return out


@pytest.mark.parametrize("fmt", ["Q8_0", "Q6_K"])
def test_same_tokens(
    vulkan: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: str
) -> None:
    """With and without; logits of single tokens between generations; the same every time."""
    drawn: list[Any] = []
    with open_model(fixtures.write_tiny(tmp_path / "m.gguf", quant=fmt)) as c:
        for joined in (True, False):
            if not joined:
                monkeypatch.setattr(vulkan_runner, "with_row", lambda sampling, *rest: sampling)
            r = VulkanRunner(c, model_spec(c), vulkan, 256, batch=64, math="int8")
            decode, *prompts = kernels(r)
            assert (decode[0] != "embed_q8") == joined
            assert prompts[0][0] == "embed_q8"
            pick = "sample_pick_embed" if joined else "sample_pick"
            assert {names[-1] for names in (decode, *prompts)} == {pick}
            logits = r.logits([9])
            drawn.append([generate(r, o, PROMPT) for o in (*OPTIONS, *OPTIONS)])
            drawn[-1] += [logits.tolist(), r.logits([9]).tolist()]
    assert drawn[0] == drawn[1]
    assert drawn[0][0] == drawn[0][2] and drawn[0][1] == drawn[0][3]
    assert drawn[0][4] == drawn[0][5]


def test_matrix_in_ranges(
    vulkan: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several lookups stay dispatches of their own."""
    path = fixtures.write_tiny(tmp_path / "m.gguf", vocab=4096, quant="Q8_0")
    monkeypatch.setattr(vulkan, "limits", vulkan.limits.with_(storage_range=1 << 20))
    with open_model(path) as c:
        r = VulkanRunner(c, model_spec(c), vulkan, 256, batch=64, math="int8")
        decode = kernels(r)[0]
        assert decode[:2] == ["embed_q8", "embed_q8"] and decode[-1] == "sample_pick"
        assert len(generate(r, OPTIONS[0], PROMPT)) == 20


def test_same_words(vulkan: Device) -> None:
    """The row is what embed_q8 makes of it, bit for bit."""
    outputs = ("x", "yq", "ys", "ssq")
    for case in sample_pick_embed.cases(np.random.default_rng(3)):
        if case.only:
            continue
        got, _ = run_shader(vulkan, sample_pick_embed.KERNEL, case)
        ops: Any = {n: case.operands[n] for n in ("w", "g", *outputs)}
        ops |= {"tokens": got["tokens"], "step": step_words(1, 3)}
        params = {"n_embd": case.params["n_embd"], "row0": 0, "rows": case.params["n_vocab"],
                  "scale": case.params["scale"]}  # fmt: skip
        want, _ = run_shader(vulkan, embed_q8.KERNEL, Case("row", ops, params))
        for name in outputs:
            assert np.array_equal(got[name].view(np.uint32), want[name].view(np.uint32)), case.name
