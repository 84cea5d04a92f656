"""GGUF headers to write: metadata as it was read, or made of values, and a tensor table.

Layout: ggml/docs/gguf.md. The data follow the header on the next multiple of ALIGNMENT.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .gguf import ALIGNMENT
from .gguf_values import ARRAY, SCALARS, STRING, Metadata

BOOL, UINT32, INT32, FLOAT32, UINT64 = 7, 4, 5, 6, 10
_ARRAYS = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "b1": 7, "u8": 10,
           "i8": 11, "f8": 12}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A row of the tensor table: shape in NumPy order, format id, bytes of data."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    nbytes: int


def pairs(metadata: Metadata, changes: Mapping[str, Any]) -> dict[str, bytes]:
    """Key -> type and value as a header holds them. `changes` replaces and adds; None removes.

    `split.*` and `general.alignment` describe another file's layout and are left out.
    """
    out = {}
    for key in metadata:
        if key.startswith("split.") or key == "general.alignment":
            continue
        entry = metadata.entries.get(key)
        if entry is None:
            out[key] = typed(metadata[key])
        else:
            out[key] = struct.pack("<I", entry.type_id) + entry.raw
    for key, value in changes.items():
        out.pop(key, None)
        if value is not None:
            out[key] = typed(value)
    return out


def typed(value: Any) -> bytes:
    """Type id and bytes of a value: the types that converters choose."""
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        kind = INT32 if value < 0 else UINT32 if value < 1 << 32 else UINT64
        return struct.pack(f"<I{SCALARS[kind]}", kind, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    if isinstance(value, np.ndarray):
        kind = _ARRAYS[value.dtype.str[1:]]
        return struct.pack("<IIQ", ARRAY, kind, len(value)) + value.tobytes()
    texts = list(value)
    head = struct.pack("<IIQ", ARRAY, STRING, len(texts))
    return head + b"".join(_text(str(t)) for t in texts)


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def header(keys: Mapping[str, bytes], rows: Sequence[Row]) -> tuple[bytes, dict[str, int]]:
    """A whole header, padded, and the offset of every tensor in the file."""
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(rows), len(keys)))
    for key, value in keys.items():
        out += _text(key) + value
    at, places = 0, {}
    for row in rows:
        out += _text(row.name) + struct.pack("<I", len(row.shape))
        out += struct.pack(f"<{len(row.shape)}Q", *row.shape[::-1])
        out += struct.pack("<IQ", row.type_id, at)
        places[row.name] = at
        at += _padded(row.nbytes)
    out += bytes(-len(out) % ALIGNMENT)
    return bytes(out), {name: len(out) + place for name, place in places.items()}


def file_bytes(rows: Iterable[Row], head: int) -> int:
    """Bytes of a file with a header of `head` bytes; padding after the last tensor included."""
    return head + sum(_padded(row.nbytes) for row in rows)


def _padded(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT
