"""Pre-tokenizer rules: each compiles and loses no text; families by hand."""

from __future__ import annotations

import pytest
from tokenizers import Regex, pre_tokenizers

from kompute_llm.engine.pretokenizers import PRETOKENIZERS

TEXTS = (
    "",
    "I'll pay 12345 DOLLARS!\r\n\r\n  don't  \t x_y(z) = 3.14;\n",
    "Привет, мир! 日本語テスト 한국어 ไทย กำ १२३ ١٢٣ ½ e\u0301\u200b\u2028\xa0🇯🇵👩🏽\u200d💻",
    " \n \n\n   \t\x00\x7f",
)


def cut(name: str, text: str) -> list[str]:
    """The words that a rule makes of a text."""
    patterns = PRETOKENIZERS[name].patterns
    steps = [pre_tokenizers.Split(Regex(p), behavior="isolated") for p in patterns]
    return [word for word, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


@pytest.mark.parametrize("name", PRETOKENIZERS)
def test_nothing_is_lost(name: str) -> None:
    for text in TEXTS:
        assert "".join(cut(name, text)) == text


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gpt-2", "I'll pay 12345!", ["I", "'ll", " pay", " 12345", "!"]),
        ("gpt-2", "I'LL  x", ["I", "'", "LL", " ", " x"]),
        (
            "llama-bpe",
            "I'LL pay 12345!\n\n x",
            ["I", "'LL", " pay", " ", "123", "45", "!\n\n", " x"],
        ),
        ("qwen2", "pay 123", ["pay", " ", "1", "2", "3"]),
        ("qwen2", "e\u0301a", ["e", "\u0301a"]),
        ("qwen35", "e\u0301a", ["e\u0301a"]),
        ("smollm", "pay 12", ["pay", " ", "1", "2"]),
        ("command-r", "a1b", ["a", "1", "b"]),
        ("falcon", "pay 12345!?", ["pay", " ", "123", "45", "!?"]),
        ("default", "a-b 1234", ["a", "-", "b", " ", "123", "4"]),
        ("deepseek-llm", "a\nb 12 一二", ["a", "\n", "b", " ", "12", " ", "一二"]),
        ("deepseek-coder", "a, 12", ["a", ",", " ", "1", "2"]),
        ("deepseek-v3", "a.b 1234一二", ["a", ".b", " ", "123", "4", "一二"]),
        (
            "gpt-4o",
            "HelloWorld don't 1234//\n",
            ["Hello", "World", " don't", " ", "123", "4", "//\n"],
        ),
        ("tekken", "HelloWorld 12", ["Hello", "World", " ", "1", "2"]),
        ("tiny_aya", "1234567", ["1", "234", "567"]),
        ("superbpe", "a b1234567", ["a b", "1", "234", "567"]),
        ("afmoe", "x 12345 一a", ["x", " ", "12", "345", " ", "一", "a"]),
        ("kimi-k2", "ab中文Cd1", ["ab", "中文", "Cd", "1"]),
        ("bloom", "a b, c", ["a", " b", ",", " c"]),
        ("viking", "ab12", ["ab", "1", "2"]),
        ("seed-coder", "x 12!\n", ["x", " ", "1", "2", "!", "\n"]),
        ("exaone-moe", "ab cd 1", ["ab cd", " ", "1"]),
        ("minicpm5", "a 1234", ["a", " ", "123", "4"]),
        ("ufakzeka", "it's", ["it", "'s"]),
        ("glm5", "a 1234", ["a", " ", "123", "4"]),
        ("spark2_5", "a.b 12\n\n", ["a", ".b", " ", "1", "2", "\n", "\n"]),
        ("chameleon", "it's IMGIMGABZ!1", ["it", "'", "s", " ", "IMGIMGABZ", "!", "1"]),
        ("sarvam-moe", "a b\n\nc", ["a b", "\n\n", "c"]),
        ("gemma4", "a b\n\nc", ["a b", "\n\n", "c"]),
    ],
)
def test_by_hand(name: str, text: str, words: list[str]) -> None:
    assert cut(name, text) == words


def test_flags() -> None:
    assert PRETOKENIZERS["llama-bpe"].whole_words and PRETOKENIZERS["llama-bpe"].add_bos
    assert not PRETOKENIZERS["qwen2"].whole_words and not PRETOKENIZERS["qwen2"].add_bos
    assert PRETOKENIZERS["glm4"].whole_words and not PRETOKENIZERS["chatglm-bpe"].whole_words
    assert not PRETOKENIZERS["gemma4"].byte_level and PRETOKENIZERS["gemma4"].whole_lines
