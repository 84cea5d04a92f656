"""UTF-8 output that is cut anywhere comes out in whole characters."""

from __future__ import annotations

import random

import pytest

from kompute_llm.engine.stream import Utf8Stream


def test_no_character_is_printed_broken() -> None:
    text = "añ日👩🏽\u200d💻 \n"
    data = text.encode()
    for size in range(1, 6):
        stream = Utf8Stream()
        parts = [stream.push(data[i : i + size]) for i in range(0, len(data), size)]
        assert "".join(parts) + stream.flush() == text
        assert "\ufffd" not in "".join(parts)


def test_a_character_comes_with_its_last_byte() -> None:
    stream = Utf8Stream()
    assert [stream.push(bytes((b,))) for b in "日".encode()] == ["", "", "日"]
    assert stream.pending == 0


def test_invalid_bytes_are_replaced_at_once() -> None:
    stream = Utf8Stream()
    assert stream.push(b"a\xff") == "a\ufffd"
    assert stream.push(b"\xe6\x97") == "" and stream.pending == 2
    assert stream.push(b"x") == "\ufffdx"  # the cut character cannot be completed any more


def test_flush_replaces_what_is_incomplete_and_starts_anew() -> None:
    stream = Utf8Stream()
    assert stream.push(b"\xf0\x9f") == ""
    assert stream.flush() == "\ufffd"
    assert stream.flush() == "" and stream.push(b"ok") == "ok"


@pytest.mark.parametrize("seed", range(5))
def test_cuts_do_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    data = rng.randbytes(200) + "é日👩".encode() * 5 + rng.randbytes(50)
    stream, out, at = Utf8Stream(), "", 0
    while at < len(data):
        step = rng.randrange(1, 5)
        out += stream.push(data[at : at + step])
        at += step
    assert out + stream.flush() == data.decode("utf-8", "replace")
