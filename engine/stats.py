"""Figures of a generation and of benchmark samples. A rate is None when it cannot be known."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


class Finish(enum.Enum):
    """Why a generation ended, in words for the terminal."""

    RUNNING = "still running"
    END_TOKEN = "end token"
    LENGTH = "the number of tokens asked for"
    CONTEXT = "the context is full"
    INTERRUPTED = "interrupted"


@dataclass
class Stats:
    """Counts and seconds of one generation, filled in while it runs.

    Time that the consumer of the ids takes (a slow pipe, a pager) is not counted.
    """

    prompt: int = 0  # ids in the prompt
    processed: int = 0  # of them, run through the model
    cached: int = 0  # of them, found in the KV cache
    prompt_seconds: float = 0.0  # until the first token is there
    generated: int = 0  # ids drawn, without the end token
    decode_steps: int = 0  # ids drawn after the first one, end token included
    decode_seconds: float = 0.0  # for these
    finish: Finish = Finish.RUNNING
    end_id: int | None = None  # the token that stopped it
    bad_logits: int = 0  # NaN or infinite logits, all steps together

    @property
    def prompt_rate(self) -> float | None:
        """Processed prompt tokens per second; cached ones do not count."""
        return rate(self.processed, self.prompt_seconds)

    @property
    def decode_rate(self) -> float | None:
        """Tokens per second after the first, whose time belongs to the prompt."""
        return rate(self.decode_steps, self.decode_seconds)


def rate(count: int, seconds: float) -> float | None:
    """Events per second, or None when there were none or no time passed."""
    return count / seconds if count > 0 and seconds > 0 else None


@dataclass(frozen=True)
class Summary:
    """Mean, sample deviation (n - 1), median and range of some samples."""

    mean: float
    sd: float
    median: float
    min: float
    max: float

    @property
    def unsteady(self) -> bool:
        """Whether the deviation exceeds 10 % of the mean, so that the mean says little."""
        return self.sd > 0.1 * self.mean


def summarize(samples: Sequence[float]) -> Summary:
    """Summary of at least one finite sample; one sample has no deviation (0)."""
    if not samples or not all(math.isfinite(s) for s in samples):
        raise ValueError(f"cannot summarize {samples!r}")
    sd = statistics.stdev(samples) if len(samples) > 1 else 0.0
    return Summary(
        statistics.fmean(samples), sd, statistics.median(samples), min(samples), max(samples)
    )
