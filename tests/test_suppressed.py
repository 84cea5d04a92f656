"""Tokens that a file suppresses: read, checked, shown, and drawn by no executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import Model, tiny

from cli import invoke
from kompute_llm.engine.container import open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.device import Device
from kompute_llm.engine.errors import ModelError
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import ModelSpec, model_spec
from kompute_llm.engine.vulkan import VulkanRunner

KEY = "tokenizer.ggml.suppress_tokens"
SMALL: dict[str, Any] = {"n_embd": 64, "n_ff": 64, "n_head": 4}
PROMPT = [1, 270, 271, 275]


def spec_of(tmp_path: Path, m: Model) -> ModelSpec:
    with open_model(m.write(tmp_path / "m.gguf")) as c:
        return model_spec(c)


def refused(tmp_path: Path, m: Model, *words: str) -> None:
    with pytest.raises(ModelError) as e:
        spec_of(tmp_path, m)
    for word in (str(tmp_path), KEY, *words):
        assert word in str(e.value)


def test_what_files_say(tmp_path: Path) -> None:
    """Ids that are never drawn: each once, ascending; what cannot be used is refused by its key."""

    def with_ids(ids: Any) -> Model:
        return tiny(**SMALL, metadata={KEY: ids})

    assert spec_of(tmp_path, tiny(**SMALL)).suppressed == ()
    for ids, want in ((np.array([9, 3, 9], np.int32), (3, 9)), (np.array([287], np.uint32), (287,)),
                      (np.zeros(0, np.int32), ())):  # fmt: skip
        assert spec_of(tmp_path, with_ids(ids)).suppressed == want
    cases: tuple[tuple[Any, str], ...] = (
        (np.array([1, 288], np.int32), "id 288 is outside the vocabulary of 288 tokens"),
        (np.array([-1], np.int32), "id -1 is outside"), (5, "expected an array of token ids"),
        (["a"], "expected an array"), (np.array([1.5], np.float32), "expected an array"),
        (np.arange(288, dtype=np.int32), "names every token"),
    )  # fmt: skip
    for ids, words in cases:
        refused(tmp_path, with_ids(ids), words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kompute_llm.engine.spec_common.MAX_SUPPRESSED", 2)
        refused(tmp_path, with_ids(np.arange(3, dtype=np.int32)), "has 3 ids; at most 2")


def runner(path: Path, device: Device | None) -> CpuRunner | VulkanRunner:
    c = open_model(path)
    if device is None:
        return CpuRunner(c, model_spec(c), 128, threads=2)
    return VulkanRunner(c, model_spec(c), device, 128, batch=32)


def drawn(r: CpuRunner | VulkanRunner, options: Sampling) -> list[int]:
    """40 ids behind the prompt."""
    r.begin(options, (), len(PROMPT) + 39)
    r.prefill(PROMPT, sample=True)
    r.decode(39)
    ids, _, bad = r.poll()
    assert len(ids) == 40 and bad == 0
    return ids


def check_executor(tmp_path: Path, device: Device | None) -> None:
    """What greedy decoding would take is suppressed: it takes the next best, logits stay."""
    free = runner(tiny(**SMALL).write(tmp_path / "free.gguf"), device)
    want = free.logits(PROMPT)
    order = np.argsort(-want[-1], kind="stable")
    silent = np.unique(np.concatenate([order[:9], order[10:250]])).astype(np.int32)
    path = tiny(**SMALL, metadata={KEY: silent}).write(tmp_path / "m.gguf")
    r = runner(path, device)
    assert drawn(free, Sampling(temp=0.0, seed=1))[0] == order[0]
    assert drawn(r, Sampling(temp=0.0, seed=1))[0] == order[9]
    for temp in (0.0, 1.0, 5.0):
        options = Sampling(temp=temp, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.1, seed=3)
        assert not set(drawn(r, options)) & set(silent.tolist())
    assert np.array_equal(r.logits(PROMPT), want)
    if device is None:
        r.close()
        free.close()


def test_cpu(tmp_path: Path) -> None:
    check_executor(tmp_path, None)


def test_vulkan(vulkan: Device, tmp_path: Path) -> None:
    check_executor(tmp_path, vulkan)


def test_inspect(tmp_path: Path) -> None:
    ids = np.array([4, 1], np.int32)
    shown = invoke("inspect", tiny(**SMALL, metadata={KEY: ids}).write(tmp_path / "m.gguf")).stdout
    assert "1 '<s>', 4 '<0x01>'" in next(x for x in shown.splitlines() if "never drawn" in x)
    many = np.arange(3, 40, dtype=np.int32)
    shown = invoke("inspect", tiny(**SMALL, metadata={KEY: many}).write(tmp_path / "m.gguf")).stdout
    assert "and 27 more" in shown
    bad = tiny(**SMALL, metadata={KEY: np.array([999], np.int32)}).write(tmp_path / "m.gguf")
    shown = invoke("inspect", bad).stdout
    assert "id 999 is outside the vocabulary" in shown and "never drawn" not in shown
    assert invoke("run", bad, "-p", "h", "--device", "cpu").exit_code == 1
