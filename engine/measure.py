"""What `bench` times: prompt processing and generation of random tokens, no vocabulary needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .bench_tests import Test
from .errors import NumericError
from .sampler import Sampling
from .step import StopReason

if TYPE_CHECKING:
    from .runner import Runner

SEED = 20240229  # of the random prompt; any fixed number does
WARM_SECONDS = 0.5  # generation is warm after this long, or after all of its tokens
GREEDY = Sampling(temp=0.0, seed=0)

Stopped = Callable[[], bool]


class Stop(Exception):
    """`stopped` said so in the middle of a sample."""


@dataclass(frozen=True)
class Sample:
    """One repetition: seconds by the clock, of the calling thread and of the whole process."""

    seconds: float
    thread_seconds: float = 0.0
    process_seconds: float = 0.0
    ids: list[int] = field(default_factory=list)  # drawn while it was timed


def run_once(
    runner: Runner, test: Test, stopped: Stopped, *, warm: bool = False, profile: bool = False
) -> Sample:
    """One repetition, from an empty cache; `profile` measures phases of just that time.

    `warm` may cut generation short, and repeats a prompt until its batches are settled. Raises
    Stop, NumericError (what is timed would be no-ops) or DeviceError.
    """
    batch = runner.batch
    runner.begin(GREEDY, (), runner.n_ctx)
    rng = np.random.default_rng(SEED)
    # generation needs a token to begin with; the one that the untimed prompt draws
    before = max(test.depth, int(not test.prompt))
    ids: list[int] = rng.integers(runner.spec.n_vocab, size=before + test.prompt).tolist()
    if before:
        _feed(runner, ids[:before], stopped, sample=not test.prompt)
        _drawn(runner, at_least=int(not test.prompt))
    if profile:
        runner.profile(True)
    clocks = time.perf_counter, time.thread_time, time.process_time
    began = [clock() for clock in clocks]
    drawn = _timed(runner, test, ids[before:], stopped, warm)
    spent = [clock() - start for clock, start in zip(clocks, began, strict=True)]
    if warm and runner.batch != batch:
        return run_once(runner, test, stopped, warm=True)
    return Sample(spent[0], spent[1], spent[2], drawn)


def _timed(
    runner: Runner, test: Test, prompt: list[int], stopped: Stopped, warm: bool
) -> list[int]:
    """What lies between the clocks; returns the ids drawn."""
    drawn: list[int] = []
    if test.prompt:
        _feed(runner, prompt, stopped, sample=True)
        drawn += _drawn(runner)
    began, left = time.perf_counter(), test.gen
    while left > 0 and not (warm and time.perf_counter() - began > WARM_SECONDS):
        _check(stopped)
        runner.decode(min(left, runner.chunk))
        new = _drawn(runner)
        left -= len(new)
        drawn += new
    return drawn


def _feed(runner: Runner, ids: list[int], stopped: Stopped, *, sample: bool) -> None:
    """Feed a prompt in batches; with `sample`, draw one token after it."""
    done = 0
    while done < len(ids):
        _check(stopped)
        part = ids[done : done + runner.batch]
        done += len(part)
        runner.prefill(part, sample=sample and done == len(ids))


def _check(stopped: Stopped) -> None:
    if stopped():
        raise Stop


def _drawn(runner: Runner, at_least: int = 1) -> list[int]:
    """Tokens drawn since the last poll, at least that many."""
    new, reason, _ = runner.poll()
    if reason is StopReason.NOT_FINITE:
        raise NumericError("every logit is NaN or infinite: the speed of broken numbers is none")
    if len(new) < at_least:
        raise RuntimeError("the executor drew no token")
    return new
