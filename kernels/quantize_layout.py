"""Activations of a batch as its products read them: rows of float16, or of int8 blocks of 32.

A row of `cols` values in int8 is cols / 4 words with four signed bytes each, then for every block
of 32 its scale and the scale times the sum of its quants, as float32. The scale is the largest
magnitude / 127 (as Q8_1 of llama.cpp, in float32).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .kernel import Array, Case, Launch, Params, Shaped
from .limits import Limits

BLOCK = 32
Floats = npt.NDArray[np.float32]


def row_words(cols: int) -> int:
    """32-bit words of a row of int8 blocks, rounded up to 16 bytes."""
    return -(-(cols // 4 + cols // BLOCK * 2) // 4) * 4


def pack(x: Floats) -> Array:
    """(n, cols) float32 as uint32 (n, row_words(cols))."""
    n, cols = x.shape
    blocks = x.reshape(n, cols // BLOCK, BLOCK)
    most = np.abs(blocks).max(axis=2, keepdims=True)
    inverse = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
    q = np.rint(blocks * inverse).astype(np.int8)
    scale = most[..., 0] / np.float32(127)
    sums = scale * q.sum(axis=2, dtype=np.float32)
    out = np.zeros((n, row_words(cols)), np.uint32)
    out[:, : cols // 4] = q.reshape(n, cols).view(np.uint32)
    pairs = np.stack([scale, sums], axis=2).astype(np.float32).reshape(n, -1)
    out[:, cols // 4 : cols // 4 + cols // BLOCK * 2] = pairs.view(np.uint32)
    return out


def unpack(words: Array, cols: int) -> Floats:
    """The float32 values (n, cols) that rows of int8 blocks stand for."""
    n = len(words)
    q = np.ascontiguousarray(words[:, : cols // 4]).view(np.int8)
    pairs = np.ascontiguousarray(words[:, cols // 4 : cols // 4 + cols // BLOCK * 2])
    scale = pairs.view(np.float32).reshape(n, cols // BLOCK, 2)[:, :, :1]
    out: Floats = (q.reshape(n, -1, BLOCK).astype(np.float32) * scale).reshape(n, cols)
    return out


def write(values: Floats, y: Array) -> None:
    """Values (n, cols) into the first rows of y: float16 (clipped to its range) or int8 rows."""
    n, cols = values.shape
    if y.dtype == np.float16:
        y[:n, :cols] = np.clip(values, -65504, 65504)
    else:
        y[:n, : row_words(cols)] = pack(values)


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per row; y says by its type which form it has."""
    cols = int(params["cols"])
    size = limits.workgroup(min(256, max(32, cols // 8)), 4)
    build = "F16" if ops["y"].format_name == "F16" else "Q8"
    return Launch(build, (size,), (rows, 1, 1))


def forms(
    rng: np.random.Generator, name: str, ops: dict[str, Any], params: dict[str, int | float],
    n: int, cols: int,
) -> Iterator[Case]:
    """The case in both forms. Of int8 rows the bytes are compared, and of these the scales' ones
    stay out: values on the edge between two quants may fall either way."""
    half = {**ops, "y": np.zeros((n, cols), np.float16)}
    yield Case(f"{name} f16", half, {**params, "y_stride": cols}, rows=n, limit=1e-6)
    wide = {**ops, "y": np.zeros((n, row_words(cols)), np.uint32)}
    quants = np.zeros((n, row_words(cols) * 4), bool)
    quants[:, :cols] = True
    yield Case(
        f"{name} int8", wide, {**params, "y_stride": row_words(cols)}, rows=n, limit=1e-4,
        int8=frozenset({"y"}), only={"y": quants},
    )  # fmt: skip
