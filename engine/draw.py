"""The sampler's arithmetic in NumPy, step for step that of shaders/sample_common.glsl.

Logits become unsigned keys that sort alike, probabilities become integers of 30 fractional bits:
sums of integers do not depend on their order, and what is left of floating point (additions and
multiplications, each rounded once) rounds alike everywhere. The same logits, settings and seed
therefore give the same id on every device.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import sampler as w

Keys = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.intp]
Weights = npt.NDArray[np.uint64]

CLASSES = 1024  # a draw lays ids end to end by id modulo CLASSES, then by id
_FEW = 1024  # ids tried first when top-p has no top-k before it


def order_keys(x: Floats) -> Keys:
    """Keys that sort like `x`; 0 for NaN and infinities, -0 as +0."""
    y = x + np.float32(0)
    flip = (y.view(np.int32) >> 31).view(np.uint32) | np.uint32(0x80000000)
    keys: Keys = y.view(np.uint32) ^ flip
    finite = np.isfinite(y)
    if not finite.all():
        keys[~finite] = 0
    return keys


def key_values(keys: Keys) -> Floats:
    """The floats that non-zero `keys` stand for."""
    bits = np.where(keys & np.uint32(0x80000000), keys & np.uint32(0x7FFFFFFF), ~keys)
    return bits.astype(np.uint32).view(np.float32)


def fixed_exp(x: Floats) -> Weights:
    """round(2^30 e^x) for float32 x <= 0 (the shader's `fixed_exp`, where the method is cited)."""
    one = np.float32
    y = np.fmax(x, one(-22.0))  # gives 0, as does all below
    n = np.floor(y * one(1.44269502) + one(0.5))
    f = y - n * one(0.693359375)
    f -= n * one(-2.12194440e-4)
    e = f * one(1.38888892e-3) + one(8.33333377e-3)
    for c in (4.16666679e-2, 1.66666672e-1, 0.5, 1.0, 1.0):
        e *= f
        e += one(c)
    e *= ((n.astype(np.int32) + 157) << 23).view(np.float32)  # 2^(n + 30)
    weights: Weights = (e + one(0.5)).astype(np.uint64)
    return weights


def philox(counter: int, seed_lo: int, seed_hi: int, words: int = 1) -> tuple[int, ...]:
    """The first `words` of Philox4x32-10 at (counter, 0, 0, 0) under the key (seed_lo, seed_hi)."""
    return philox_block((counter, 0, 0, 0), (seed_lo, seed_hi))[:words]


def philox_block(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Four random words (Salmon et al., SC 2011)."""
    a, b, c, d = counter
    k0, k1 = key
    mask = 0xFFFFFFFF
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k0, q & mask, (p >> 32) ^ d ^ k1, p & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return a, b, c, d


def _float(settings: w.Words, word: int) -> np.float32:
    return np.float32(settings[word : word + 1].view(np.float32)[0])


def penalize(x: Floats, counts: npt.NDArray[np.uint32], settings: w.Words) -> Floats:
    """Logits of tokens that occur `counts` (> 0) times in the window, after all three penalties."""
    factor = np.where(x > 0, _float(settings, w.INV_REPEAT), _float(settings, w.REPEAT))
    cost = counts.astype(np.float32) * _float(settings, w.FREQUENCY)
    cost = cost + _float(settings, w.PRESENCE)
    top = np.float32(3.4028235e38)
    with np.errstate(over="ignore"):
        out: Floats = np.clip(x * factor - cost, -top, top)
    return out


def top_k(keys: Keys, k: int) -> Ids:
    """The k best usable ids, ascending: larger keys first, lower ids on ties. k = 0: all."""
    if k == 0 or k >= keys.size:
        return np.flatnonzero(keys)
    threshold = max(int(np.partition(keys, keys.size - k)[keys.size - k]), 1)
    above = np.flatnonzero(keys > threshold)
    ties = np.flatnonzero(keys == threshold)[: k - above.size]
    return np.sort(np.concatenate([above, ties]))


def nucleus(ids: Ids, keys: Keys, weights: Weights, share: int) -> Ids:
    """The smallest set of best ids with share / 2^32 of the weight, ascending, never empty.

    `ids` ascend; `weights` are theirs.
    """
    goal = max((int(weights.sum()) * share) >> 32, 1)
    if ids.size > _FEW:  # the set is small as a rule: try before sorting everything
        few = top_k(keys, _FEW)
        few_weights = weights[np.searchsorted(ids, few)]
        if int(few_weights.sum()) >= goal:
            ids, weights = few, few_weights
    packed = (~keys[ids]).astype(np.uint64) << np.uint64(32) | np.arange(ids.size, dtype=np.uint64)
    packed.sort()  # by key, largest first, then by id
    order = (packed & np.uint64(0xFFFFFFFF)).astype(np.intp)
    before = np.cumsum(weights[order]) - weights[order]
    return np.sort(ids[order[before < np.uint64(goal)]])


def choose(keys: Keys, settings: w.Words, u: int) -> int:
    """The id drawn from `keys` (n_vocab,) with the random word `u`, or -1 if no key is usable."""
    best = int(keys.argmax())
    if keys[best] == 0:
        return -1
    if settings[w.GREEDY]:
        return best
    ids = top_k(keys, int(settings[w.TOP_K]))
    top = key_values(keys[best : best + 1])
    share = int(settings[w.TOP_P])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if share != w.OFF:
            ids = nucleus(ids, keys, fixed_exp(key_values(keys[ids]) - top), share)
        below = key_values(keys[ids]) - top
        ids, below = ids[keep := below >= _float(settings, w.MIN_LOG)], below[keep]
        weights = fixed_exp(below * _float(settings, w.INV_TEMP))
    order = np.argsort((ids % CLASSES).astype(np.uint16), kind="stable")  # ids ascend already
    ends = np.cumsum(weights[order])
    unit = (int(ends[-1]) * u) >> 32
    return int(ids[order[np.searchsorted(ends, np.uint64(unit), side="right")]])
