"""SentencePiece rebuilt from GGUF metadata: its model file is assembled in memory.

llama.cpp's SPM merges neighbours by score, the leftmost of equals first, and spells what is left
over in byte tokens. That is SentencePiece's BPE type with byte fallback and an identity normalizer.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .vocab import PREFIX, Kind, Source, Vocab, fail, flag, number_array

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

_SPACE = "\u2581"
_BYTES = tuple(f"<0x{b:02X}>" for b in range(256))
_UNFIT = re.compile("[\0\ud800-\udfff]")  # not allowed in pieces
# Types of a piece in sentencepiece_model.proto
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
# The end of a SentencePiece message: score and type with their tags, 7 bytes
_TAIL = np.dtype([("score_tag", "u1"), ("score", "<f4"), ("type_tag", "u1"), ("type", "u1")])


class SpmCodec:
    """Encoder and speller of an SPM vocabulary. SentencePiece is loaded at the first encode."""

    def __init__(self, source: Source, vocab: Vocab) -> None:
        self._source, self._vocab = source, vocab
        self.add_space_prefix = flag(source, "add_space_prefix", True)
        scores = number_array(source, "scores", len(vocab))
        if scores is None:
            raise fail(source, PREFIX + "scores", "absent, but an SPM vocabulary needs it")
        self._scores = scores

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; bytes that are not UTF-8 become byte tokens."""
        ids: list[int] = []
        start = 0
        for n, char in enumerate(text):
            if "\ud800" <= char <= "\udfff":
                ids += self._encode_valid(text[start:n])
                escaped = "\udc80" <= char <= "\udcff"
                ids += self._bytes(bytes((ord(char) - 0xDC00,)) if escaped else b"\xef\xbf\xbd")
                start = n + 1
        return ids + self._encode_valid(text[start:])

    def spell(self, text: str) -> bytes:
        """Bytes of a token's text."""
        return text.replace(_SPACE, " ").encode("utf-8", "surrogateescape")

    def _encode_valid(self, text: str) -> list[int]:
        """Ids of text without surrogates."""
        if not text:
            return []
        if self._complete:
            return list(self._engine.encode(text))
        ids: list[int] = []  # without all byte tokens, unknown parts are spelt here
        pieces = self._engine.encode(text, out_type=str)
        for i, piece in zip(self._engine.encode(text), pieces, strict=True):
            ids += [i] if i < len(self._vocab) else self._bytes(piece.encode("utf-8"))
        return ids

    def _bytes(self, data: bytes) -> list[int]:
        """Byte tokens of `data`; the unknown token, or nothing, for those that do not exist."""
        spare = self._vocab.special.get("unknown")
        ids = [self._byte_ids.get(b, spare) for b in data]
        return [i for i in ids if i is not None]

    @cached_property
    def _byte_ids(self) -> dict[int, int]:
        """Byte to token id."""
        wanted = {text: b for b, text in enumerate(_BYTES)}
        pairs = [(wanted[t], i) for i, t in enumerate(self._vocab.tokens) if t in wanted]
        return dict(reversed(pairs))

    @property
    def _complete(self) -> bool:
        """Whether there is a token for each byte."""
        return len(self._byte_ids) == 256

    @cached_property
    def _engine(self) -> SentencePieceProcessor:
        """SentencePiece with this vocabulary."""
        from sentencepiece import SentencePieceProcessor

        try:
            return SentencePieceProcessor(model_proto=self._model())
        except Exception as error:
            raise fail(self._source, PREFIX + "tokens", f"SentencePiece: {error}") from error

    def _model(self) -> bytes:
        """A ModelProto: pieces (field 1), trainer_spec (2), normalizer_spec (3)."""
        plain = np.isin(self._vocab.kinds, (Kind.NORMAL, Kind.UNUSED, Kind.UNDEFINED))
        types = np.where(plain, _NORMAL, _CONTROL).astype(np.uint8)
        if self._complete:
            types[list(self._byte_ids.values())] = _BYTE
        names = self._names(types)
        # One piece more than the vocabulary: SentencePiece insists on an unknown one.
        pieces = _pieces(
            [*names, b"\x01unk"], np.append(self._scores, 0), np.append(types, _UNKNOWN)
        )
        # model_type (3) = BPE (2), byte_fallback (35)
        trainer = b"\x18\x02" + b"\x98\x02" + bytes((self._complete,))
        # add_dummy_prefix (3), remove_extra_whitespaces (4) off; escape_whitespaces (5) on
        normalizer = b"\x18\x00\x20\x00\x28\x01"
        return pieces + _field(0x12, trainer) + _field(0x1A, normalizer)

    def _names(self, types: npt.NDArray[np.uint8]) -> list[bytes]:
        """Texts of the pieces; what SentencePiece refuses gets a stand-in that no text matches."""
        tokens = self._vocab.tokens
        with contextlib.suppress(UnicodeEncodeError):  # the usual case, all of it at once
            names = [text.encode() for text in tokens]
            if len(set(tokens)) == len(tokens) and b"\0" not in b"".join(names):
                return names
        seen, names = set(), []
        for i, text in enumerate(tokens):
            if text in seen or _UNFIT.search(text):
                types[i] = _CONTROL
                names.append(b"\x01%d" % i)
            else:
                names.append(text.encode())
            seen.add(text)
        return names


def _pieces(
    names: Sequence[bytes], scores: npt.NDArray[Any], types: npt.NDArray[np.uint8]
) -> bytes:
    """SentencePiece messages: piece (1), score (2), type (3). Laid out in bulk: they are many."""
    tail = np.zeros(len(names), _TAIL)
    tail["score_tag"], tail["score"], tail["type_tag"], tail["type"] = 0x15, scores, 0x18, types
    tails, size = tail.tobytes(), _TAIL.itemsize
    # outer tag and length, inner tag and length, by length of the name
    heads = {n: _head(n, size) for n in set(map(len, names))}
    return b"".join(
        heads[len(name)] + name + tails[at : at + size]
        for name, at in zip(names, range(0, len(tails), size), strict=True)
    )


def _head(n: int, tail: int) -> bytes:
    """What stands before a name of n bytes."""
    inner = b"\x0a" + _varint(n)
    return b"\x0a" + _varint(len(inner) + n + tail) + inner


def _varint(n: int) -> bytes:
    """Protobuf's base-128 integer."""
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _field(tag: int, data: bytes) -> bytes:
    """A length-delimited field."""
    return bytes((tag,)) + _varint(len(data)) + data
