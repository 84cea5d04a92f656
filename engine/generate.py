"""One generation: token ids in, token ids out, as soon as they are there.

Knows ids and positions only. Work goes to the runner in pieces (prefill batches, decode chunks)
so that `stopped` is asked often enough for Ctrl-C to act within one piece.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from .errors import ContextError, NumericError
from .stats import Finish, Stats
from .step import StopReason

if TYPE_CHECKING:
    from .runner import Runner
    from .sampler import Sampling

NOT_FINITE = (
    "every logit is NaN or infinite at position {pos}: the numbers of this model or device are "
    "broken. Try --math f32, --cache-type-k f32 --cache-type-v f32 or --device cpu; "
    "'validate -m MODEL' finds the first bad layer"
)


def never() -> bool:
    """The `stopped` of a generation that nobody interrupts."""
    return False


def check_fits(prompt: int, n_ctx: int) -> None:
    """Refuse a prompt of `prompt` ids that a context of `n_ctx` positions cannot hold."""
    if prompt > n_ctx:
        raise ContextError(
            f"the prompt has {prompt} tokens but the context holds {n_ctx}: "
            f"shorten it or raise -c/--ctx"
        )


def generate(
    runner: Runner,
    ids: Sequence[int],
    sampling: Sampling,
    end_ids: Collection[int],
    n_predict: int = -1,
    *,
    stats: Stats | None = None,
    stopped: Callable[[], bool] = never,
) -> Iterator[int]:
    """Yield up to `n_predict` ids (-1: until an end token or a full context) after prompt `ids`.

    The end token is not yielded; `stats` is filled in on the way. Raises ContextError before any
    work, NumericError when no logit is finite, DeviceError when the device fails.
    """
    stats = stats if stats is not None else Stats()
    stats.prompt = len(ids)
    check_fits(len(ids), runner.n_ctx)
    # the token drawn last is never fed back, so it needs no place in the cache
    room = runner.n_ctx - len(ids) + 1
    budget = room if n_predict < 0 else min(n_predict, room)
    runner.begin(sampling, end_ids, len(ids) + max(budget, 1) - 1)
    if not _prefill(runner, ids, budget > 0, stats, stopped):
        return
    if budget == 0:
        stats.finish = Finish.LENGTH
        return
    yield from _decode(runner, budget, end_ids, stats, stopped)
    if stats.finish is Finish.LENGTH and stats.generated != n_predict:
        stats.finish = Finish.CONTEXT


def _prefill(
    runner: Runner, ids: Sequence[int], sample: bool, stats: Stats, stopped: Callable[[], bool]
) -> bool:
    """Feed the prompt in batches. False when interrupted."""
    while stats.processed < len(ids):
        if stopped():
            stats.finish = Finish.INTERRUPTED
            return False
        part = ids[stats.processed : stats.processed + runner.batch]
        last = stats.processed + len(part) == len(ids)
        began = time.perf_counter()
        runner.prefill(part, sample=sample and last)
        stats.prompt_seconds += time.perf_counter() - began
        stats.processed += len(part)
    return True


def _decode(
    runner: Runner,
    budget: int,
    end_ids: Collection[int],
    stats: Stats,
    stopped: Callable[[], bool],
) -> Iterator[int]:
    """Yield ids until the budget is spent, an end token is drawn or `stopped` says so."""
    began = time.perf_counter()
    new, reason, bad = runner.poll()
    stats.prompt_seconds += time.perf_counter() - began
    while True:
        stats.bad_logits = bad
        for token in new:
            if token in end_ids:
                stats.finish, stats.end_id = Finish.END_TOKEN, token
                return
            stats.generated += 1
            yield token
        if reason is StopReason.NOT_FINITE:
            pos = stats.prompt + stats.generated - 1
            raise NumericError(NOT_FINITE.format(pos=pos))
        if reason is not StopReason.RUNNING or stats.generated >= budget:
            end = reason is StopReason.END_TOKEN
            stats.finish = Finish.END_TOKEN if end else Finish.LENGTH
            return
        if stopped():
            stats.finish = Finish.INTERRUPTED
            return
        began = time.perf_counter()
        runner.decode(min(runner.chunk, budget - stats.generated))
        new, reason, bad = runner.poll()
        stats.decode_seconds += time.perf_counter() - began
        stats.decode_steps += len(new)
        if not new and reason is StopReason.RUNNING:
            raise RuntimeError("the executor decoded no token and gave no reason")
