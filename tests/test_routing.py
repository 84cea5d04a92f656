"""The router's rules on scores picked by hand, where every wrong reading chooses differently."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from kompute_llm.kernels.routing import Gating, Routing, choose, unpack


def route(rule: Routing, scores: Any, bias: Any = None) -> tuple[list[int], Any]:
    """Experts and weights of one token whose sigmoid scores are given."""
    values = np.asarray([scores], np.float64)
    b = np.zeros((2, rule.experts), np.float32)
    if bias is not None:
        b[1] = bias
    logits = np.log(values / (1 - values)).astype(np.float32)
    ids, weights = unpack(choose(logits, b, **rule.params()))  # type: ignore[arg-type]
    return ids[0].tolist(), weights[0]


# 8 experts in 4 groups, two groups used, three experts: plain top-k, the largest of a group and the
# sum of its two best choose differently
SCORES = [0.9, 0.1, 0.65, 0.6, 0.8, 0.15, 0.75, 0.05]


@pytest.mark.parametrize(
    ("groups", "best", "chosen"), [(1, 2, [0, 4, 6]), (4, 1, [0, 4, 5]), (4, 2, [0, 2, 3])]
)
def test_groups(groups: int, best: int, chosen: list[int]) -> None:
    """Sums by group are 1.0, 1.25, 0.95, 0.8; the largest are 0.9, 0.65, 0.8, 0.75."""
    rule = Routing(8, 3, gating=Gating.SIGMOID, groups=groups, groups_used=2, group_best=best)
    assert route(rule, SCORES)[0] == chosen


@pytest.mark.parametrize(
    ("biased", "normalise", "scale"),
    list(itertools.product((False, True), (False, True), (1.0, 2.5))),
)
def test_bias_normalisation_and_scale(biased: bool, normalise: bool, scale: float) -> None:
    """A bias only chooses, weights are unbiased, the scale applies with and without normalising."""
    bias = np.asarray([-1, 0, 0, 0, 0, 0, 0, 0.9])
    rule = Routing(8, 2, gating=Gating.SIGMOID, normalise=normalise, scale=scale)
    ids, weights = route(rule, SCORES, bias if biased else None)
    assert ids == ([7, 4] if biased else [0, 4])
    expected = np.asarray([SCORES[i] for i in ids])
    expected = scale * (expected / expected.sum() if normalise else expected)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


def test_top_p_keeps_the_first() -> None:
    """The first expert stays whatever its part; the others go once the part is reached."""
    rule = Routing(8, 3, gating=Gating.SIGMOID, normalise=True, top_p=0.3)
    ids, weights = route(rule, SCORES)
    assert ids == [0, -1, -1]
    np.testing.assert_allclose(weights, [1, 0, 0])


def test_shared_experts_follow() -> None:
    """Shared experts take the numbers after the routed ones, with weight 1 and not scaled."""
    rule = Routing(8, 1, 2, Gating.SIGMOID, normalise=True, scale=2.5)
    ids, weights = route(rule, SCORES)
    assert ids == [0, 8, 9]
    np.testing.assert_allclose(weights, [2.5, 1, 1])


def test_nan_comes_last() -> None:
    """A logit that is no number does not win, and every slot holds a different expert."""
    b = np.zeros((2, 8), np.float32)
    logits = np.asarray([[0, np.nan, 1, 2, np.nan, 0, 0, 0]], np.float32)
    rule = Routing(8, 2, gating=Gating.SIGMOID)
    ids, _ = unpack(choose(logits, b, **rule.params()))  # type: ignore[arg-type]
    assert ids[0].tolist() == [3, 2]
