"""Sampling: arithmetic against known answers and float64, options, and the device in a chain."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sampling import Chain, Floats, exact_probabilities

from kompute_llm.engine import draw, sampler, step
from kompute_llm.engine.errors import UsageError
from kompute_llm.engine.sampler import Sampling, seed_words, settings_words
from kompute_llm.engine.step import StopReason

OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
LOGITS = np.random.default_rng(3).standard_normal(60).astype(np.float32)


def choose(logits: Floats, options: Sampling, draws: int, seed: int = 1) -> list[int]:
    """`draws` ids from the same logits."""
    keys, words = draw.order_keys(logits), settings_words(options, ())
    lo, hi = seed_words(seed)
    return [draw.choose(keys, words, draw.philox(i, lo, hi)[0]) for i in range(draws)]


def misfit(ids: list[int], expected: npt.NDArray[np.float64]) -> float:
    """Chi-square of the ids less its mean, in standard deviations; rare ids are pooled."""
    counts = np.bincount(ids, minlength=expected.size)
    assert not counts[expected == 0].any()
    often = expected * len(ids) >= 5
    observed = np.append(counts[often], counts[~often].sum())
    wanted = np.append(expected[often], expected[~often].sum()) * len(ids)
    keep = wanted > 0
    chi2 = float((np.square(observed - wanted)[keep] / wanted[keep]).sum())
    df = int(keep.sum()) - 1
    return (chi2 - df) / math.sqrt(2 * df)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)  # fmt: skip
def test_philox(counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
    """The known answers of Random123 (kat_vectors, philox4x32 with 10 rounds)."""
    assert draw.philox_block(counter, key) == words


def test_fixed_exp() -> None:
    """Relative error of a few units of float32, monotone on a coarse grid, 0 far below."""
    x = -np.linspace(0, 15, 20001, dtype=np.float32)
    got = draw.fixed_exp(x)
    assert np.abs(got / np.exp(x.astype(np.float64)) / 2**30 - 1).max() < 2e-3
    near = x > -6
    assert np.abs(got[near] / np.exp(x[near].astype(np.float64)) / 2**30 - 1).max() < 5e-7
    assert (np.diff(got.astype(np.int64)) <= 0).all()
    far = np.array([-22, -1e9, -np.inf], np.float32)
    assert draw.fixed_exp(far).tolist() == [0, 0, 0]


def test_order_keys() -> None:
    """Keys sort like floats, zeros are equal, values that are not finite are 0."""
    x = np.array([-3e38, -2, -1e-40, 0, 1e-40, 5, 3e38], np.float32)
    keys = draw.order_keys(x)
    assert (np.diff(keys.astype(np.int64)) > 0).all() and (draw.key_values(keys) == x).all()
    zero, minus, nan, inf = draw.order_keys(np.array([0.0, -0.0, np.nan, -np.inf], np.float32))
    assert zero == minus and nan == inf == 0


@pytest.mark.parametrize(
    "options",
    [
        Sampling(), Sampling(temp=1.0, **OFF), Sampling(temp=2.0, top_k=7, top_p=1.0, min_p=0.0),
        Sampling(temp=0.5, top_k=0, top_p=0.7, min_p=0.0), Sampling(top_k=0, top_p=1.0, min_p=0.2),
        Sampling(temp=3.0, top_k=30, top_p=0.9, min_p=0.02),
    ],
    ids=repr,
)  # fmt: skip
def test_distribution(options: Sampling) -> None:
    """Draws fit the exact probabilities, and ids outside the kept set never come up."""
    expected = exact_probabilities(LOGITS, options)
    assert misfit(choose(LOGITS, options, 20_000 if options == Sampling() else 5000), expected) < 5


def test_large_vocabulary_support() -> None:
    """On 5,000 ids the kept set is that of a full sort, with and without top-k before top-p."""
    logits = np.random.default_rng(5).standard_normal(5000).astype(np.float32) * 2
    for options in (Sampling(**OFF | {"top_p": 0.9}), Sampling(top_k=2000, top_p=0.5, min_p=0.0)):
        kept = exact_probabilities(logits, options) > 0
        words, keys = settings_words(options, ()), draw.order_keys(logits)
        ids = draw.top_k(keys, int(words[sampler.TOP_K]))
        weights = draw.fixed_exp(logits[ids] - logits.max())
        ids = draw.nucleus(ids, keys, weights, int(words[sampler.TOP_P]))
        assert abs(ids.size - kept.sum()) <= 1  # the last one may fall to rounding


def test_greedy() -> None:
    """Temperature 0 takes the largest logit, the lowest id on ties, whatever else is set."""
    tied = LOGITS.copy()
    tied[[20, 50]] = 9.0
    for options in (Sampling(temp=0), Sampling(temp=1e-9, top_k=1, top_p=0.1, min_p=1)):
        assert choose(tied, options, 3) == [20, 20, 20]


def test_special_values() -> None:
    """top-k 0 is off, 1 is one id, 10^9 is the vocabulary; top-p 0 and min-p 1 are one id."""
    flat = np.zeros(50, np.float32)
    free = Sampling(temp=1.0, **OFF)
    ids = choose(flat, free, 200)
    assert len(set(ids)) > 30
    assert choose(flat, dataclasses.replace(free, top_k=10**9), 200) == ids
    assert choose(flat, dataclasses.replace(free, top_k=-5), 200) == ids
    assert set(choose(flat, dataclasses.replace(free, top_k=1), 50)) == {0}
    assert set(choose(flat, dataclasses.replace(free, top_k=3), 200)) == {0, 1, 2}
    assert set(choose(flat, dataclasses.replace(free, top_p=0.0), 50)) == {0}
    assert len(set(choose(LOGITS, dataclasses.replace(free, min_p=1.0), 50))) == 1


def test_penalty_signs() -> None:
    """A repeat penalty lowers positive and negative logits alike."""
    x = np.array([2.0, -2.0], np.float32)
    words = settings_words(Sampling(repeat_penalty=1.5), ())
    got = draw.penalize(x, np.array([1, 1], np.uint32), words)
    np.testing.assert_allclose(got, [2 / 1.5, -3.0], rtol=1e-6)
    words = settings_words(Sampling(presence_penalty=0.5, frequency_penalty=0.25), ())
    got = draw.penalize(x, np.array([1, 4], np.uint32), words)
    np.testing.assert_allclose(got, [1.25, -3.5])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("top_p", 1.5), ("top_p", -0.1), ("min_p", -1.0), ("min_p", 1.01), ("temp", math.nan),
        ("temp", -0.5), ("temp", math.inf), ("repeat_penalty", 0.0), ("repeat_penalty", -1.0),
        ("presence_penalty", math.nan), ("frequency_penalty", math.inf), ("repeat_last_n", -2),
        ("seed", -2), ("seed", 1 << 64),
    ],
)  # fmt: skip
def test_out_of_range(option: str, value: Any) -> None:
    """Values without a meaning are usage errors that name the option."""
    with pytest.raises(UsageError, match="--" + option.replace("_", "-")):
        dataclasses.replace(Sampling(), **{option: value}).validate()


def test_in_range() -> None:
    """Every special value of the table is accepted."""
    changes: dict[str, Any]
    for changes in (
        {"temp": 0}, {"top_k": 0}, {"top_k": -1}, {"top_k": 10**9}, {"top_p": 0}, {"top_p": 1},
        {"min_p": 0}, {"min_p": 1}, {"repeat_last_n": -1}, {"repeat_last_n": 0}, {"seed": -1},
        {"seed": 0}, {"seed": 1 << 32}, {"presence_penalty": -2.0},
    ):  # fmt: skip
        dataclasses.replace(Sampling(), **changes).validate()


def test_seeds() -> None:
    """Equal seeds repeat, others differ; all 64 bits count; none or -1 is a new one."""
    free = Sampling(temp=1.0, **OFF)
    seeds = (0, 1, 1 << 32, (1 << 32) + 1, (1 << 64) - 1)
    runs = [choose(LOGITS, free, 20, s) for s in seeds]
    assert runs == [choose(LOGITS, free, 20, s) for s in seeds]
    assert len({tuple(r) for r in runs}) == len(seeds)
    new = {Sampling(seed=s).with_seed().seed for s in (None, -1, None, -1)}
    assert len(new) == 4 and all(s is not None and 0 <= s < 1 << 32 for s in new)
    assert Sampling(seed=7).with_seed().seed == 7


def test_too_many_end_ids() -> None:
    """More end ids than the settings buffer holds are refused, not dropped."""
    with pytest.raises(UsageError, match="65 end"):
        settings_words(Sampling(), range(65))


@pytest.mark.parametrize("options", [
    Sampling(temp=0.0, seed=1), Sampling(temp=3.0, top_k=0, top_p=1.0, min_p=0.0, seed=2),
    Sampling(temp=2.0, top_k=3, repeat_penalty=1.2, seed=3),
])  # fmt: skip
def test_suppressed_ids_are_never_drawn(options: Sampling) -> None:
    """Not the best ids, nor in whole groups; all else is as if their logits were not there."""
    logits = np.zeros(100, np.float32)
    silent = [*range(10, 60), 99]
    logits[silent] = 9.0  # all but the whole of the mass
    logits[[5, 70]] = 1.0
    chain = Chain(100, 400, options, suppressed=silent)
    chain.prompt([1, 12])
    ids = chain.draw(logits, 300)
    assert len(ids) == 300 and not set(ids) & set(silent)
    assert chain.arrays["step"][step.BAD] == 0
    without = logits.copy()
    without[silent] = -np.inf
    other = Chain(100, 400, options)
    other.prompt([1, 12])
    assert ids == other.draw(without, 300)


def test_window() -> None:
    """The window of a long generation equals a recount, and -1 equals a large value."""
    rng = np.random.default_rng(1)
    prompt = rng.integers(0, 40, 90).tolist()
    results = []
    for last_n in (16, 1, 300, -1):
        options = Sampling(repeat_penalty=1.2, repeat_last_n=last_n, temp=1.0, seed=5)
        chain = Chain(40, 300, options)
        chain.prompt(prompt[:64])
        chain.prompt(prompt[64:])
        ids = chain.draw(LOGITS[:40], 100)
        seen = (prompt + ids)[-last_n:] if last_n > 0 else prompt + ids
        assert chain.arrays["counts"].tolist() == np.bincount(seen, minlength=40).tolist()
        results.append(ids)
    assert results[2] == results[3] != results[0]


def test_stops() -> None:
    """End ids, the limit, and logits of which none is finite end generation."""
    greedy = Sampling(temp=0.0, seed=1)
    top = int(LOGITS.argmax())
    chain = Chain(60, 300, greedy, end_ids=(top,))
    chain.prompt([1, 2, 3])
    assert chain.draw(LOGITS, 2) == [top] and chain.reason is StopReason.END_TOKEN
    chain = Chain(60, 300, greedy, limit=6)
    chain.prompt([1, 2, 3])
    assert chain.draw(LOGITS, 9) == [top] * 4 and chain.reason is StopReason.LIMIT
    chain = Chain(60, 300, greedy)
    chain.prompt([1])
    broken = LOGITS.copy()
    broken[top] = np.inf
    assert chain.draw(broken, 2) == [int(LOGITS.argsort()[-2])] * 2
    assert chain.arrays["step"][step.BAD] == 2
    assert chain.draw(np.full(60, np.nan, np.float32), 2) == []
    assert chain.reason is StopReason.NOT_FINITE and chain.arrays["step"][step.BAD] == 62
