"""tokenizer.json to GGUF keys: byte-level BPE, byte fallback, special tokens, templates."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import golden

from kompute_llm.engine.container import open_model
from kompute_llm.engine.errors import ModelError
from kompute_llm.engine.hf_tokenizer import tokenizer_keys
from kompute_llm.engine.json_file import Config
from kompute_llm.engine.pretokenizers import PRETOKENIZERS
from kompute_llm.engine.tokenizer import build_tokenizer
from kompute_llm.engine.vocab import PREFIX

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern: str) -> dict[str, Any]:
    """A pre-tokenizer step."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def write(folder: Path, tokenizer: dict[str, Any], settings: dict[str, Any] | None = None) -> Path:
    """tokenizer.json and tokenizer_config.json."""
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def keys(folder: Path, **config: Any) -> dict[str, Any]:
    """GGUF keys of a folder."""
    return tokenizer_keys(folder, Config(folder / "config.json", config))


def bpe(**model: Any) -> dict[str, Any]:
    """A byte-level BPE of five tokens and two added ones."""
    base = {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4},
            "merges": ["a b", ["Ġ", "ab"]]}  # fmt: skip
    return {
        "model": base | model,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": [split(PRETOKENIZERS["qwen2"].patterns[0]), BYTES]},
        "added_tokens": [{"id": 5, "content": "<|im_end|>", "special": True},
                         {"id": 7, "content": "<think>", "special": False}],
    }  # fmt: skip


def test_byte_level_bpe(tmp_path: Path) -> None:
    write(tmp_path, bpe(), {"eos_token": {"content": "<|im_end|>"}, "chat_template": "hello"})
    k = keys(tmp_path)
    assert k[PREFIX + "model"] == "gpt2" and k[PREFIX + "pre"] == "qwen2"
    assert k[PREFIX + "tokens"][3:] == ["ab", "Ġab", "<|im_end|>", "[PAD6]", "<think>"]
    assert k[PREFIX + "token_type"].tolist() == [1, 1, 1, 1, 1, 3, 5, 4]
    assert k[PREFIX + "eos_token_id"] == 5 and k[PREFIX + "add_bos_token"] is False
    assert k["tokenizer.chat_template"] == "hello"
    t = build_tokenizer(SimpleNamespace(path=tmp_path, metadata=k))
    assert t.encode("ab ab<|im_end|>", add_special=True, parse_special=True) == [3, 4, 5]
    assert t.decode_bytes([3, 4]) == b"ab ab"


def test_the_rule_with_the_same_patterns_is_found(tmp_path: Path) -> None:
    data = bpe(ignore_merges=True)
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        split(PRETOKENIZERS["llama-bpe"].patterns[0]), BYTES]}  # fmt: skip
    single = [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A"}}]
    data["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": single}]}  # fmt: skip
    k = keys(write(tmp_path, data))
    assert k[PREFIX + "pre"] == "llama-bpe" and k[PREFIX + "add_bos_token"] is True
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, BYTES | {"use_regex": True}]}  # fmt: skip
    assert keys(write(tmp_path, data))[PREFIX + "pre"] == "smollm"
    data["pre_tokenizer"] = split("made up")
    assert PREFIX + "pre" not in keys(write(tmp_path, data))


def test_byte_fallback_becomes_a_llama_vocabulary(tmp_path: Path) -> None:
    vocab = {"<unk>": 0, "<s>": 1, "<0x0A>": 2, "▁": 3, "a": 4, "▁a": 5}
    data = {"model": {"type": "BPE", "vocab": vocab, "merges": ["▁ a"], "byte_fallback": True,
                      "unk_token": "<unk>"},
            "added_tokens": [{"id": 1, "content": "<s>", "special": True}]}  # fmt: skip
    k = keys(write(tmp_path, data, {"bos_token": "<s>", "add_bos_token": True}))
    assert k[PREFIX + "model"] == "llama" and k[PREFIX + "bos_token_id"] == 1
    assert k[PREFIX + "token_type"].tolist() == [2, 3, 6, 1, 1, 1]
    t = build_tokenizer(SimpleNamespace(path=tmp_path, metadata=k))
    assert t.encode("▁a\n", add_special=True, parse_special=False) == [1, 5, 2]


def test_ids_of_config_json_and_no_tokenizer(tmp_path: Path) -> None:
    assert keys(tmp_path) == {}
    k = keys(write(tmp_path, bpe()), eos_token_id=[7, 5], bos_token_id=99)
    assert k[PREFIX + "eos_token_id"] == 7 and PREFIX + "bos_token_id" not in k


def test_suppressed_tokens(tmp_path: Path) -> None:
    folder, path = write(tmp_path, bpe()), tmp_path / "generation_config.json"
    assert "tokenizer.ggml.suppress_tokens" not in keys(folder)
    path.write_text(json.dumps({"suppress_tokens": [2, 3]}))
    assert keys(folder)["tokenizer.ggml.suppress_tokens"].tolist() == [2, 3]
    for wrong in (2, ["a"], [True], [-1], [1 << 40]):
        path.write_text(json.dumps({"suppress_tokens": wrong}))
        with pytest.raises(ModelError, match="suppress_tokens"):
            keys(folder)


@pytest.mark.parametrize("data", [{}, {"model": {"type": "Unigram", "vocab": []}}, {"model": 3}])
def test_other_kinds_are_refused(tmp_path: Path, data: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="is not supported; supported: BPE"):
        keys(write(tmp_path, data))


def test_a_real_vocabulary_survives_the_way_over_json(tmp_path: Path) -> None:
    data = golden()
    if data is None:
        pytest.skip("needs ../shared/golden")
    c = open_model(data / "models" / "qwen3moe.F16.gguf")
    m = c.metadata
    tokens, kinds = m[PREFIX + "tokens"], m[PREFIX + "token_type"]
    if m[PREFIX + "model"] != "gpt2":
        pytest.skip("not byte-level")
    added = [{"id": i, "content": tokens[i], "special": True} for i in range(len(tokens))
             if kinds[i] == 3]  # fmt: skip
    vocab = {t: i for i, t in enumerate(tokens) if kinds[i] != 3}
    rule = PRETOKENIZERS[m[PREFIX + "pre"]]
    tokenizer = {
        "model": {"type": "BPE", "vocab": vocab, "merges": list(m[PREFIX + "merges"]),
                  "ignore_merges": rule.whole_words},
        "added_tokens": added,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": [*map(split, rule.patterns), BYTES]},
    }  # fmt: skip
    k = keys(write(tmp_path, tokenizer))
    ours = build_tokenizer(SimpleNamespace(path=tmp_path, metadata=k))
    text = "Hello, world! 12345 — ünïcode\n\n  tail"
    theirs = build_tokenizer(c)
    assert ours.encode(text, add_special=False, parse_special=True) == theirs.encode(
        text, add_special=False, parse_special=True
    )
