"""How large submits grow on devices of different speed."""

from __future__ import annotations

import pytest

from kompute_llm.engine.pace import LEAST, SLOW, Pace


def settle(pace: Pace, speed: float, submits: int = 6) -> list[int]:
    """Batches that a device of `speed` tokens per second is given, one after the other."""
    seen = []
    for _ in range(submits):
        seen.append(pace.batch)
        pace.took(pace.batch, pace.batch / speed)
    return seen


@pytest.mark.parametrize(
    ("kind", "n_params", "first"),
    [
        ("discrete", 134_000_000, 512), ("discrete", 8_000_000_000, 64), ("cpu", 134_000_000, 32),
        ("integrated", 8_000_000_000, LEAST), ("something new", 134_000_000, 256),
    ],
)  # fmt: skip
def test_the_first_submit_follows_the_work(kind: str, n_params: int, first: int) -> None:
    assert Pace(512, kind, n_params).batch == first


def test_it_grows_at_once_and_stays() -> None:
    assert settle(Pace(512, "discrete", 8_000_000_000), 1e4) == [64, *[512] * 5]
    assert settle(Pace(512, "integrated", 8_000_000_000), 150) == [32, *[64] * 5]
    assert settle(Pace(100, "discrete", 8_000_000_000), 1e4) == [64, *[100] * 5]
    assert settle(Pace(4, "cpu", 8_000_000_000), 1e4) == [4] * 6  # -b is the upper bound


@pytest.mark.parametrize("speed", [3, 20, 40, 100, 700])
def test_no_submit_stays_slow(speed: float) -> None:
    last = settle(Pace(512, "discrete", 134_000_000), speed)[-1]
    assert last == LEAST or last / speed <= SLOW


def test_a_deeper_context_shrinks_it() -> None:
    pace = Pace(512, "discrete", 134_000_000)
    pace.took(512, 0.9)  # not so slow that it matters
    assert pace.batch == 512
    pace.took(512, 2.0)
    assert pace.batch == 128
