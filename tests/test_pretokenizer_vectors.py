"""Every pre-tokenizer rule against llama.cpp's ids, on a vocabulary in which each cut shows.

data/pretokenizers.json holds, by rule, the SHA-256 of llama.cpp's ids (build b11434) for the texts
of pair_vocab.py, one line of ids a text, and the numbers of the texts that are left out of it:
those where the rule follows the model's own tokenizer on purpose (docs/tokenizers.md).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from pair_vocab import pairs, texts
from tokenizers import Regex, Tokenizer, pre_tokenizers
from tokenizers.models import BPE
from vocab_source import byte_chars

from kompute_llm.engine.pretokenizers import PRETOKENIZERS

VECTORS = json.loads((Path(__file__).parent / "data" / "pretokenizers.json").read_text())
BYTE_LEVEL = [name for name, rule in PRETOKENIZERS.items() if rule.byte_level]


@pytest.fixture(scope="module")
def engine() -> Tokenizer:
    """BPE over pairs; the tests set its pre-tokenizer."""
    merges = pairs()
    tokens = byte_chars() + [a + b for a, b in merges]
    return Tokenizer(BPE({text: i for i, text in enumerate(tokens)}, merges))


def digest(lines: list[list[int]], skipped: list[int]) -> str:
    """The hash of the ids of all texts but some."""
    kept = (line for n, line in enumerate(lines) if n not in skipped)
    return hashlib.sha256("\n".join(" ".join(map(str, ids)) for ids in kept).encode()).hexdigest()


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_rule(name: str, engine: Tokenizer) -> None:
    cuts = [pre_tokenizers.Split(Regex(p), "isolated") for p in PRETOKENIZERS[name].patterns]
    steps = [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    engine.pre_tokenizer = pre_tokenizers.Sequence(steps)
    found = [e.ids for e in engine.encode_batch(texts())]
    assert digest(found, VECTORS[name]["skipped"]) == VECTORS[name]["sha256"]


def test_all_rules_have_vectors() -> None:
    assert set(VECTORS) == set(BYTE_LEVEL)
    differing = {name for name, v in VECTORS.items() if v["skipped"]}
    assert len(differing) < 20 and not {"llama-bpe", "qwen2", "gpt-2", "deepseek-v3"} & differing
