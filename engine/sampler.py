"""Sampling options: their checks, special values, and the words that the shaders read.

The arithmetic is in engine/draw.py; kernels/sample_*.py run it on either executor.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .errors import UsageError

Words = npt.NDArray[np.uint32]

# Words of the settings buffer (twin of shaders/sample_common.glsl).
(
    GREEDY, INV_TEMP, TOP_K, TOP_P, MIN_LOG, REPEAT, INV_REPEAT, PRESENCE, FREQUENCY, WINDOW, N_END,
    N_SUPPRESSED,
) = range(12)  # fmt: skip
END = 16  # end ids start here
MAX_END = 64
SUPPRESSED = END + MAX_END  # ids that are never drawn, ascending
MAX_SUPPRESSED = 1024  # Whisper's list, the longest that is common, has 90
SETTINGS_WORDS = SUPPRESSED + MAX_SUPPRESSED

OFF = 0xFFFFFFFF  # TOP_P: no limit; WINDOW: the whole context
GREEDY_BELOW = 1e-6  # temperatures below this take the largest logit

SPECIAL_VALUES = """\
Special values (the same on every device and on the CPU):
  --temp 0             greedy: the largest logit, the lowest id on ties; top-k, top-p, min-p
                       and the seed play no part, penalties still do
  --top-k 0            off (so is any negative value); above the vocabulary size = off
  --top-p 1            off; 0 = only the most probable token
  --min-p 0            off; 1 = only the most probable token
  --repeat-penalty 1   off; above 1 makes seen tokens less likely, whatever their logit's sign
  --repeat-last-n 0    penalties off; -1 = the whole context, prompt included
  --presence-penalty 0, --frequency-penalty 0   off; negative values favour repetition
  --seed -1            a new seed each time (as without --seed); it is printed, and repeats the
                       run when given; seeds go from 0 to 18446744073709551615
Other values (a negative temperature, top-p above 1, not a number) are usage errors."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Order: penalties, top-k, top-p, min-p, temperature, draw."""

    temp: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None

    def validate(self) -> None:
        """Raise UsageError naming the first option whose value cannot be used."""
        _within("--temp", self.temp, 0.0, math.inf)
        _within("--top-p", self.top_p, 0.0, 1.0)
        _within("--min-p", self.min_p, 0.0, 1.0)
        _within("--repeat-penalty", self.repeat_penalty, 1e-3, 1e3)
        _within("--presence-penalty", self.presence_penalty, -1e6, 1e6)
        _within("--frequency-penalty", self.frequency_penalty, -1e6, 1e6)
        if self.repeat_last_n < -1:
            raise UsageError(
                f"--repeat-last-n {self.repeat_last_n} is out of range: "
                "a number of tokens, 0 (penalties off) or -1 (the whole context) is expected."
            )
        if self.seed is not None and not -1 <= self.seed < 1 << 64:
            raise UsageError(
                f"--seed {self.seed} is out of range: 0 to {(1 << 64) - 1}, "
                "or -1 for a new seed, is expected."
            )

    @property
    def greedy(self) -> bool:
        """Whether the largest logit is taken and no random number matters."""
        return self.temp < GREEDY_BELOW

    @property
    def window(self) -> int:
        """Tokens that penalties look back: 0 where none applies, OFF for the whole context."""
        neutral = self.repeat_penalty == 1.0
        if neutral and self.presence_penalty == 0.0 and self.frequency_penalty == 0.0:
            return 0
        return OFF if self.repeat_last_n == -1 else min(self.repeat_last_n, OFF)

    def with_seed(self) -> Sampling:
        """The same options with a definite seed: the given one, or a new one."""
        return replace(self, seed=resolve_seed(self.seed))


def _within(option: str, value: float, low: float, high: float) -> None:
    if math.isfinite(value) and low <= value <= high:
        return
    bounds = f"{low:g} or more" if math.isinf(high) else f"between {low:g} and {high:g}"
    raise UsageError(f"{option} {value:g} is out of range: a number {bounds} is expected.")


def resolve_seed(seed: int | None) -> int:
    """`seed` itself, or for None and -1 a new one of 32 bits, short enough to be typed again."""
    return secrets.randbits(32) if seed is None or seed == -1 else seed


def seed_words(seed: int) -> tuple[int, int]:
    """Step words SEED_LO and SEED_HI of a 64-bit seed."""
    return seed & 0xFFFFFFFF, seed >> 32


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def settings_words(
    s: Sampling, end_ids: Collection[int], suppressed: Collection[int] = ()
) -> Words:
    """The settings buffer, uint32 (SETTINGS_WORDS,), for checked options.

    `suppressed`: ids that are never drawn, at most MAX_SUPPRESSED (checked where the file is read).
    Divisions and logarithms happen here: a device need not round them correctly.
    Raises UsageError for more than MAX_END end ids.
    """
    assert len(suppressed) <= MAX_SUPPRESSED
    if len(end_ids) > MAX_END:
        raise UsageError(f"{len(end_ids)} end-of-generation tokens; at most {MAX_END} can be used.")
    w = np.zeros(SETTINGS_WORDS, np.uint32)
    w[GREEDY] = s.greedy
    w[INV_TEMP] = _bits(1.0 if s.greedy else min(1.0 / s.temp, 1e30))
    w[TOP_K] = min(max(s.top_k, 0), OFF)
    w[TOP_P] = OFF if s.top_p >= 1.0 else min(round(s.top_p * 2**32), OFF - 1)
    w[MIN_LOG] = _bits(math.log(s.min_p) if s.min_p > 0.0 else -3.4028235e38)
    w[REPEAT] = _bits(s.repeat_penalty)
    w[INV_REPEAT] = _bits(1.0 / s.repeat_penalty)
    w[PRESENCE] = _bits(s.presence_penalty)
    w[FREQUENCY] = _bits(s.frequency_penalty)
    w[WINDOW] = s.window
    w[N_END] = len(end_ids)
    w[END : END + len(end_ids)] = sorted(end_ids)
    w[N_SUPPRESSED] = len(suppressed)
    w[SUPPRESSED : SUPPRESSED + len(suppressed)] = sorted(suppressed)
    return w
