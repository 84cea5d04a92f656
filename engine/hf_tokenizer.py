"""tokenizer.json (or tokenizer.model) of a Hugging Face model as GGUF tokenizer keys.

Byte-level BPE becomes model "gpt2" with the pre-tokenizer whose patterns are the file's; BPE with
byte fallback and SentencePiece files become model "llama" with scores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import ModelError
from .json_file import Config, read_json
from .pretokenizers import PRETOKENIZERS
from .vocab import PREFIX, Kind

MAX_TOKENS = 1 << 22
Keys = dict[str, Any]


def tokenizer_keys(folder: Path, config: Config) -> Keys:
    """Tokenizer keys of a folder; empty where it has no tokenizer (then only `bench` works)."""
    path = folder / "tokenizer.json"
    if path.exists():
        keys = _from_json(path)
    elif (folder / "tokenizer.model").exists():
        keys = _from_sentencepiece(folder / "tokenizer.model")
    else:
        return {}
    return keys | _special(folder, config, keys) | _template(folder)


# --- tokenizer.json --------------------------------------------------------------------------


def _from_json(path: Path) -> Keys:
    data = read_json(path)
    model = data.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocab, dict) or not isinstance(model, dict) or "merges" not in model:
        kind = model.get("type") if isinstance(model, dict) else model
        raise ModelError(path, f"tokenizer kind {kind!r:.40} is not supported; supported: BPE",
                         "key 'model'")  # fmt: skip
    added = data.get("added_tokens") or []
    tokens, kinds = _table(path, vocab, added)
    keys: Keys = {PREFIX + "tokens": tokens}
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    if model.get("byte_fallback"):
        # no scores: the ids of such a vocabulary are in the order of merging
        keys |= {PREFIX + "model": "llama",
                 PREFIX + "scores": -np.arange(len(tokens), dtype=np.float32)}  # fmt: skip
        keys[PREFIX + "add_space_prefix"] = "▁" in repr(data.get("normalizer"))
        for i, text in enumerate(tokens):
            if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
                kinds[i] = int(Kind.BYTE)
        if isinstance(model.get("unk_token"), str) and model["unk_token"] in vocab:
            kinds[vocab[model["unk_token"]]] = int(Kind.UNKNOWN)
    else:
        keys |= {PREFIX + "model": "gpt2", PREFIX + "merges": merges}
        pre = _pre(data.get("pre_tokenizer"), bool(model.get("ignore_merges")))
        if pre is not None:  # absent: the tokenizer says that it guesses
            keys[PREFIX + "pre"] = pre
    keys[PREFIX + "add_bos_token"] = _begins(data.get("post_processor"))
    return keys | {PREFIX + "token_type": np.array(kinds, np.int32)}


def _table(path: Path, vocab: Mapping[str, Any], added: Any) -> tuple[list[str], list[int]]:
    """Texts and kinds by id; ids that no token has are unused."""
    pairs = [(i, text, int(Kind.NORMAL)) for text, i in vocab.items()]
    for token in added if isinstance(added, list) else ():
        special = int(Kind.CONTROL if token.get("special") else Kind.USER_DEFINED)
        pairs.append((token.get("id"), str(token.get("content")), special))
    if not pairs or not all(isinstance(i, int) and 0 <= i < MAX_TOKENS for i, _, _ in pairs):
        raise ModelError(path, f"expected token ids from 0 to {MAX_TOKENS}", "key 'model.vocab'")
    count = max(i for i, _, _ in pairs) + 1
    tokens, kinds = [f"[PAD{i}]" for i in range(count)], [int(Kind.UNUSED)] * count
    for i, text, kind in pairs:
        tokens[i], kinds[i] = text, kind
    return tokens, kinds


def _begins(node: Any) -> bool:
    """Whether a post-processor puts a special token in front of every text."""
    if not isinstance(node, dict):
        return False
    if any(_begins(part) for part in node.get("processors") or ()):
        return True
    single = node.get("single")
    first = single[0] if isinstance(single, list) and single else None
    return isinstance(first, dict) and "SpecialToken" in first


def _pre(node: Any, whole_words: bool) -> str | None:
    """The name of the rule with the patterns of a pre-tokenizer, or None."""
    patterns = tuple(_spelt(p) for p in _patterns(node))
    same = [
        (name, rule) for name, rule in PRETOKENIZERS.items()
        if rule.byte_level and tuple(_spelt(p) for p in rule.patterns) == patterns
    ]  # fmt: skip
    same.sort(key=lambda item: item[1].whole_words != whole_words)  # stable: the first of the best
    return same[0][0] if same else None


def _spelt(pattern: str) -> str:
    """A pattern with its escaped code points written out."""
    return re.sub(r"\\x\{([0-9A-Fa-f]+)\}", lambda m: chr(int(m[1], 16)), pattern)


def _patterns(node: Any) -> Iterator[str]:
    if not isinstance(node, dict):
        return
    kind, pattern = node.get("type"), node.get("pattern")
    if kind == "Split" and isinstance(pattern, dict):
        yield str(pattern.get("Regex", pattern.get("String")))
    elif kind == "Digits":
        yield r"\p{N}" if node.get("individual_digits") else r"\p{N}+"
    elif kind == "ByteLevel" and node.get("use_regex", True):
        yield from PRETOKENIZERS["gpt-2"].patterns
    for part in node.get("pretokenizers") or ():
        yield from _patterns(part)


# --- tokenizer.model -------------------------------------------------------------------------


def _from_sentencepiece(path: Path) -> Keys:
    import sentencepiece

    try:
        sp = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as e:
        raise ModelError(path, f"is no SentencePiece model: {e}") from None
    count = sp.vocab_size()
    kinds = [_piece_kind(sp, i) for i in range(count)]
    return {
        PREFIX + "model": "llama",
        PREFIX + "tokens": [sp.id_to_piece(i) for i in range(count)],
        PREFIX + "scores": np.array([sp.get_score(i) for i in range(count)], np.float32),
        PREFIX + "token_type": np.array(kinds, np.int32),
    }


def _piece_kind(sp: Any, i: int) -> int:
    for test, kind in (("is_unknown", Kind.UNKNOWN), ("is_control", Kind.CONTROL),
                       ("is_unused", Kind.UNUSED), ("is_byte", Kind.BYTE)):  # fmt: skip
        if getattr(sp, test)(i):
            return int(kind)
    return int(Kind.NORMAL)


# --- special tokens and template -------------------------------------------------------------


def _special(folder: Path, config: Config, keys: Keys) -> Keys:
    """Ids of special tokens: by their text in tokenizer_config.json, else by id in config.json;
    those that are never drawn from generation_config.json."""
    path = folder / "tokenizer_config.json"
    settings = read_json(path) if path.exists() else {}
    tokens = keys[PREFIX + "tokens"]
    ids = {text: i for i, text in reversed(list(enumerate(tokens)))}
    out: Keys = {}
    for ours, name in (("bos", "bos_token"), ("eos", "eos_token"), ("unknown", "unk_token"),
                       ("padding", "pad_token")):  # fmt: skip
        text = settings.get(name)
        text = text.get("content") if isinstance(text, dict) else text
        found = ids.get(text) if isinstance(text, str) else config.get(f"{name}_id")
        if isinstance(found, list) and found:
            found = found[0]
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < len(tokens):
            out[f"{PREFIX}{ours}_token_id"] = found
    for name in ("add_bos_token", "add_eos_token"):
        if isinstance(settings.get(name), bool):
            out[PREFIX + name] = settings[name]
    path = folder / "generation_config.json"
    silent = read_json(path).get("suppress_tokens") if path.exists() else None
    if silent is not None:
        if not isinstance(silent, list) or any(
            type(i) is not int or not 0 <= i < MAX_TOKENS for i in silent
        ):
            raise ModelError(path, "expected a list of token ids", "key 'suppress_tokens'")
        out[PREFIX + "suppress_tokens"] = np.array(silent, np.int32)
    return out


def _template(folder: Path) -> Keys:
    """The chat template: a file of its own, or a key of tokenizer_config.json."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return {"tokenizer.chat_template": path.read_text("utf-8", "replace")}
    path = folder / "tokenizer_config.json"
    found = read_json(path).get("chat_template") if path.exists() else None
    if isinstance(found, str):
        return {"tokenizer.chat_template": found}
    if isinstance(found, list):
        named = {str(t.get("name")): t.get("template") for t in found if isinstance(t, dict)}
        if isinstance(named.get("default"), str):
            return {"tokenizer.chat_template": named["default"]}
    return {}
