"""Safetensors files for tests: good ones, and headers that are not."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
DTYPES = {"f4": "F32", "f2": "F16", "u1": "U8", "f8": "F64", "u2": "BF16", "i4": "I32"}


def write(path: Path, tensors: Mapping[str, Array | tuple[str, Array]], **metadata: Any) -> Path:
    """Write arrays (uint16 stands for BF16; a pair names another dtype) and metadata strings."""
    table: dict[str, Any] = {}
    if metadata:
        texts = {k.replace("__", "."): v if isinstance(v, str) else json.dumps(v)
                 for k, v in metadata.items()}  # fmt: skip
        table["__metadata__"] = texts
    data = b""
    for name, value in tensors.items():
        dtype, array = value if isinstance(value, tuple) else (DTYPES[value.dtype.str[1:]], value)
        raw = np.ascontiguousarray(array).tobytes()
        span = [len(data), len(data) + len(raw)]
        table[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": span}
        data += raw
    return write_header(path, json.dumps(table).encode(), data)


def write_header(path: Path, header: bytes, data: bytes = b"", length: int | None = None) -> Path:
    """Write a header as it is, with an honest length unless told otherwise."""
    size = len(header) if length is None else length
    path.write_bytes(struct.pack("<Q", size) + header + data)
    return path
