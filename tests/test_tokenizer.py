"""Tokenizers by hand on small vocabularies, and what they refuse."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from vocab_source import BYTE, CONTROL, NORMAL, PRE, SPM_WORDS, USER, Source, bpe, spm, token_id

from kompute_llm.engine.errors import TokenizerError
from kompute_llm.engine.tokenizer import build_tokenizer

PLAIN = {"add_special": False, "parse_special": False}
FULL = {"add_special": True, "parse_special": True}


def encode(source: Source, text: str, **how: bool) -> list[int]:
    return build_tokenizer(source).encode(text, **(PLAIN | how))


def test_bpe_by_hand() -> None:
    source = bpe()
    the, gthe, gand = (token_id(source, t) for t in ("the", "Ġthe", "Ġand"))
    assert encode(source, "the and the") == [the, gand, gthe]
    assert encode(source, "é\x00") == [token_id(source, "Ã©"), 0]
    tok = build_tokenizer(source)
    assert tok.decode_bytes([the, gand, 0xFF]) == b"the and\xff"
    assert tok.encode("", **FULL) == []


def test_bytes_that_are_not_utf8() -> None:
    assert encode(bpe(), b"the\xff\xc3".decode("utf-8", "surrogateescape"))[1:] == [0xFF, 0xC3]
    assert encode(bpe(), "\ud800") == [*"\ufffd".encode()]
    tok = build_tokenizer(spm())
    ids = tok.encode(b"hi\xffhi".decode("utf-8", "surrogateescape"), **PLAIN)
    assert tok.decode_bytes(ids) == b"hi\xffhi"
    assert tok.decode_bytes(tok.encode("\ud800", **PLAIN)) == "\ufffd".encode()


def reference_spm(text: str, scores: dict[str, float]) -> list[str]:
    """Merges the neighbours with the best score, the leftmost of equals, until none is a token."""
    parts = list(text.replace(" ", "▁"))
    while True:
        pairs = [(scores[a + b], -n) for n, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
        if not pairs:
            return parts
        n = -max(pairs)[1]
        parts[n : n + 2] = [parts[n] + parts[n + 1]]


def test_spm_equals_plain_merging() -> None:
    rng = random.Random(7)
    scores = SPM_WORDS | {a + b: float(-rng.randrange(4)) for a in "▁hia" for b in "▁hia"}
    scores |= {
        a + b: float(-rng.randrange(6)) for a in scores for b in scores if rng.random() < 0.3
    }
    source = spm({w: NORMAL for w in scores if w not in SPM_WORDS}, add_space_prefix=False)
    tokens = source.metadata[PRE + "tokens"]
    source.metadata[PRE + "scores"] = [scores.get(t, 0.0) for t in tokens]
    tok = build_tokenizer(source)
    for _ in range(200):
        text = "".join(rng.choice("hia ") for _ in range(rng.randrange(1, 24)))
        assert [tok.piece(i) for i in tok.encode(text, **PLAIN)] == reference_spm(text, scores)


def test_spm_spaces_and_byte_fallback() -> None:
    source = spm()
    hi, bos = token_id(source, "▁hi"), 1
    tok = build_tokenizer(source)
    assert tok.encode("hi", **FULL) == [bos, hi]
    assert tok.encode("hi<s>hi", **FULL) == [bos, hi, bos, hi]  # a space after each special token
    assert tok.encode("é", **PLAIN) == [token_id(source, "▁"), 3 + 0xC3, 3 + 0xA9]
    assert tok.decode_bytes([hi, hi]) == b"hi hi"
    assert b"".join(map(tok.token_bytes, [hi, hi])) == b" hi hi"
    assert encode(spm(add_space_prefix=False), "hi") == [token_id(source, "hi")]


def test_spm_without_all_byte_tokens() -> None:
    source = spm()
    types = source.metadata[PRE + "token_type"]
    source.metadata[PRE + "tokens"][3 + 0xA9] = "spare"
    types[3 + 0xA9] = NORMAL
    assert encode(source, "é") == [token_id(source, "▁"), 3 + 0xC3, 0]  # 0 is <unk>


@pytest.mark.parametrize("make", [bpe, spm])
def test_special_tokens_in_text(make: Any) -> None:
    source = make({"<|a|>": CONTROL, "<|a|>b": CONTROL, "<u>": USER})
    a, ab, u = (token_id(source, t) for t in ("<|a|>", "<|a|>b", "<u>"))
    tok = build_tokenizer(source)
    assert tok.encode("<|a|><|a|>b<u>", **FULL | {"add_special": False}) == [a, ab, u]  # longest
    plain = tok.encode("<|a|><u>", **PLAIN)
    assert a not in plain and plain[-1] == u
    assert tok.token_bytes(a) == b"" and tok.token_bytes(a, special=True) == b"<|a|>"
    assert tok.token_bytes(u) == b"<u>"
    assert tok.token_bytes(-1) == tok.token_bytes(10**6) == b""  # padded rows of the embedding


def test_phi3_swallows_blanks_after_special_tokens() -> None:
    source = spm({"<|user|>": CONTROL})
    source.metadata["general.name"] = "Phi-3 mini"
    hi = token_id(source, "▁hi")
    user = token_id(source, "<|user|>")
    assert encode(source, "<|user|> \n hi", parse_special=True) == [user, hi]


def test_bos_and_eos_rules() -> None:
    assert encode(bpe(bos_token_id=3), "the", add_special=True)[0] != 3  # gpt-2 adds none itself
    assert encode(bpe(bos_token_id=3, pre="llama-bpe"), "the", add_special=True)[0] == 3
    assert encode(bpe(bos_token_id=3, add_bos_token=True), "", add_special=True) == [3]
    assert encode(bpe(eos_token_id=4, add_eos_token=True), "", add_special=True) == [4]
    assert encode(bpe(add_bos_token=True), "", add_special=True) == []  # R10: no id, no token
    tok = build_tokenizer(spm(bos_token_id=None))
    assert tok.bos is None and not tok.add_bos and tok.encode("", **FULL) == []


@pytest.mark.parametrize("name", ["bos", "eos", "eot", "unknown", "padding", "fim_pre"])
@pytest.mark.parametrize("value", [10**4, 2**32 - 1, -1])
def test_id_outside_the_vocabulary(name: str, value: int) -> None:
    with pytest.raises(TokenizerError, match=rf"{name}_token_id: id {value} .* \d+ tokens"):
        build_tokenizer(spm(None, **{f"{name}_token_id": value}))


REFUSED = [
    (bpe(merges=None), "tokenizer.ggml.merges: absent"),
    (bpe(pre="made-up-name"), "'made-up-name'; known: .*llama-bpe.*qwen2"),
    (bpe(pre=7), "tokenizer.ggml.pre: unknown pre-tokenizer 7"),
    *((bpe(model=m), f"tokenizer kind '{m}' is not supported; known: gemma4, gpt2, llama")
      for m in ("rwkv", "t5", "bert", "plamo2", "made-up")),
    (bpe(model=None), "absent: the file has no vocabulary"),
    (bpe(model="none"), "'none': the file has no vocabulary; it can be measured with 'bench'"),
    (bpe(tokens=None), "tokenizer.ggml.tokens: missing"),
    (bpe(tokens=[]), "tokenizer.ggml.tokens: .*empty"),
    (bpe(tokens=[1, 2]), "tokenizer.ggml.tokens: expected an array of strings, found int"),
    (bpe(tokens=5), "tokenizer.ggml.tokens: expected an array of strings"),
    (bpe(token_type=[1]), r"tokenizer.ggml.token_type: 1 entries for \d+ tokens"),
    (bpe(token_type=["a"] * 300), "tokenizer.ggml.token_type: expected an array of numbers"),
    (bpe(bos_token_id="x"), "tokenizer.ggml.bos_token_id: expected a token id"),
    (bpe(add_bos_token="yes"), "tokenizer.ggml.add_bos_token: expected true or false"),
    (spm(scores=None), "tokenizer.ggml.scores: absent"),
    (spm(scores=[0.5]), "tokenizer.ggml.scores: 1 entries"),
    (bpe(tokens=["a", "b" * 70000], token_type=None), "tokens: a token has 70000 characters"),
    (spm(scores=[0.5] * 266 + [float("nan")]), "tokenizer.ggml.scores: entry 266 is not a number"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "message"), REFUSED)
def test_refused(source: Source, message: str) -> None:
    with pytest.raises(TokenizerError, match=message) as caught:
        build_tokenizer(source)
    assert str(caught.value).startswith("tiny.gguf: tokenizer.ggml.")


def test_merges_that_cannot_be_used() -> None:
    with pytest.raises(TokenizerError, match="merges: entry 1 is no pair: 'th'"):
        encode(bpe(merges=["t h", "th"]), "the")
    pruned = bpe(merges=["q q", "t h", "th e"])  # "qq" is no token
    assert encode(pruned, "the") == [token_id(pruned, "the")]


def test_absent_keys_are_noted() -> None:
    assert "tokenizer.ggml.pre is absent" in build_tokenizer(bpe(pre=None)).notes[0]
    assert "token_type is absent" in build_tokenizer(bpe(token_type=None)).notes[0]
    assert build_tokenizer(bpe()).notes == ()


def test_empty_and_repeated_tokens() -> None:
    source = bpe({"": NORMAL, "the": NORMAL})
    source.metadata[PRE + "tokens"][-1] = "the"
    source.metadata[PRE + "tokens"].append("the")
    source.metadata[PRE + "token_type"].append(NORMAL)
    tok = build_tokenizer(source)
    assert tok.encode("the", **PLAIN) == [token_id(source, "the")]
    assert "repeat" in tok.notes[0]


@pytest.mark.parametrize("text", ["hi", "\0", "a\udcff"])
def test_odd_tokens_cost_only_themselves(text: str) -> None:
    """A repeated text, a NUL and bytes that are not UTF-8 in the vocabulary itself."""
    for source in (spm({"x": NORMAL}), bpe({"x": NORMAL})):
        source.metadata[PRE + "tokens"][-1] = text
        tok = build_tokenizer(source)
        assert tok.decode_bytes(tok.encode("hi a", **PLAIN)) == b"hi a"
        assert tok.token_bytes(tok.n_vocab - 1)


ENDS = {"<|eot_id|>": CONTROL, "<|im_end|>": NORMAL, "<|end|>": USER, "<|user|>": CONTROL}


def test_end_of_generation_tokens() -> None:
    source = bpe(ENDS, eos_token_id=5, eot_token_id=6)
    tok = build_tokenizer(source)
    assert tok.end_ids == {5, 6, *(token_id(source, t) for t in ENDS)}
    assert all(tok.token_bytes(token_id(source, t)) == b"" for t in ENDS)
    # ordinary tokens that look alike are text
    plain = bpe({"</s>": NORMAL, "<|user|>": NORMAL})
    tok = build_tokenizer(plain)
    assert tok.end_ids == frozenset()
    assert tok.token_bytes(token_id(plain, "</s>")) == b"</s>"
    assert tok.encode("</s>", **FULL) == [token_id(plain, "</s>")]  # as llama.cpp


def test_harmony_end_is_no_end() -> None:
    texts = ("<|end|>", "<|return|>", "<|call|>", "<|channel|>")
    source = bpe(dict.fromkeys(texts, CONTROL))
    end, ret, call, channel = (token_id(source, t) for t in texts)
    tok = build_tokenizer(source)
    assert tok.end_ids == {ret, call}
    assert tok.token_bytes(channel) == b"<|channel|>" and tok.token_bytes(end) == b"<|end|>"


def test_bpe_on_plain_text() -> None:
    tokens = {
        "▁": NORMAL,
        "a": NORMAL,
        "▁a": NORMAL,
        "\n": NORMAL,
        "\n\n": NORMAL,
        "<bos>": CONTROL,
    }
    tokens |= {f"<0x{b:02X}>": BYTE for b in range(256)}
    source = bpe(tokens, model="gemma4", pre=None, merges=["▁ a", "\n \n"])
    ids = {t: token_id(source, t) for t in tokens}
    source.metadata[PRE + "bos_token_id"] = ids["<bos>"]
    tok = build_tokenizer(source)
    want = [ids["<bos>"], ids["▁a"], ids["\n\n"], ids["<0xE6>"], ids["<0x97>"], ids["<0xA5>"]]
    assert tok.encode(" a\n\n日", **FULL) == want
    assert tok.decode_bytes(want) == " a\n\n日".encode()


def test_runs_of_line_feeds_are_taken_whole() -> None:
    """Gemma 4: no merge makes three of them, and yet they are one token."""
    tokens = ["<bos>", "a", "\n", "\n\n", "\n\n\n"]
    tok = build_tokenizer(bpe(tokens=tokens, token_type=[3, 1, 1, 1, 1], model="gemma4", pre=None,
                              merges=["\n \n"]))  # fmt: skip
    for text, ids in (("\n\n\na\n", [4, 1, 2]), ("\n\n\n\n", [3, 3]), ("a\n\n", [1, 3])):
        assert tok.encode(text, **PLAIN) == ids, text
