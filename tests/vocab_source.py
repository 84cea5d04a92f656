"""Small vocabularies as a model file would hold them, for tests of tokenizers and chat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
PRE = "tokenizer.ggml."
WORDS = ("th", "he", "the", "Ġthe", "in", "an", "and", "Ġand", "é")
MERGES = ("t h", "h e", "th e", "Ġ the", "i n", "a n", "an d", "Ġ and", "Ã ©")


@dataclass
class Source:
    """Metadata with the path that messages name."""

    metadata: dict[str, Any] = field(default_factory=dict)
    path: Path = Path("tiny.gguf")


def byte_chars() -> list[str]:
    """GPT-2's 256 byte characters in order of the byte."""
    kept = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(256, 512))
    return [chr(b) if b in kept else chr(next(spare)) for b in range(256)]


def bpe(control: Mapping[str, int] | None = None, **keys: Any) -> Source:
    """Byte-level BPE: token b is byte b, then WORDS, then `control` (text to token type).

    `keys` are further keys under "tokenizer.ggml."; the value None removes a key.
    """
    control = control or {}
    words = ["Ã©" if w == "é" else w for w in WORDS]
    tokens = [*byte_chars(), *words, *control]
    types = [NORMAL] * (256 + len(words)) + list(control.values())
    return _source({"model": "gpt2", "pre": "gpt-2", "merges": list(MERGES)}, tokens, types, keys)


SPM_WORDS = {
    "▁": -1.0,
    "h": -9.0,
    "i": -9.0,
    "hi": -2.0,
    "▁h": -4.0,
    "▁hi": -3.0,
    "a": -9.0,
    "▁▁": -5.0,
}


def spm(control: Mapping[str, int] | None = None, **keys: Any) -> Source:
    """SPM: <unk> 0, <s> 1, </s> 2, byte b is token 3 + b, then SPM_WORDS, then `control`."""
    control = control or {}
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *SPM_WORDS, *control]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(SPM_WORDS)
    types += list(control.values())
    scores = [0.0] * 259 + list(SPM_WORDS.values()) + [0.0] * len(control)
    given = {
        "model": "llama",
        "scores": scores,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return _source(given, tokens, types, keys)


def _source(
    given: dict[str, Any], tokens: list[str], types: list[int], keys: Mapping[str, Any]
) -> Source:
    values = given | {"tokens": tokens, "token_type": types} | dict(keys)
    return Source({PRE + k: v for k, v in values.items() if v is not None})


def token_id(source: Source, text: str) -> int:
    """The id of a token by its text."""
    found: int = source.metadata[PRE + "tokens"].index(text)
    return found
