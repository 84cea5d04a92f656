"""The step buffer: the words that change from token to token (twin of shaders/step.glsl).

A recorded sequence reads everything that varies from here, so one recording serves every
position. `tokens` is a separate buffer of token ids (uint32, max batch); `out` is what the host
reads back: a copy of the step words, then the ring of generated ids.
"""

from __future__ import annotations

import enum

N, POS, STOP, LIMIT, COUNT, SEED_LO, SEED_HI, DRAWS, BAD = range(9)
WORDS = 16
RING = 64  # generated ids kept in `out` after the step words: id i is at WORDS + i % RING


class StopReason(enum.IntEnum):
    """Why generation ended on the device (step word STOP)."""

    RUNNING = 0
    END_TOKEN = 1
    LIMIT = 2
    NOT_FINITE = 3
