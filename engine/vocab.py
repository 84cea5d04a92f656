"""The vocabulary of a GGUF file: token texts, their kinds, special ids, end-of-generation ids.

Rules follow llama.cpp's `llama-vocab.cpp`, with two differences: a special id outside the
vocabulary is an error, and without an id key there is no such token, whatever the architecture.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .errors import TokenizerError

PREFIX = "tokenizer.ggml."
MAX_TOKEN = 1 << 16  # characters of one token; the longest in use have some hundreds


class Source(Protocol):
    """What a tokenizer needs of an opened model file."""

    @property
    def path(self) -> Path: ...

    @property
    def metadata(self) -> Mapping[str, Any]: ...


class Kind(enum.IntEnum):
    """Values of `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_MARKED = (Kind.CONTROL, Kind.USER_DEFINED, Kind.UNKNOWN)


def _texts(words: str) -> frozenset[str]:
    """A set of token texts."""
    return frozenset(words.split())


# Texts that end a turn whatever their kind in the file; llama.cpp overrides the kind as well.
_ENDS = _texts(
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> "
    "<|eom_id|> <|endoftext|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <turn|> "
    "<|tool_response> <\uff5cend\u2581of\u2581sentence\uff5c> [e~[ <|fim_pad|> <fim-pad> <fim_pad> "
    "<|fim_repo|> <|repo_name|> <fim-repo> <|file_sep|>"
)
# Texts that end a turn only where the file marks them; as ordinary tokens they are HTML and such.
# Unmarked, they are still recognised where control tokens are, as llama.cpp does.
_MARKED_ENDS = _texts("</s> <eos> <REPO> <reponame> <PAD> [PAD]")
# The same, unknown to llama.cpp. The last three: a model that opens the next speaker's turn has
# finished its own.
_MORE_ENDS = _texts(
    "<|eot|> <|eom|> <|EOT|> <|eos|> <|end_of_turn|> <|endofturn|> [|endofturn|] <|role_end|> "
    "<|END_OF_TURN_TOKEN|> <seed:eos> <|user|> <|observation|> <\uff5cUser\uff5c>"
)
# Fill-in-the-middle markers: control tokens even where the file says otherwise.
_MIDDLE = _texts(
    "<|fim_prefix|> <fim-prefix> <fim_prefix> <\uff5cfim\u2581begin\uff5c> <|code_prefix|> "
    "<|fim_suffix|> <fim-suffix> <fim_suffix> <\uff5cfim\u2581hole\uff5c> <|code_suffix|> "
    "<|fim_middle|> <fim-middle> <fim_middle> <\uff5cfim\u2581end\uff5c> <|code_middle|> "
    "\u2581<PRE> \u2581<SUF> \u2581<MID> <|prefix|> <|suffix|> <|middle|>"
)
# Markup of the harmony format that is part of the text.
_SHOWN = _texts("<|channel|> <|message|> <|start|> <|constrain|>")


@dataclass(frozen=True)
class Vocab:
    """Tokens by id.

    `special` maps "bos", "eos" and so on to ids; `ends` are the ids that end generation; `spelled`
    are ordinary tokens that are recognised in text where control tokens are.
    """

    tokens: Sequence[str]
    kinds: Sequence[int]
    special: Mapping[str, int]
    ends: frozenset[int]
    spelled: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)


def fail(source: Source, key: str, problem: str) -> TokenizerError:
    """An error that names the file and the metadata key."""
    return TokenizerError(f"{source.path}: {key}: {problem}")


def flag(source: Source, name: str, default: bool) -> bool:
    """A boolean key under `tokenizer.ggml.`; `default` where the key is absent."""
    value = source.metadata.get(PREFIX + name)
    if value is None:
        return default
    if not isinstance(value, bool | int) or value not in (0, 1):
        raise fail(source, PREFIX + name, f"expected true or false, found {value!r:.80}")
    return bool(value)


def text_array(source: Source, name: str) -> list[str]:
    """An array of strings under `tokenizer.ggml.`; raises TokenizerError if absent or not one."""
    key = PREFIX + name
    value = source.metadata.get(key)
    if value is None:
        raise fail(source, key, "missing: the file has no usable vocabulary")
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        raise fail(source, key, f"expected an array of strings, found {type(value).__name__}")
    texts = value if isinstance(value, list) else list(value)
    if not texts or not isinstance(texts[0], str):
        found = type(texts[0]).__name__ if texts else "an empty array"
        raise fail(source, key, f"expected an array of strings, found {found}")
    return texts


def number_array(source: Source, name: str, count: int) -> npt.NDArray[Any] | None:
    """`count` numbers under `tokenizer.ggml.`, or None if absent; raises if there are fewer."""
    key = PREFIX + name
    value = source.metadata.get(key)
    if value is None:
        return None
    numbers = np.asarray(value)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
        raise fail(source, key, f"expected an array of numbers, found {value!r:.60}")
    if len(numbers) < count:
        raise fail(source, key, f"{len(numbers)} entries for {count} tokens")
    bad = np.flatnonzero(np.isnan(numbers[:count]))
    if len(bad):
        raise fail(source, key, f"entry {bad[0]} is not a number")
    return numbers[:count]


def read_vocab(source: Source) -> Vocab:
    """The vocabulary of `source`; raises TokenizerError for what cannot be used."""
    tokens = text_array(source, "tokens")
    if "" in tokens:  # llama.cpp's stand-in for a token without text
        tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(tokens)]
    longest = max(map(len, tokens))
    if longest > MAX_TOKEN:
        raise fail(source, PREFIX + "tokens", f"a token has {longest} characters; at most "
                                              f"{MAX_TOKEN} are supported")  # fmt: skip
    read = number_array(source, "token_type", len(tokens))
    notes = (
        []
        if read is not None
        else [f"{PREFIX}token_type is absent: every token counts as normal text"]
    )
    kinds = [int(Kind.NORMAL)] * len(tokens) if read is None else read.astype(int).tolist()
    special = _special_ids(source, len(tokens))
    by_text = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
    if len(by_text) != len(tokens):
        notes.append(f"{len(tokens) - len(by_text)} tokens repeat the text of an earlier one")
    spelled = frozenset(
        i for t in _MARKED_ENDS & by_text.keys() if kinds[i := by_text[t]] == Kind.NORMAL
    )
    ends = _mark(by_text, kinds, special)
    return Vocab(tokens, kinds, special, ends, spelled, tuple(notes))


def _special_ids(source: Source, n_vocab: int) -> dict[str, int]:
    """`tokenizer.ggml.NAME_token_id` for every NAME in the file, range-checked."""
    found = {}
    for key in source.metadata:
        if not (key.startswith(PREFIX) and key.endswith("_token_id")):
            continue
        value = source.metadata[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise fail(source, key, f"expected a token id, found {value!r:.80}")
        if not 0 <= value < n_vocab:
            raise fail(source, key, f"id {value} is outside the vocabulary of {n_vocab} tokens")
        found[key[len(PREFIX) : -len("_token_id")]] = value
    return found


def _mark(
    by_text: Mapping[str, int], kinds: list[int], special: Mapping[str, int]
) -> frozenset[int]:
    """Corrects `kinds` in place as the tables above say; returns the ids that end generation."""
    ends = {by_text[text]: text for text in _ENDS & by_text.keys()}
    for text in (_MARKED_ENDS | _MORE_ENDS) & by_text.keys():
        if kinds[by_text[text]] in _MARKED:
            ends[by_text[text]] = text
    for i in [*ends, *(by_text[text] for text in _MIDDLE & by_text.keys())]:
        kinds[i] = Kind.CONTROL
    for text in _SHOWN & by_text.keys():
        kinds[by_text[text]] = Kind.USER_DEFINED
    for name in ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"):
        if name in special:
            ends.setdefault(special[name], name)
    _drop_false_ends(ends, kinds, special)
    return frozenset(ends)


def _drop_false_ends(ends: dict[int, str], kinds: list[int], special: Mapping[str, int]) -> None:
    """Takes out texts that end something smaller than the answer in some families."""
    texts = set(ends.values())
    drop = set()
    if {"<|return|>", "<|call|>"} <= texts or {"<|calls|>", "<|flush|>"} <= texts:
        drop.add("<|end|>")  # harmony and solar: ends a message, and another may follow
    if "<|tool_response>" in texts:
        drop.add("</s>")  # gemma 4: ordinary text
    for i in [i for i, text in ends.items() if text in drop and i != special.get("eos")]:
        kinds[i] = Kind.USER_DEFINED if ends.pop(i) == "<|end|>" else Kind.NORMAL
