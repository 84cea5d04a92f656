"""Safetensors files: a bounded reader of their header, on a memory map.

Layout: a little-endian uint64 length, that many bytes of JSON (name -> dtype, shape,
data_offsets; `__metadata__` holds strings), then the data; offsets count from the data's start
(github.com/huggingface/safetensors, README). Every length is held against the file before use.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from .blocks import Bytes
from .errors import ModelError
from .gguf import map_file

MAX_HEADER = 32 << 20  # 80,000 tensors take 12 MB; JSON needs up to 20 times that in memory
MAX_TENSORS = 1 << 20
MAX_DIMS = 8
# dtype -> bytes per value
SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1,
    "U16": 2, "U32": 4, "U64": 8, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """One tensor of a file: bytes [offset, offset + nbytes) of `data`, counted from its start."""

    path: Path
    data: mmap.mmap
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    @property
    def elems(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    def raw(self) -> Bytes:
        """The bytes, uint8 (nbytes,), read-only, not copied."""
        return np.frombuffer(self.data, np.uint8, self.nbytes, self.offset)

    def fail(self, problem: str) -> ModelError:
        """An error about this tensor."""
        return ModelError(self.path, problem, f"tensor {self.name!r}")


@dataclass(frozen=True)
class SafetensorsFile:
    """One parsed file: tensors by name and the strings of `__metadata__`."""

    path: Path
    data: mmap.mmap
    tensors: dict[str, Stored]
    metadata: dict[str, str]


def read_safetensors(path: Path) -> SafetensorsFile:
    """Parse the header of one file. Raises ModelError for everything that is wrong in it."""
    data = map_file(path)
    start, header = _header(path, data)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ModelError(path, "expected strings by name", "header entry '__metadata__'")
    if len(header) > MAX_TENSORS:
        raise ModelError(path, f"{len(header)} tensors; at most {MAX_TENSORS} are supported")
    tensors = {
        name: _stored(path, data, name, entry, start) for name, entry in header.items()
    }
    _refuse_overlap(list(tensors.values()))
    return SafetensorsFile(path, data, tensors, metadata)


def _header(path: Path, data: mmap.mmap) -> tuple[int, dict[str, Any]]:
    """Where the data start, and the header as JSON."""
    size = len(data)
    if size < 8:
        raise ModelError(path, f"not a safetensors file: it has {size} bytes, at least 8 expected")
    (length,) = struct.unpack_from("<Q", data, 0)
    if length > MAX_HEADER or data[8:9] not in (b"{", b""):
        shown = bytes(data[:12])
        raise ModelError(path, f"not a safetensors file (first bytes {shown!r})")
    if length > size - 8:
        raise ModelError(
            path, f"truncated: a header of {length} bytes is announced, the file has {size} bytes"
        )
    try:
        header = json.loads(data[8 : 8 + length], object_pairs_hook=_unique)
    except RecursionError:
        raise ModelError(path, "the header is nested too deeply") from None
    except ValueError as e:  # JSON, UTF-8, numbers of too many digits, repeated names
        raise ModelError(path, f"the header is damaged: {e}") from None
    if not isinstance(header, dict):
        raise ModelError(path, "the header is not a JSON object")
    return 8 + length, header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is given twice")
        found[name] = value
    return found


def _stored(path: Path, data: mmap.mmap, name: str, entry: object, start: int) -> Stored:
    where = f"tensor {name!r}"
    if not isinstance(entry, Mapping):
        raise ModelError(path, "its header entry is not an object", where)
    dtype, shape, span = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in SIZES:
        raise ModelError(path, f"dtype {dtype!r:.40} is not known; known: {', '.join(SIZES)}",
                         where)  # fmt: skip
    if not _counts(shape) or len(shape) > MAX_DIMS:
        raise ModelError(path, f"shape {shape!r:.60} is not a list of sizes", where)
    if not _counts(span) or len(span) != 2 or span[0] > span[1]:
        raise ModelError(path, f"data_offsets {span!r:.60} are not [begin, end]", where)
    dims, (begin, end) = tuple(shape), span
    nbytes = math.prod(dims) * SIZES[dtype]
    if nbytes != end - begin:
        raise ModelError(
            path, f"{dtype} {list(dims)} takes {nbytes} bytes, data_offsets give {end - begin}",
            where,
        )  # fmt: skip
    if start + end > len(data):
        raise ModelError(
            path, f"truncated: it ends at byte {start + end}, the file has {len(data)} bytes; "
            "download the file again", where,
        )  # fmt: skip
    return Stored(path, data, name, dtype, dims, start + begin, nbytes)


def _counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 62 for n in value
    )


def _refuse_overlap(tensors: list[Stored]) -> None:
    end, last = 0, ""
    for t in sorted(tensors, key=lambda t: (t.offset, t.nbytes)):
        if t.nbytes and t.offset < end:
            raise t.fail(f"overlaps tensor {last!r}: starts at byte {t.offset}, the other ends at "
                         f"{end}")  # fmt: skip
        if t.nbytes:
            end, last = t.offset + t.nbytes, t.name


def header_bytes(
    entries: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str]
) -> tuple[bytes, dict[str, int]]:
    """A file's header for tensors (dtype, shape) laid out in order, padded so that the data start
    on a multiple of 64; and the offset of every tensor in the file."""
    table: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at, places = 0, {}
    for name, (dtype, shape) in entries.items():
        nbytes = math.prod(shape) * SIZES[dtype]
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + nbytes]}
        places[name] = at
        at += nbytes
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    head = struct.pack("<Q", len(text)) + text
    return head, {name: len(head) + offset for name, offset in places.items()}
