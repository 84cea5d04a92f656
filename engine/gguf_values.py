"""The typed values of a GGUF header: a bounded cursor over mapped bytes and lazy metadata.

Layout (GGUF v2 and v3, ggml/docs/gguf.md): a string is a uint64 length and its bytes; an array is
a uint32 element type, a uint64 count and the elements. Every length is held against the bytes that
are left before it is used, so a broken file costs neither memory nor time.

Strings are decoded as UTF-8. Elements of arrays (tokens, merges) keep undecodable bytes as
surrogates, so that `s.encode("utf-8", "surrogateescape")` gives the file's bytes back; keys, names
and single strings show such bytes as "\\xff", because they get printed.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import ModelError

STRING, ARRAY = 8, 9
MAX_DEPTH = 4  # arrays inside arrays; no model uses more than 2
MAX_STRINGS = 1 << 22  # in one header; the largest vocabularies have some 10^6 with merges
MAX_NAME = (1 << 16) - 1  # bytes of a key (ggml/docs/gguf.md) or tensor name
MAX_TEXT = 1 << 24  # bytes of a single value; the longest templates have some 10^4
ARRAY_COST = 16  # an array inside an array takes as long to check as so many strings
# type id -> struct code; NumPy understands the same codes
SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
SIZES = {t: struct.calcsize(f"<{code}") for t, code in SCALARS.items()}
_LENGTH = struct.Struct("<Q").unpack_from


class Cursor:
    """Reads forward through the header. `where` names what is being read, for messages."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.size = path, data, len(data)
        self.pos, self.where = 0, "header"
        self.strings = 0  # met so far: each costs time although it may be empty

    def fail(self, problem: str) -> ModelError:
        """An error about what is being read now."""
        return ModelError(self.path, problem, self.where)

    def need(self, nbytes: int) -> None:
        """Raise unless `nbytes` more bytes are there."""
        if nbytes > self.size - self.pos:
            raise self.fail(
                f"truncated or damaged: {nbytes} bytes expected at offset {self.pos}, "
                f"the file has {self.size} bytes"
            )

    def number(self, code: str) -> Any:
        """One little-endian scalar of a struct code."""
        size = struct.calcsize(f"<{code}")
        self.need(size)
        value = struct.unpack_from(f"<{code}", self.data, self.pos)[0]
        self.pos += size
        return value

    def name(self) -> str:
        """One key or name; undecodable bytes become "\\xff"."""
        n = self.number("Q")
        self.need(n)
        if n > MAX_NAME:
            raise self.fail(f"its name has {n} bytes, at most {MAX_NAME} are allowed")
        self.pos += n
        return self.data[self.pos - n : self.pos].decode("utf-8", "backslashreplace")

    def skip(self, type_id: int, depth: int = 0) -> None:
        """Move past one value of a type, checking it."""
        if type_id in SIZES:
            self.need(SIZES[type_id])
            self.pos += SIZES[type_id]
        elif type_id == STRING:
            n = self.number("Q")
            self.need(n)
            if n > MAX_TEXT:
                raise self.fail(f"a text of {n} bytes; at most {MAX_TEXT} are supported")
            self.pos += n
        elif type_id == ARRAY:
            self._skip_array(depth)
        else:
            raise self.fail(f"unknown value type {type_id}; GGUF knows 0 to 12")

    def _skip_array(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise self.fail(f"arrays are nested more than {MAX_DEPTH} deep")
        elem, count = self.number("I"), self.number("Q")
        least = SIZES.get(elem) or {STRING: 8, ARRAY: 12}.get(elem)
        if least is None:
            raise self.fail(f"unknown array element type {elem}; GGUF knows 0 to 12")
        self.need(count * least)
        if elem in SIZES:
            self.pos += count * least
            return
        self.strings += count if elem == STRING else count * ARRAY_COST
        if self.strings > MAX_STRINGS:
            raise self.fail(f"more than {MAX_STRINGS} strings or arrays up to here")
        if elem == STRING:
            self._skip_strings(count)
        else:
            for _ in range(count):
                self.skip(ARRAY, depth + 1)

    def _skip_strings(self, count: int) -> None:
        # The one long loop of a header (a vocabulary): one check at its end is enough, because
        # unpack_from itself refuses positions outside the file.
        pos, data = self.pos, self.data
        try:
            for _ in range(count):
                pos += 8 + _LENGTH(data, pos)[0]
        except (struct.error, OverflowError, IndexError):
            pos = self.size + 1
        self.need(pos - self.pos)
        self.pos = pos


@dataclass(frozen=True)
class Entry:
    """Where a value lies: its key's offset and the value's bytes [start, end) in `data`."""

    path: Path
    data: mmap.mmap
    key_offset: int
    type_id: int
    start: int
    end: int

    @property
    def raw(self) -> bytes:
        """The value's bytes as the file holds them."""
        return self.data[self.start : self.end]

    def decode(self) -> Any:
        """The value: int, float, bool, str, list of str, NumPy array, or list of lists."""
        return _decode(self.data, self.start, self.type_id)[0]

    @property
    def count(self) -> int | None:
        """Number of elements of an array, without decoding it; None for single values."""
        return _LENGTH(self.data, self.start + 4)[0] if self.type_id == ARRAY else None


def _decode(data: mmap.mmap, pos: int, type_id: int) -> tuple[Any, int]:
    """The value at `pos` (already checked by a cursor) and the position after it."""
    if type_id in SCALARS:
        return struct.unpack_from(f"<{SCALARS[type_id]}", data, pos)[0], pos + SIZES[type_id]
    if type_id == STRING:
        end = pos + 8 + _LENGTH(data, pos)[0]
        return data[pos + 8 : end].decode("utf-8", "backslashreplace"), end
    elem, count = struct.unpack_from("<IQ", data, pos)
    pos += 12
    if elem in SCALARS:
        dtype = np.dtype(np.uint8 if elem == 7 else f"<{SCALARS[elem]}")
        array = np.frombuffer(data, dtype, count, pos) if count else np.zeros(0, dtype)
        return (array != 0 if elem == 7 else array), pos + count * dtype.itemsize
    if elem == STRING:
        return _decode_strings(data, pos, count)
    lists = []
    for _ in range(count):
        value, pos = _decode(data, pos, ARRAY)
        lists.append(value)
    return lists, pos


def _decode_strings(data: mmap.mmap, pos: int, count: int) -> tuple[list[str], int]:
    out = []
    for _ in range(count):
        start = pos + 8
        pos = start + _LENGTH(data, pos)[0]
        out.append(data[start:pos].decode("utf-8", "surrogateescape"))
    return out, pos


class Metadata(Mapping[str, Any]):
    """Key-value pairs of one or more headers; each value is decoded on first access and kept."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = dict(entries)
        self._values: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            self._values[key] = self.entries[key].decode()
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def count(self, key: str) -> int | None:
        """Length of an array without decoding it; None when absent or not an array."""
        entry = self.entries.get(key)
        return None if entry is None else entry.count
