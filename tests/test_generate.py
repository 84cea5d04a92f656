"""Generation over a scripted runner: counts, limits, pieces of work, faults."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from fake_runner import FakeRunner, Script

from kompute_llm.engine.errors import ContextError, DeviceError, NumericError
from kompute_llm.engine.generate import generate, never
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.stats import Finish, Stats, rate, summarize

SPEC: Any = SimpleNamespace(n_vocab=100)


def play(
    script: Script,
    prompt: Sequence[int],
    n: int = -1,
    n_ctx: int = 64,
    end: Collection[int] = (),
    stopped: Callable[[], bool] = never,
) -> tuple[list[int], Stats, FakeRunner]:
    stats = Stats()
    runner = FakeRunner(script, SPEC, n_ctx)
    ids = generate(runner, prompt, Sampling(seed=1), end, n, stats=stats, stopped=stopped)
    return list(ids), stats, runner


def test_prompt_goes_in_batches_and_only_the_last_one_samples() -> None:
    script = Script(ids=[7])
    out, stats, _ = play(script, range(10), n=1)
    assert out == [7]
    assert script.calls == ["prefill 4", "prefill 4", "prefill 2"]
    assert (stats.prompt, stats.processed, stats.generated) == (10, 10, 1)


def test_batches_may_grow_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    prefill = FakeRunner.prefill

    def growing(self: FakeRunner, ids: Sequence[int], *, sample: bool) -> None:
        prefill(self, ids, sample=sample)
        self.batch *= 2

    monkeypatch.setattr(FakeRunner, "prefill", growing)
    script = Script(ids=[7])
    play(script, range(30), n=1)
    assert script.calls == ["prefill 4", "prefill 8", "prefill 16", "prefill 2"]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 8])
def test_exactly_n_tokens(n: int) -> None:
    out, stats, runner = play(Script(ids=[1, 2, 3, 4, 5]), [9], n=n)
    assert out == ([1, 2, 3, 4, 5] * 2)[:n]
    assert stats.finish is Finish.LENGTH
    assert stats.generated == n
    assert runner.pos == max(1, n)  # the token drawn last is not fed


@pytest.mark.parametrize("prompt", [1, 5, 8])
def test_stops_when_the_context_is_full(prompt: int) -> None:
    out, stats, runner = play(Script(ids=[1]), [9] * prompt, n_ctx=8)
    assert stats.finish is Finish.CONTEXT
    assert len(out) == 8 - prompt + 1
    assert runner.pos == 8


def test_n_that_just_fits_is_no_context_end() -> None:
    out, stats, _ = play(Script(ids=[1]), [9] * 5, n=4, n_ctx=8)
    assert (len(out), stats.finish) == (4, Finish.LENGTH)
    out, stats, _ = play(Script(ids=[1]), [9] * 5, n=5, n_ctx=8)
    assert (len(out), stats.finish) == (4, Finish.CONTEXT)


def test_too_long_a_prompt_is_refused_before_any_work() -> None:
    script = Script(ids=[1])
    with pytest.raises(ContextError, match=r"9 tokens.*holds 8"):
        play(script, [9] * 9, n_ctx=8)
    assert script.calls == []


@pytest.mark.parametrize("at", range(6))
def test_end_token_is_reported_and_not_yielded(at: int) -> None:
    ids = [10 + i for i in range(at)] + [5, 6]
    out, stats, _ = play(Script(ids=ids), [9], end={5, 50})
    assert out == ids[:at]
    assert (stats.finish, stats.end_id, stats.generated) == (Finish.END_TOKEN, 5, at)


def test_interrupt_between_prompt_batches() -> None:
    script = Script(ids=[1])
    out, stats, _ = play(script, range(10), stopped=lambda: len(script.calls) >= 2)
    assert out == []
    assert (stats.finish, stats.processed) == (Finish.INTERRUPTED, 8)
    assert stats.decode_rate is None


def test_interrupt_within_one_chunk() -> None:
    script = Script(ids=[1, 2])
    out, stats, _ = play(script, [9], stopped=lambda: len(script.calls) >= 3)
    assert script.calls == ["prefill 1", "decode 3", "decode 3"]
    assert (len(out), stats.finish) == (7, Finish.INTERRUPTED)


def test_rates() -> None:
    script = Script(ids=[1], prefill_seconds=0.01, step_seconds=0.002)
    _, stats, _ = play(script, range(8), n=11)
    assert stats.prompt_rate == pytest.approx(8 / 0.02, rel=0.3)
    assert stats.decode_rate == pytest.approx(1 / 0.002, rel=0.3)
    assert stats.decode_steps == 10
    _, stats, _ = play(script, range(8), n=1)
    assert stats.decode_rate is None
    assert rate(0, 1.0) is None
    assert rate(3, 0.0) is None


def test_some_bad_logits_are_counted() -> None:
    _, stats, _ = play(Script(ids=[1], bad=[0, 2, 0, 0, 0, 0, 3]), [9], n=8)
    assert stats.bad_logits == 5


def test_no_finite_logit_raises_after_the_good_tokens() -> None:
    runner = FakeRunner(Script(ids=[1, 2, 3, 4], not_finite_at=2), SPEC, 64)
    out = []
    with pytest.raises(NumericError, match=r"position 2.*--device cpu"):
        for token in generate(runner, [9], Sampling(seed=1), ()):
            out.append(token)
    assert out == [1, 2]


@pytest.mark.parametrize(
    "script", [Script(ids=[1], lose_prefill=1), Script(ids=[1], lose_decode=1)]
)
def test_device_lost_ends_it(script: Script) -> None:
    with pytest.raises(DeviceError):
        play(script, range(8))


def test_summary() -> None:
    s = summarize([1.0, 2.0, 6.0])
    assert (s.mean, s.median, s.min, s.max) == (3.0, 2.0, 1.0, 6.0)
    assert s.sd == pytest.approx(7**0.5)  # (4 + 1 + 9) / (3 - 1)
    assert s.unsteady
    assert summarize([5.0]).sd == 0.0
    assert not summarize([10.0, 10.1]).unsteady
    with pytest.raises(ValueError, match="nan"):
        summarize([1.0, float("nan")])
