"""Fast sample_scan: the same integers as its reference, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine import step as words
from ..engine.sampler import (
    FREQUENCY,
    INV_REPEAT,
    N_SUPPRESSED,
    PRESENCE,
    REPEAT,
    SUPPRESSED,
    WINDOW,
)
from .fast_memory import load_one, load_u32, load_word, store_u32
from .fast_simd import device, float_bits, routine
from .fast_team import claim, fetch_add_u32, fetch_max_u32

LOGITS, SETTINGS, COUNTS, STEP, KEYS, BEST, N_VOCAB, GROUP = range(0, 64, 8)
GROUPS = 64  # groups of ids per claim
BAD, STOP = 4 * words.BAD, 4 * words.STOP
TOP: Any = np.float32(3.4028235e38)


@device
def order_key(value: float) -> int:
    """An unsigned key that sorts like the float; 0 for NaN and infinities, -0 as +0."""
    bits: int = float_bits(value)
    if bits & 0x7F800000 == 0x7F800000:
        return 0
    if bits == 0x80000000:
        bits = 0
    return bits ^ 0xFFFFFFFF if bits & 0x80000000 else bits | 0x80000000


@device
def penalized(x: float, count: int, settings: int) -> Any:
    """The logit of a token that occurs `count` times in the window (engine/draw.py)."""
    factor = load_one(settings + 4 * (INV_REPEAT if x > 0 else REPEAT))
    cost = np.float32(count) * load_one(settings + 4 * FREQUENCY)
    cost = cost + load_one(settings + 4 * PRESENCE)
    return min(max(x * factor - cost, -TOP), TOP)


@device
def find_suppressed(ids: int, count: int, low: int) -> int:
    """Index of the first of `count` ascending ids that is not below `low`."""
    first, stop = 0, count
    while first < stop:
        middle = (first + stop) // 2
        if load_u32(ids + 4 * middle) < low:
            first = middle + 1
        else:
            stop = middle
    return first


@routine
def scan_group(a: int, start: int, stop: int) -> int:
    """Keys of ids start … stop - 1, their best (key, id); returns how many are not finite."""
    logits, settings = load_word(a + LOGITS), load_word(a + SETTINGS)
    counts, keys = load_word(a + COUNTS), load_word(a + KEYS)
    window, best, at, bad = load_u32(settings + 4 * WINDOW), -1, start, 0
    silent, count = settings + 4 * SUPPRESSED, load_u32(settings + 4 * N_SUPPRESSED)
    following = find_suppressed(silent, count, start)
    for i in range(start, stop):
        x = load_one(logits + 4 * i)
        key = order_key(x)
        bad += key == 0
        if following < count and load_u32(silent + 4 * following) == i:
            following, key = following + 1, 0
        if window and key and load_u32(counts + 4 * i):
            key = order_key(penalized(x, load_u32(counts + 4 * i), settings))
        store_u32(keys + 4 * i, key)
        if key > best:
            best, at = key, i
    place = load_word(a + BEST) + 8 * (start // load_word(a + GROUP))
    store_u32(place, best)
    store_u32(place + 4, at)
    return bad


def sample_scan() -> Any:
    """A piece of work is GROUPS groups of ids."""

    def run(a: int, team: int, me: int, members: int) -> None:
        step, total, group = load_word(a + STEP), load_word(a + N_VOCAB), load_word(a + GROUP)
        first, bad, best = claim(team) * (GROUPS * group), 0, load_word(a + BEST)
        top, rest = 0, 0  # the largest key, the complement of the least maximum that is usable
        while first < total and load_u32(step + STOP) == 0:
            stop = min(first + GROUPS * group, total)
            for start in range(first, stop, group):
                bad += scan_group(a, start, min(start + group, stop))
                key = load_u32(best + 8 * (start // group))
                top = max(top, key)
                if key:
                    rest = max(rest, key ^ 0xFFFFFFFF)
            first = claim(team) * (GROUPS * group)
        if bad:
            fetch_add_u32(step + BAD, bad)
        if top:
            ends = best + 8 * ((total + group - 1) // group)
            fetch_max_u32(ends, top)
            fetch_max_u32(ends + 4, rest)

    return run
