"""A GGUF writer for tests: writes good files and, on request, the broken ones that users meet.

Unlike gguf-py's writer it repeats keys and names when asked to, writes empty arrays, any version
number, alignment or byte order, and leaves out the final padding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BOOL, STRING, ARRAY = 7, 8, 9
CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
DTYPES = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "b1": 7, "u8": 10,
          "i8": 11, "f8": 12}  # fmt: skip


@dataclass(frozen=True)
class Typed:
    """A metadata value with an explicit GGUF type; arrays give the element type too."""

    type_id: int
    value: Any
    elem: int = 0


@dataclass(frozen=True)
class Blob:
    """A tensor as it goes into the file: NumPy-order shape, ggml type id, bytes.

    `offset` (relative to the data section) overrides the place where it would lie.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    data: bytes
    offset: int | None = None


def typed(value: Any) -> Typed:
    """The type that converters use for a Python value: uint32, float32, bool, string, array."""
    if isinstance(value, Typed):
        return value
    if isinstance(value, bool):
        return Typed(BOOL, value)
    if isinstance(value, int):
        return Typed(5 if value < 0 else 4 if value < 1 << 32 else 10, value)
    if isinstance(value, float):
        return Typed(6, value)
    if isinstance(value, str | bytes):
        return Typed(STRING, value)
    if isinstance(value, np.ndarray):
        return Typed(ARRAY, value.tolist(), DTYPES[value.dtype.str[1:]])
    first = value[0] if value else 0
    return Typed(ARRAY, value, STRING if isinstance(first, str | bytes) else typed(first).type_id)


def pack(t: Typed, order: str = "<") -> bytes:
    """The bytes of a value without its type."""
    if t.type_id == STRING:
        raw = t.value if isinstance(t.value, bytes) else t.value.encode("utf-8", "surrogateescape")
        return struct.pack(f"{order}Q", len(raw)) + raw
    if t.type_id == ARRAY:
        if t.elem in CODES:
            body = struct.pack(f"{order}{len(t.value)}{CODES[t.elem]}", *t.value)
        else:
            body = b"".join(
                pack(v if isinstance(v, Typed) else Typed(t.elem, v), order) for v in t.value
            )
        return struct.pack(f"{order}IQ", t.elem, len(t.value)) + body
    return struct.pack(f"{order}{CODES[t.type_id]}", t.value)


def gguf_bytes(
    metadata: Mapping[str, Any] | Iterable[tuple[str, Any]],
    tensors: Sequence[Blob] = (),
    *,
    version: int = 3,
    alignment: int = 32,
    order: str = "<",
    pad_last: bool = True,
) -> bytes:
    """A whole file. `metadata` may be pairs, to repeat a key; `order` "<" or ">"."""
    pairs = list(metadata.items() if isinstance(metadata, Mapping) else metadata)
    out = bytearray(b"GGUF" + struct.pack(f"{order}IQQ", version, len(tensors), len(pairs)))
    for key, value in pairs:
        t = typed(value)
        out += pack(Typed(STRING, key), order) + struct.pack(f"{order}I", t.type_id)
        out += pack(t, order)
    at = 0
    for b in tensors:
        out += pack(Typed(STRING, b.name), order) + struct.pack(f"{order}I", len(b.shape))
        out += struct.pack(f"{order}{len(b.shape)}Q", *b.shape[::-1])
        out += struct.pack(f"{order}IQ", b.type_id, at if b.offset is None else b.offset)
        at += -(-len(b.data) // alignment) * alignment
    out += bytes(-len(out) % alignment)
    for i, b in enumerate(tensors):
        out += b.data
        if pad_last or i + 1 < len(tensors):
            out += bytes(-len(b.data) % alignment)
    return bytes(out)
