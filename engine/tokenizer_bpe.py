"""Byte-pair encoding through the `tokenizers` package, rebuilt from GGUF vocabulary and merges."""

from __future__ import annotations

import gc
import re
from functools import cached_property
from typing import TYPE_CHECKING

from .errors import TokenizerError
from .pretokenizers import PreTokenizer
from .vocab import PREFIX, Source, Vocab, fail, text_array

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine
    from tokenizers.pre_tokenizers import PreTokenizer as Step

_SPACE = "\u2581"  # stands for a space where text is not mapped byte by byte
_ESCAPED = re.compile("([\ud800-\udfff]+)")  # what "surrogateescape" made of invalid UTF-8
_LINE_FEEDS = re.compile("(\n+)")


def _byte_alphabet() -> dict[int, str]:
    """GPT-2's map from bytes to printable characters: those of Latin-1, the rest from 256 on."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [b for b in range(256) if b not in kept]
    return {b: chr(b) for b in kept} | {b: chr(256 + n) for n, b in enumerate(moved)}


_TO_CHAR = _byte_alphabet()
_TO_BYTE = {char: byte for byte, char in _TO_CHAR.items()}


class BpeCodec:
    """Encoder and speller of a BPE vocabulary. The merge table is built at the first encode."""

    add_space_prefix = False

    def __init__(self, source: Source, vocab: Vocab, rule: PreTokenizer) -> None:
        self._source, self._vocab, self._rule = source, vocab, rule
        if PREFIX + "merges" not in source.metadata:
            raise fail(
                source,
                PREFIX + "merges",
                f"absent, but {PREFIX}model asks for BPE, which needs it: convert the model again",
            )

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; bytes that are not UTF-8 become the tokens of those bytes."""
        ids: list[int] = []
        for n, part in enumerate(_ESCAPED.split(text)):
            if n % 2:
                ids += self._encode_raw(part)
            elif self._rule.whole_lines:
                ids += self._encode_lines(part)
            elif part:
                ids += self._engine.encode(part, add_special_tokens=False).ids
        return ids

    def _encode_lines(self, text: str) -> list[int]:
        """Ids of text whose runs of line feeds are tokens, where such a token exists."""
        ids: list[int] = []
        for part in filter(None, _LINE_FEEDS.split(text)):
            token = self._line_tokens.get(part)
            if token is not None:
                ids.append(token)
            else:
                ids += self._engine.encode(part, add_special_tokens=False).ids
        return ids

    @cached_property
    def _line_tokens(self) -> dict[str, int]:
        """Tokens of nothing but line feeds; the first id of a text counts."""
        pairs = ((text, i) for i, text in enumerate(self._vocab.tokens) if not text.strip("\n"))
        return dict(reversed(list(pairs)))

    def spell(self, text: str) -> bytes:
        """Bytes of a token's text."""
        if not self._rule.byte_level:
            return text.replace(_SPACE, " ").encode("utf-8", "surrogateescape")
        try:
            return bytes(map(_TO_BYTE.__getitem__, text))
        except KeyError:  # characters outside the byte alphabet stand for themselves
            return b"".join(
                bytes((_TO_BYTE[c],)) if c in _TO_BYTE else c.encode("utf-8", "surrogateescape")
                for c in text
            )

    def _encode_raw(self, escaped: str) -> list[int]:
        """Tokens of raw bytes; a surrogate that stands for no byte becomes U+FFFD."""
        try:
            raw = escaped.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return self.encode("\ufffd" * len(escaped))
        if not self._rule.byte_level:
            table = self._engine.get_vocab()
            return [table[key] for b in raw if (key := f"<0x{b:02X}>") in table]
        return [t.id for t in self._engine.model.tokenize("".join(_TO_CHAR[b] for b in raw))]

    @cached_property
    def _engine(self) -> Engine:
        """The `tokenizers` pipeline; about 2 µs per merge to build."""
        pause = gc.isenabled()
        gc.disable()  # hundreds of thousands of small tuples: collection passes double the time
        try:
            return _build(self._source, self._vocab, self._rule)
        except TokenizerError:
            raise
        except Exception as error:
            raise fail(self._source, PREFIX + "merges", f"cannot build BPE: {error}") from error
        finally:
            if pause:
                gc.enable()


def _build(source: Source, vocab: Vocab, rule: PreTokenizer) -> Engine:
    """Vocabulary, merges and pre-tokenizer as one `tokenizers` pipeline."""
    from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    n = len(vocab)
    table = dict(zip(reversed(vocab.tokens), range(n - 1, -1, -1), strict=True))  # first id wins
    merges = _merges(source)
    options = {"ignore_merges": rule.whole_words, "byte_fallback": not rule.byte_level}
    try:
        model = BPE(table, merges, **options)
    except Exception:  # text that is not UTF-8, or a merge of or to what is no token: cannot apply
        table = {text: i for text, i in table.items() if _is_utf8(text)}
        merges = [(a, b) for a, b in merges if a in table and b in table and a + b in table]
        model = BPE(table, merges, **options)
    engine = Tokenizer(model)
    steps: list[Step] = [pre_tokenizers.Split(Regex(p), behavior="isolated") for p in rule.patterns]
    if rule.byte_level:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    else:
        engine.normalizer = normalizers.Replace(" ", _SPACE)
    engine.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return engine


def _is_utf8(text: str) -> bool:
    """Whether `text` holds no stand-ins for undecodable bytes."""
    return _ESCAPED.search(text) is None


def _merges(source: Source) -> list[tuple[str, str]]:
    """Pairs in order of rank. The separator is the first space after the first character."""
    lines = text_array(source, "merges")
    pairs = [tuple(line.split(" ", 1)) for line in lines]
    if all(len(pair) == 2 and pair[0] for pair in pairs):
        return pairs  # type: ignore[return-value]
    cuts = [line.find(" ", 1) for line in lines]
    if -1 in cuts:
        n = cuts.index(-1)
        raise fail(source, PREFIX + "merges", f"entry {n} is no pair: {lines[n]!r:.80}")
    return [(line[:cut], line[cut + 1 :]) for line, cut in zip(lines, cuts, strict=True)]
