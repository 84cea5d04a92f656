"""Text to token ids and back, from GGUF metadata alone.

`Tokenizer` finds special tokens in the text and adds BOS and EOS; what lies between goes through a
`Codec`: byte-level BPE (`tokenizer_bpe.py`) or SentencePiece (`tokenizer_spm.py`). Results equal
those of llama.cpp, but for what docs/tokenizers.md lists as deliberate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Protocol

from .errors import TokenizerError
from .pretokenizers import PRETOKENIZERS
from .vocab import PREFIX, Kind, Source, Vocab, fail, flag, read_vocab

_BLANKS = " \t\n\v\f\r"  # what C's isspace takes
_HIDDEN = (Kind.CONTROL, Kind.UNKNOWN)
_VERBATIM = (*_HIDDEN, Kind.USER_DEFINED)


class Codec(Protocol):
    """Encodes text that holds no special token, and spells ordinary tokens."""

    add_space_prefix: bool  # a space goes before text at the start and after a special token

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, which may hold bytes that are not UTF-8 as lone surrogates."""

    def spell(self, text: str) -> bytes:
        """Bytes of an ordinary token whose text in the vocabulary is `text`."""


class Tokenizer:
    """A model's tokenizer. Ids outside the vocabulary (padded embedding rows) decode to nothing."""

    def __init__(
        self, vocab: Vocab, codec: Codec, model: str, *, add_bos: bool, add_eos: bool
    ) -> None:
        self.vocab, self.model = vocab, model
        self._codec = codec
        self.bos, self.eos, self.eot, self.pad, self.unk = (
            vocab.special.get(name) for name in ("bos", "eos", "eot", "padding", "unknown")
        )
        # A flag without its token adds nothing.
        self.add_bos = add_bos and self.bos is not None
        self.add_eos = add_eos and self.eos is not None
        self.end_ids = vocab.ends
        self.notes: tuple[str, ...] = vocab.notes
        self._strip_after: frozenset[int] = frozenset()  # special tokens that swallow blanks after

    @property
    def n_vocab(self) -> int:
        """Number of tokens with a text."""
        return len(self.vocab)

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Ids of `text`.

        `add_special` adds BOS and EOS as the file asks. `parse_special` turns the spelling of
        control tokens into those tokens; user-defined tokens are always recognised.
        """
        ids = [self.bos] if add_special and self.add_bos and self.bos is not None else []
        after_special = True
        for part in self._partition(text, parse_special):
            if isinstance(part, int):
                ids.append(part)
            else:
                lead = " " if self._codec.add_space_prefix and after_special else ""
                ids += self._codec.encode(lead + part)
            after_special = isinstance(part, int)
        if add_special and self.add_eos and self.eos is not None:
            ids.append(self.eos)
        return ids

    def prepare(self) -> None:
        """Builds what the first `encode` needs; may run in a thread while weights load."""
        self._codec.encode(" ")

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        """Bytes of one token in running text; control tokens are empty unless `special`."""
        if not 0 <= token < len(self.vocab.tokens):
            return b""
        kind, text = self.vocab.kinds[token], self.vocab.tokens[token]
        if kind == Kind.UNUSED or (kind in _HIDDEN and not special):
            return b""
        if kind in _VERBATIM:
            return text.encode("utf-8", "surrogateescape")
        if kind == Kind.BYTE and (byte := byte_value(text)) is not None:
            return bytes((byte,))
        return self._codec.spell(text)

    def decode_bytes(self, ids: Iterable[int], *, special: bool = False) -> bytes:
        """Bytes of a whole text: the space that encoding put in front of it is taken off again.

        Text that continues another is the joined `token_bytes` instead.
        """
        pieces = [self.token_bytes(int(i), special) for i in ids]
        if self._codec.add_space_prefix and pieces and pieces[0].startswith(b" "):
            pieces[0] = pieces[0][1:]
        return b"".join(pieces)

    def piece(self, token: int) -> str:
        """The token's text as the vocabulary has it."""
        if not 0 <= token < len(self.vocab.tokens):
            raise TokenizerError(f"no token {token} in a vocabulary of {self.n_vocab}")
        return self.vocab.tokens[token]

    @cached_property
    def _specials(self) -> list[tuple[str, int]]:
        """Texts and ids of the tokens to be found in text, longest first."""
        wanted = self.vocab.spelled.union(
            i for i, kind in enumerate(self.vocab.kinds) if kind in _VERBATIM
        )
        found = [(self.vocab.tokens[i], i) for i in wanted]
        return sorted(found, key=lambda item: -len(item[0].encode("utf-8", "surrogateescape")))

    def _partition(self, text: str, parse_special: bool) -> list[str | int]:
        """Text cut at special tokens. Longer tokens go first, wherever they stand."""
        parts: list[str | int] = [text] if text else []
        for spelling, token in self._specials:
            if spelling not in text:
                continue
            if parse_special or self.vocab.kinds[token] == Kind.USER_DEFINED:
                parts = self._cut(parts, spelling, token)
        return parts

    def _cut(self, parts: list[str | int], spelling: str, token: int) -> list[str | int]:
        """`parts` with every `spelling` in their text replaced by `token`."""
        out: list[str | int] = []
        for part in parts:
            if isinstance(part, int):
                out.append(part)
                continue
            for n, text in enumerate(part.split(spelling)):
                if n:
                    out.append(token)
                    text = text.lstrip(_BLANKS) if token in self._strip_after else text
                if text:
                    out.append(text)
        return out


def byte_value(text: str) -> int | None:
    """The byte that `<0xNN>` stands for, or None for another text."""
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        try:
            return int(text[3:5], 16)
        except ValueError:
            return None
    return None


def build_tokenizer(source: Source) -> Tokenizer:
    """The tokenizer of an opened model; raises TokenizerError naming file, key and known values."""
    model = source.metadata.get(PREFIX + "model")
    if model is None or model in ("none", "no_vocab"):
        raise fail(
            source,
            PREFIX + "model",
            f"{'absent' if model is None else repr(model)}: the file has no vocabulary; "
            "it can be measured with 'bench', but text needs a tokenizer",
        )
    build = _BUILDERS.get(model) if isinstance(model, str) else None
    if build is None:
        known = ", ".join(sorted(_BUILDERS))
        problem = f"tokenizer kind {model!r:.80} is not supported; known: {known}"
        raise fail(source, PREFIX + "model", problem)
    return build(source, model)


def _build_bpe(source: Source, model: str) -> Tokenizer:
    """Byte-level BPE, or gemma 4's BPE on plain text."""
    from .tokenizer_bpe import BpeCodec

    notes: tuple[str, ...] = ()
    pre = "gemma4" if model == "gemma4" else source.metadata.get(PREFIX + "pre")
    if pre is None:
        pre = "default"
        notes = (f"{PREFIX}pre is absent: words are cut by the rule 'default', which may be wrong",)
    rule = PRETOKENIZERS.get(pre) if isinstance(pre, str) else None
    if rule is None:
        known = ", ".join(sorted(PRETOKENIZERS))
        raise fail(source, PREFIX + "pre", f"unknown pre-tokenizer {pre!r:.80}; known: {known}")
    vocab = read_vocab(source)
    codec = BpeCodec(source, vocab, rule)
    add_bos = model == "gemma4" or flag(source, "add_bos_token", rule.add_bos)
    tokenizer = Tokenizer(
        vocab, codec, model, add_bos=add_bos, add_eos=flag(source, "add_eos_token", False)
    )
    tokenizer.notes += notes
    return tokenizer


def _build_spm(source: Source, model: str) -> Tokenizer:
    """SentencePiece with merges chosen by score."""
    from .tokenizer_spm import SpmCodec

    vocab = read_vocab(source)
    codec = SpmCodec(source, vocab)
    tokenizer = Tokenizer(
        vocab,
        codec,
        model,
        add_bos=flag(source, "add_bos_token", True),
        add_eos=flag(source, "add_eos_token", False),
    )
    tokenizer._strip_after = _stripping(source, vocab)
    return tokenizer


def _stripping(source: Source, vocab: Vocab) -> frozenset[int]:
    """Special tokens that swallow blanks after them: phi-3's; the file does not say so itself."""
    name = str(source.metadata.get("general.name", "")).lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    keep = ("<unk>", "<s>", "<|endoftext|>")
    return frozenset(
        i for i, kind in enumerate(vocab.kinds) if kind in _VERBATIM and vocab.tokens[i] not in keep
    )


_BUILDERS: dict[str, Callable[[Source, str], Tokenizer]] = {
    "gpt2": _build_bpe,
    "gemma4": _build_bpe,
    "llama": _build_spm,
}
