"""Recording every sequence anew draws the same tokens as replaying; work is counted on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures import write_tiny

from kompute_llm.engine.bench_tests import Test
from kompute_llm.engine.container import open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.device import Device
from kompute_llm.engine.errors import UsageError
from kompute_llm.engine.measure import run_once
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner


def never() -> bool:
    """Nobody stops it."""
    return False


def test_tokens_are_the_same(vulkan: Device, tmp_path: Path) -> None:
    c = open_model(write_tiny(tmp_path / "tiny.gguf"))
    runner = VulkanRunner(c, model_spec(c), vulkan, 64)
    test = Test(5, 21, 7)
    replayed = run_once(runner, test, never)
    before = vulkan.counters()["submits"]
    runner.replay(False)
    anew = run_once(runner, test, never)
    # state cleared, depth, prompt, then a submit per token
    assert vulkan.counters()["submits"] - before == 3 + 21
    assert anew.ids == replayed.ids
    assert len(anew.ids) == 1 + 21
    runner.replay(True)
    assert run_once(runner, test, never).ids == replayed.ids


def test_profile_counts_what_was_timed(vulkan: Device, tmp_path: Path) -> None:
    """Dispatches of the prompt and of every step, not of the depth."""
    c = open_model(write_tiny(tmp_path / "tiny.gguf"))
    runner = VulkanRunner(c, model_spec(c), vulkan, 64)
    run_once(runner, Test(0, 6, 9), never, profile=True)
    work = runner.work()
    assert set(work) == set(runner.phases()) - {"host"}
    one = {phase: w.dispatches / 6 for phase, w in work.items()}
    assert all(n == int(n) > 0 for n in one.values())
    runner.profile(False)
    assert runner.roof_file.name.startswith("roof-")


def test_the_cpu_records_nothing(tmp_path: Path) -> None:
    c = open_model(write_tiny(tmp_path / "tiny.gguf"))
    runner = CpuRunner(c, model_spec(c), 64, reference=True)
    with pytest.raises(UsageError, match="records nothing"):
        runner.replay(False)
    runner.replay(True)
    runner.close()
