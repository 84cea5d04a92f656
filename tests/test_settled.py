"""Cases are drawn until no rounding to int8 is a toss-up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kompute_llm.kernels import mla_attend_q8, mla_expand_q8, q8
from kompute_llm.kernels.kernel import Case, Kernel
from kompute_llm.kernels.settled import CLEAR, DRAWS, settled

HALF = np.array([127.0, 63.5, *range(14)], np.float32)  # 63.5 steps of 1


def reference(x: Any, **params: float) -> None:
    """Rounds, and writes where it may."""
    q8.quantize(x)
    x[:] = 0


def test_margins_are_of_this_thread_and_end() -> None:
    """How near to the middle; groups of zeros are not."""
    with q8.margins() as found:
        q8.quantize(HALF)
        q8.quantize(HALF + np.float32(0.25) * (HALF == 63.5))
        q8.quantize(np.zeros(16, np.float32))
    q8.quantize(HALF)
    assert found == pytest.approx([0.0, 0.25, 0.5])


def test_toss_ups_are_drawn_again() -> None:
    """The first clear case, untouched by its reference; the best one where none is clear."""
    shifts = iter([0.0, CLEAR / 4, 0.125, 0.25])

    def draw() -> Case:
        return Case("", {"x": HALF + np.float32(next(shifts)) * (HALF == 63.5)})

    x: Any = settled(draw, reference).operands["x"]
    assert x[1] == 63.625
    assert next(shifts) == 0.25
    tries: list[int] = []

    def tossed() -> Case:
        tries.append(len(tries))
        return Case(str(len(tries)), {"x": HALF.copy()})

    assert settled(tossed, reference).name == "1"
    assert len(tries) == DRAWS


@pytest.mark.parametrize("kernel", [mla_attend_q8.KERNEL, mla_expand_q8.KERNEL])
def test_kernels_that_round_inside(kernel: Kernel) -> None:
    """Their cases are clear, or as clear as so many values can be."""
    for case in kernel.cases(np.random.default_rng(3)):
        ops = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in case.operands.items()}
        with q8.margins() as found:
            kernel.reference(**ops, **case.params)
        assert min(found) >= CLEAR / 4
