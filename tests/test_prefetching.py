"""Weights read ahead beside short attention: which, by dispatches that wait for nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fixtures import write_tiny

from kompute_llm.engine import prefetching
from kompute_llm.engine.builder_base import SHORT
from kompute_llm.engine.container import open_model
from kompute_llm.engine.device import Device
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.plan import Plan
from kompute_llm.engine.recorder import Hazards
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner
from kompute_llm.engine.work import dispatch_work
from kompute_llm.kernels import attention_short_q8

OPTIONS = PlanOptions(64, 16, int8=True, short_attention=True, prefetch=True)


def decode(path: Path, options: PlanOptions = OPTIONS, reach: int = SHORT) -> Plan:
    """A plan of one token."""
    with open_model(write_tiny(path / "m.gguf", quant="Q8_0")) as c:
        return Forward(c, model_spec(c), options).decode(reach=reach)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of tiny models are worth a dispatch, gains of norms are not."""
    monkeypatch.setattr(prefetching, "LEAST", 1 << 14)


def test_nothing_is_read_ahead_of_tiny_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetching, "LEAST", 1 << 20)
    assert not any(d.kernel.name == "prefetch" for d in decode(tmp_path).dispatches)


@pytest.mark.usefixtures("small")
def test_what_is_read_ahead(tmp_path: Path) -> None:
    """The weights of the next four dispatches, beside attention, nowhere else."""
    plan = decode(tmp_path)
    names = [d.kernel.name for d in plan.dispatches]
    at = [i for i, name in enumerate(names) if name == "attention_short_q8"]
    assert at
    for i in at:
        ahead, *later = plan.dispatches[i + 1 : i + 6]
        assert ahead.kernel.name == "prefetch"
        wanted = [d.label for d in later[:4] if d.kernel.name != "prefetch"]
        assert ahead.label == "|".join(wanted) + " ahead"
    assert names.count("prefetch") == len(at)
    assert not any(d.kernel.name == "prefetch" for d in decode(tmp_path, reach=0).dispatches)
    off = replace(OPTIONS, prefetch=False)
    assert [n for n in names if n != "prefetch"] == [
        d.kernel.name for d in decode(tmp_path, off).dispatches
    ]


@pytest.mark.usefixtures("small")
def test_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than it; nothing where the next weight is more than twice as large."""
    whole = [d for d in decode(tmp_path).dispatches if d.kernel.name == "prefetch"]
    first = 4 * int(whole[0].params["a_count"])
    monkeypatch.setattr(prefetching, "BUDGET", first // 2)
    (only, *_) = [d for d in decode(tmp_path).dispatches if d.kernel.name == "prefetch"]
    counts = [4 * int(only.params[f"{name}_count"]) for name in "abcd"]
    assert counts == [first // 2, 0, 0, 0]
    monkeypatch.setattr(prefetching, "BUDGET", first // 2 - 4)
    assert not any(d.kernel.name == "prefetch" for d in decode(tmp_path).dispatches)


@pytest.mark.usefixtures("small")
def test_nobody_waits_for_it(tmp_path: Path) -> None:
    """No barrier before it, and none that would not be there without it."""
    plan, hazards = decode(tmp_path), Hazards()
    beside = [hazards.admit(d) for d in plan.dispatches]
    for d, free in zip(plan.dispatches, beside, strict=True):
        if d.kernel.name == "prefetch":
            assert free
            assert dispatch_work(d, 1, 0).bytes == 0
    alone, hazards = decode(tmp_path, replace(OPTIONS, prefetch=False)), Hazards()
    waits = [hazards.admit(d) for d in alone.dispatches].count(False)
    assert beside.count(False) == waits


@pytest.mark.usefixtures("small")
def test_the_same_tokens(vulkan: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without."""
    drawn = []
    # software devices emulate packed products, so that a model takes them only by force
    monkeypatch.setattr(attention_short_q8, "suits", lambda *sizes: True)
    for on in (False, True):
        kinds = (vulkan.info.type,) if on else ()
        monkeypatch.setattr("kompute_llm.engine.products.PREFETCHING", kinds)
        with open_model(write_tiny(tmp_path / "m.gguf", quant="Q8_0")) as c:
            r = VulkanRunner(c, model_spec(c), vulkan, 64, math="int8")
            assert r._forward.opts.prefetch is on
            r.begin(Sampling(temp=0.0), [], 64)
            r.prefill([5, 6, 7], sample=True)
            r.decode(16)
            drawn.append(r.poll()[0])
    assert drawn[0] == drawn[1]
