"""Names of tests: lists, ranges, depths, and what is none."""

from __future__ import annotations

import pytest

from kompute_llm.engine.bench_tests import Test, looks_like_test, parse_numbers, parse_tests
from kompute_llm.engine.errors import UsageError


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["pp512", "tg128"], "pp512 tg128"),
        (["pp1,tg2", "pp3"], "pp1 tg2 pp3"),
        (["pp1,2,4"], "pp1 pp2 pp4"),
        (["pp1-8*2"], "pp1 pp2 pp4 pp8"),
        (["pp1-9x3", "tg1-3"], "pp1 pp3 pp9 tg1 tg2 tg3"),
        (["tg5-16+4"], "tg5 tg9 tg13"),
        (["pp512+tg128"], "pp512+tg128"),
        (["tg128@d4096"], "tg128@d4096"),
        (["tg8@d0-4+2,8", "pp2@4"], "tg8 tg8@d2 tg8@d4 tg8@d8 pp2@d4"),
        (["tg128 @ d16"], "tg128@d16"),
    ],
)
def test_names(texts: list[str], names: str) -> None:
    assert [t.name for t in parse_tests(texts)] == names.split()


def test_depths_of_the_option_leave_own_ones_alone() -> None:
    found = [t.name for t in parse_tests(["pp4", "tg4@d7"], (0, 9))]
    assert found == ["pp4", "pp4@d9", "tg4@d7"]


@pytest.mark.parametrize(
    "text",
    ["pp0", "pp", "tg1x", "pp512,", "pp99999999999", "pp4-2", "pp1-8*1", "pp0-8*2", "tg8@", "4",
     "pp1-99999", "tg4+pp4", "pp4@x"],
)  # fmt: skip
def test_wrong_names(text: str) -> None:
    with pytest.raises(UsageError):
        parse_tests([text])


def test_positions() -> None:
    """Generation alone follows one token; a deeper context is part of the cache."""
    assert Test(512, 0).positions == 512
    assert Test(0, 128).positions == 129
    assert Test(0, 128, 4096).positions == 4224
    assert Test(8, 4, 16).positions == 28
    assert Test(8, 4, 16).tokens == 12


def test_what_is_no_test() -> None:
    assert looks_like_test("pp512") and looks_like_test("tg1@d5")
    for path in ("pp5/model.gguf", "pp5.gguf", "model", "ppx"):
        assert not looks_like_test(path)


def test_numbers() -> None:
    assert parse_numbers("1,3-5,8-32*2", "x") == [1, 3, 4, 5, 8, 16, 32]
    assert parse_numbers("0", "x") == [0]
    with pytest.raises(UsageError, match="-p: 'a' is no number"):
        parse_numbers("a", "-p")
