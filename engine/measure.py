"""What `bench` times: prompt processing and generation of random tokens, no vocabulary needed.

The names are llama-bench's: pp512 processes a prompt of 512 tokens, tg128 generates 128 tokens
one after the other from a nearly empty context.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .errors import NumericError, UsageError
from .sampler import Sampling
from .step import StopReason

if TYPE_CHECKING:
    from .runner import Runner

SEED = 20240229  # of the random prompt; any fixed number does
WARM_SECONDS = 0.5  # generation is warm after this long, or after all of its tokens
LARGEST = 1 << 24  # tokens of one test
_TEST = re.compile(r"(pp|tg)(\d+)", re.ASCII)
GREEDY = Sampling(temp=0.0, seed=0)

Stopped = Callable[[], bool]


class Stop(Exception):
    """`stopped` said so in the middle of a sample."""


@dataclass(frozen=True)
class Test:
    """One thing to time: `kind` "pp" or "tg" and its number of tokens."""

    __test__ = False  # not a pytest class
    kind: str
    tokens: int

    @property
    def name(self) -> str:
        """As on the command line: "pp512"."""
        return f"{self.kind}{self.tokens}"

    @property
    def positions(self) -> int:
        """Context that it needs; generation starts after a prompt of one token."""
        return self.tokens + (self.kind == "tg")


def looks_like_test(text: str) -> bool:
    """Whether an argument was meant as a test (and not as a model's path)."""
    return re.match(r"(pp|tg)\d", text) is not None and "/" not in text and ".gguf" not in text


def parse_tests(texts: Sequence[str]) -> list[Test]:
    """Tests of arguments such as "pp512", "tg128" or "pp512,tg128"; UsageError names a bad one."""
    found = []
    for text in ",".join(texts).split(","):
        match = _TEST.fullmatch(text)
        if not match or not 0 < int(match[2]) <= LARGEST:
            raise UsageError(
                f"no such test: {text!r}; expected ppN or tgN with N from 1 to {LARGEST}, "
                "such as pp512 or tg128"
            )
        found.append(Test(match[1], int(match[2])))
    return found


def run_once(
    runner: Runner, test: Test, stopped: Stopped, *, warm: bool = False, profile: bool = False
) -> float:
    """Seconds of one repetition, from an empty cache; `profile` measures phases of just that time.

    `warm` may cut generation short, and repeats a prompt until its batches are settled. Raises
    Stop, NumericError (what is timed would be no-ops) or DeviceError.
    """
    rng = np.random.default_rng(SEED)
    ids = rng.integers(runner.spec.n_vocab, size=test.tokens if test.kind == "pp" else 1).tolist()
    batch = runner.batch
    runner.begin(GREEDY, (), runner.n_ctx)
    if test.kind == "tg":
        _prompt(runner, ids, stopped)
    if profile:
        runner.profile(True)
    began = time.perf_counter()
    if test.kind == "pp":
        _prompt(runner, ids, stopped)
    left = test.tokens if test.kind == "tg" else 0
    while left > 0 and not (warm and time.perf_counter() - began > WARM_SECONDS):
        _check(stopped)
        runner.decode(min(left, runner.chunk))
        left -= _drawn(runner)
    if warm and runner.batch != batch:
        return run_once(runner, test, stopped, warm=True)
    return time.perf_counter() - began


def _prompt(runner: Runner, ids: list[int], stopped: Stopped) -> None:
    """Feed a prompt in batches and draw one token."""
    done = 0
    while done < len(ids):
        _check(stopped)
        part = ids[done : done + runner.batch]
        done += len(part)
        runner.prefill(part, sample=done == len(ids))
    _drawn(runner)


def _check(stopped: Stopped) -> None:
    if stopped():
        raise Stop


def _drawn(runner: Runner) -> int:
    """Number of tokens drawn since the last poll, at least one."""
    new, reason, _ = runner.poll()
    if reason is StopReason.NOT_FINITE:
        raise NumericError("every logit is NaN or infinite: the speed of broken numbers is none")
    if not new:
        raise RuntimeError("the executor drew no token")
    return len(new)
