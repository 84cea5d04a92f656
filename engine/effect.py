"""How much faster one is than the other: ratios of speeds with 95 % intervals.

Everything is computed on logarithms, so that a ratio and its inverse are treated alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

LEVEL = 0.95
POWER = 0.8  # with which a difference is to be found, where repetitions are asked for
SMALL = math.log(1.01)  # a difference of 1 %
NO_DIFFERENCE = "no difference shown"


@dataclass(frozen=True)
class Effect:
    """A ratio b / a of speeds, its interval, and the rounds that would show 1 %."""

    ratio: float
    low: float
    high: float
    needed: int | None  # rounds or samples of each; None where it cannot be told

    @property
    def verdict(self) -> str:
        """Faster, slower, or no difference shown when the interval holds 1."""
        if self.low <= 1 <= self.high:
            return NO_DIFFERENCE
        return "faster" if self.ratio > 1 else "slower"

    @property
    def percent(self) -> str:
        """The change of b against a: "+3.2 %"."""
        return f"{100 * (self.ratio - 1):+.1f} %"

    @property
    def interval(self) -> str:
        """The interval as changes: "+1.0 … +5.4 %"."""
        return f"{100 * (self.low - 1):+.1f} … {100 * (self.high - 1):+.1f} %"


def t_probability(t: float, df: float) -> float:
    """P(T <= t) of Student's distribution, by Simpson's rule over its density (t >= 0)."""
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    # with t = sqrt(df) tan(u) the density is scale sqrt(df) cos(u)^(df - 1), on a finite range
    end, n = math.atan(t / math.sqrt(df)), 200
    values = [math.pow(math.cos(end * i / n), df - 1) for i in range(n + 1)]
    total = values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2])
    return 0.5 + scale * math.sqrt(df) * total * end / n / 3


@cache
def t_quantile(p: float, df: float) -> float:
    """The t with P(T <= t) = p, for p > 0.5."""
    low, high = 0.0, 1.0
    while t_probability(high, df) < p:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, df) < p else (low, middle)
    return (low + high) / 2


def _effect(mean: float, error: float, df: float, sd: float) -> Effect:
    """From a mean log-ratio, its standard error, and the deviation of one round."""
    half = t_quantile((1 + LEVEL) / 2, df) * error
    normal = statistics.NormalDist()
    z = normal.inv_cdf((1 + LEVEL) / 2) + normal.inv_cdf(POWER)
    needed = max(math.ceil((z * sd / SMALL) ** 2), 2) if math.isfinite(sd) else None
    return Effect(math.exp(mean), math.exp(mean - half), math.exp(mean + half), needed)


def unpaired(a: Sequence[float], b: Sequence[float]) -> Effect | None:
    """Welch's test of the logarithms of two groups of speeds; None with one sample in a group."""
    if min(len(a), len(b)) < 2:
        return None
    x, y = ([math.log(v) for v in group] for group in (a, b))
    mean = statistics.fmean(y) - statistics.fmean(x)
    u, v = statistics.variance(x) / len(x), statistics.variance(y) / len(y)
    if u + v == 0:
        return Effect(math.exp(mean), math.exp(mean), math.exp(mean), 2)
    df = (u + v) ** 2 / (u**2 / (len(x) - 1) + v**2 / (len(y) - 1))
    sd = math.sqrt(statistics.variance(x) + statistics.variance(y))
    return _effect(mean, math.sqrt(u + v), df, sd)


def interleaved(a: Sequence[float], b: Sequence[float]) -> Effect:
    """Rounds of one a and one b that change their order: a first in rounds 0, 2, ….

    What drifts slowly cancels within a round, and what being second costs cancels between the
    two orders (a crossover design): the mean of both orders' mean log-ratios, with the pooled
    variance around them, n - 2 degrees of freedom. At least 4 rounds.
    """
    ratios = [math.log(y / x) for x, y in zip(a, b, strict=True)]
    if len(ratios) < 4:
        raise ValueError("at least 4 rounds")
    groups = ratios[0::2], ratios[1::2]
    mean = statistics.fmean(statistics.fmean(g) for g in groups)
    squares = sum(statistics.variance(g) * (len(g) - 1) for g in groups)
    df = len(ratios) - 2
    variance = squares / df
    if variance == 0:
        return Effect(math.exp(mean), math.exp(mean), math.exp(mean), 4)
    error = math.sqrt(variance / 4 * sum(1 / len(g) for g in groups))
    return _effect(mean, error, df, math.sqrt(variance))


def oddities(samples: Sequence[float]) -> list[str]:
    """What is odd about samples in the order of time: a slow start, a drift, outliers."""
    out: list[str] = []
    n = len(samples)
    if n < 5:
        return out
    middle = statistics.median(samples)
    spread = 1.4826 * statistics.median(abs(s - middle) for s in samples)  # like a deviation
    far = [i for i, s in enumerate(samples)
           if abs(s - middle) > max(5 * spread, 0.02 * middle)]  # fmt: skip
    if far == [0]:
        change = 100 * (samples[0] / statistics.median(samples[1:]) - 1)
        out.append(f"the first sample is {change:+.0f} % off the others: it warms up still")
    elif far:
        listed = ", ".join(f"{i + 1} ({100 * (samples[i] / middle - 1):+.0f} %)" for i in far[:5])
        out.append(f"{len(far)} of {n} samples are far from the median: {listed}")
    kept = [(i, math.log(s)) for i, s in enumerate(samples) if i not in far]
    if (moved := drift(kept)) is not None:
        out.append(f"speed drifts by {100 * moved:+.1f} % from the first sample to the last")
    return out


def drift(points: Sequence[tuple[int, float]]) -> float | None:
    """Change over all points of a straight line, if it is beyond 1 % and chance (1 in 100)."""
    n = len(points)
    if n < 5:
        return None
    xs, ys = zip(*points, strict=True)
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    sxx = sum((x - mx) ** 2 for x in xs)
    slope = sum((x - mx) * (y - my) for x, y in points) / sxx
    rest = sum((y - my - slope * (x - mx)) ** 2 for x, y in points) / (n - 2)
    change = math.exp(slope * (xs[-1] - xs[0])) - 1
    certain = abs(slope) > t_quantile(0.995, n - 2) * math.sqrt(rest / sxx)
    return change if certain and abs(change) > 0.01 else None
