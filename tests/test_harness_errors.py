"""Quants of a case that a device rounds the other way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kompute_llm.engine.harness import compare, run_reference
from kompute_llm.engine.harness_errors import other_way
from kompute_llm.kernels import matvec_q8_add
from kompute_llm.kernels.kernel import Array, Case

KERNEL = matvec_q8_add.KERNEL


@pytest.fixture(scope="module")
def case() -> tuple[Case, dict[str, Array]]:
    found = next(c for c in KERNEL.cases(np.random.default_rng(2)) if c.params["rows"] == 64)
    return replace(found, limit=1e-6), run_reference(KERNEL, found)


def moved(want: dict[str, Array], places: dict[int, int], sums: bool = True) -> dict[str, Array]:
    """Results with quants moved, and the sums of their groups."""
    got = {name: value.copy() for name, value in want.items()}
    for place, steps in places.items():
        got["yq"].view(np.int8)[place] += np.int8(steps)
        if sums:
            group = got["ys"].reshape(-1, 2)[place // 16]
            group[1] += group[0] * np.float32(steps)
    return got


def quant(want: dict[str, Array], least: int = 0) -> int:
    """The place of a quant that can move by two steps, from place `least` on."""
    values = want["yq"].view(np.int8)
    return next(i for i in range(least, values.size) if abs(int(values[i])) < 100)


def test_one_quant_may_go_the_other_way(case: tuple[Case, dict[str, Array]]) -> None:
    c, want = case
    a = quant(want)
    got = moved(want, {a: 1})
    assert other_way(c, want, got) is not None
    assert compare(KERNEL, c, want, got, "").ok
    assert compare(KERNEL, c, want, moved(want, {a: -1}), "").ok


def test_more_is_a_fault(case: tuple[Case, dict[str, Array]]) -> None:
    c, want = case
    a = quant(want)
    b = quant(want, a + 1)
    for places, sums in (({a: 2}, True), ({a: 1, b: 1}, True), ({a: 1}, False)):
        assert not compare(KERNEL, c, want, moved(want, places, sums), "").ok
    assert other_way(c, want, want) is None
    got = moved(want, {a: 1})
    got["y"] += np.float32(0.01)
    assert not compare(KERNEL, c, want, got, "").ok
