"""Where a generation stands, as the host knows it: what both executors keep beside the plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import step
from .reach import Reach
from .sampler import Sampling, seed_words
from .step import StopReason


class Progress:
    """Position, tokens drawn and stop reason of one generation.

    `words` makes the step buffer of the next batch, `collect` takes over what `out` says.
    """

    def __init__(self, n_ctx: int, reach: Reach) -> None:
        self._n_ctx, self._reach = n_ctx, reach
        self.pos = self.seen = self._limit = self._seed = self._bad = 0
        self.reason = StopReason.RUNNING
        self._fresh: list[int] = []

    def begin(self, sampling: Sampling, limit: int) -> None:
        """A new generation at position 0, which ends with `limit` entries in the cache."""
        self.pos = self.seen = self._bad = 0
        self._limit, self._seed = min(limit, self._n_ctx), int(sampling.seed or 0)
        self.reason, self._fresh = StopReason.RUNNING, []

    def words(self, ids: Sequence[int], pos: int) -> npt.NDArray[np.uint32]:
        """Step words (step.WORDS,) for a batch of ids at `pos`; raises as Reach.feed does."""
        self._reach.feed(pos, len(ids))
        words = np.zeros(step.WORDS, np.uint32)
        words[[step.N, step.POS, step.LIMIT, step.BAD]] = len(ids), pos, self._limit, self._bad
        words[[step.COUNT, step.DRAWS]] = self.seen
        words[[step.SEED_LO, step.SEED_HI]] = seed_words(self._seed)
        return words

    def collect(self, out: npt.NDArray[Any]) -> None:
        """Take over what the sampler wrote: uint32, step words and the ring of drawn ids."""
        count = int(out[step.COUNT])
        self._fresh += [int(out[step.WORDS + i % step.RING]) for i in range(self.seen, count)]
        pos = int(out[step.POS])
        if pos > self.pos:
            self._reach.feed(self.pos, pos - self.pos)
        self.seen, self.pos = count, pos
        self.reason, self._bad = StopReason(int(out[step.STOP])), int(out[step.BAD])

    def poll(self) -> tuple[list[int], StopReason, int]:
        """Tokens since the last poll, the stop reason, non-finite logits since `begin`."""
        fresh, self._fresh = self._fresh, []
        return fresh, self.reason, self._bad
