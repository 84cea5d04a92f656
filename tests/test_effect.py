"""Statistics of comparisons: quantiles from tables, intervals by hand, simulated A/A and A/B."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kompute_llm.engine.effect import (
    NO_DIFFERENCE,
    interleaved,
    oddities,
    t_probability,
    t_quantile,
    unpaired,
)
from kompute_llm.engine.stats import summarize


@pytest.mark.parametrize(
    ("df", "t"), [(1, 12.7062), (2, 4.3027), (5, 2.5706), (10, 2.2281), (30, 2.0423), (1e6, 1.96)]
)
def test_quantiles(df: float, t: float) -> None:
    """Printed tables of Student's distribution, two-sided 5 %."""
    assert t_quantile(0.975, df) == pytest.approx(t, abs=2e-4)
    assert t_probability(t, df) == pytest.approx(0.975, abs=1e-5)


def test_unpaired_by_hand() -> None:
    """Two and two: equal variances, so Welch's degrees of freedom are 2."""
    e = [math.exp(v) for v in (0.0, 0.1)]
    f = [math.exp(v) for v in (1.0, 1.1)]
    found = unpaired(e, f)
    assert found and found.ratio == pytest.approx(math.e)
    half = 4.3027 * math.sqrt(2 * 0.005 / 2)
    assert found.low == pytest.approx(math.exp(1 - half), rel=1e-4)
    assert found.high == pytest.approx(math.exp(1 + half), rel=1e-4)
    assert found.verdict == "faster"
    assert unpaired([1.0], [1.0, 2.0]) is None
    same = unpaired([2.0, 2.0], [2.0, 2.0])
    assert same and same.verdict == NO_DIFFERENCE


def test_interleaved_takes_out_the_order() -> None:
    """Whoever comes second is 10 % slower: no difference, and no width from it."""
    a = [1.0, 0.9, 1.0, 0.9, 1.0, 0.9]
    b = [0.9, 1.0, 0.9, 1.0, 0.9, 1.0]
    found = interleaved(a, b)
    assert found.ratio == pytest.approx(1)
    assert found.high - found.low < 1e-6
    with pytest.raises(ValueError, match="4 rounds"):
        interleaved([1.0], [1.0])


def rounds(rng: np.random.Generator, n: int, effect: float) -> tuple[list[float], list[float]]:
    """Speeds of n rounds with noise of 2 %, outliers, drift, and a cost of being second."""
    a, b = [], []
    for i in range(n):
        drift = 1 - 0.1 * i / n
        first, second = np.exp(rng.normal(0, 0.02, 2)) * drift * (1, 0.98)
        if rng.random() < 0.03:
            second *= 0.8
        x, y = (first, second) if i % 2 == 0 else (second, first)
        a.append(float(x))
        b.append(float(y * effect))
    return a, b


def test_equal_arms_show_no_difference() -> None:
    """A/A: at least 95 of 100 say so."""
    rng = np.random.default_rng(3)
    verdicts = [interleaved(*rounds(rng, 10, 1.0)).verdict for _ in range(600)]
    assert verdicts.count(NO_DIFFERENCE) >= 0.95 * 600


def test_a_known_difference_is_found() -> None:
    """5 % in ten rounds with 2 % of noise: nearly always, with the right sign."""
    rng = np.random.default_rng(4)
    faster = [interleaved(*rounds(rng, 16, 1.05)) for _ in range(200)]
    assert sum(e.verdict == "faster" for e in faster) >= 140
    assert not any(e.verdict == "slower" for e in faster)
    covered = sum(e.low <= 1.05 <= e.high for e in faster)
    assert covered >= 185
    assert all(e.needed and e.needed > 16 for e in faster)


def test_repetitions_needed() -> None:
    """(2.80 sd / log 1.01)^2: a deviation of 1 % takes 8 rounds."""
    a = [1.0] * 6
    b = [math.exp(0.01 * s) for s in (1, -1, -1, 1, 0, 0)]
    found = interleaved(a, b)
    sd = math.sqrt(sum(s * s for s in (0.01, 0.01, 0.01, 0.01)) / 4)
    assert found.needed == math.ceil((2.8016 * sd / math.log(1.01)) ** 2) == 8


def test_oddities() -> None:
    steady = [100.0, 100.2, 99.9, 100.1, 100.0, 99.8]
    assert oddities(steady) == []
    assert oddities([80.0, *steady]) == [
        "the first sample is -20 % off the others: it warms up still"
    ]
    assert oddities([*steady, 70.0, *steady]) == [
        "1 of 13 samples are far from the median: 7 (-30 %)"
    ]
    falling = [100 - i + 0.1 * (-1) ** i for i in range(8)]
    assert oddities(falling) == ["speed drifts by -7.1 % from the first sample to the last"]
    assert oddities([1.0, 2.0]) == []


def test_large_numbers() -> None:
    """Nanoseconds of long runs: sums of squares beyond 64 bits are no trouble."""
    s = summarize([9_000_000_000_000_000_000, 9_000_000_000_000_000_004])
    assert s.sd == pytest.approx(2.83, rel=0.01)
    assert summarize([5.0]).sd == 0
