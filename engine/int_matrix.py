"""Container rows as the matrices that plans use: which engine format they take, and their bytes.

What a file holds in a format that the kernels read is mapped, or packed into blocks when it is
first needed; everything else is decoded to float16.
"""

from __future__ import annotations

import numpy as np

from . import int_codec
from .blocks import FORMATS, Bytes, Floats, Format, Matrix
from .int_blocks import INT_BLOCKS, pack_blocks, pack_stored
from .int_formats import E8M0, GROUPS
from .int_rows import Index, Leaf, Packed, Plain, Rows

DECODED = "F16"  # of formats without kernels


def engine_format(rows: Rows) -> Format:
    """The engine format that these rows are read in."""
    names = {_leaf_format(leaf) for leaf in rows.parts}
    if len(names) == 1:
        return FORMATS[names.pop()]
    return FORMATS["F32" if names == {"F32", "F64"} else DECODED]


def _leaf_format(leaf: Leaf) -> str:
    """The engine format that holds a leaf's values as they are, or the one to decode it to."""
    if not isinstance(leaf, Packed):
        return "F32" if leaf.kind == "F64" else leaf.kind
    what, cols = leaf.what, leaf.cols
    name = {"int8-row": "INT8", "int3-g64": "INT3_G64"}.get(what.name, "")
    if what.name in ("int4-row", "int2-row", "int4-grouped"):
        # the largest group that the row and the file's groups consist of; 2 bits fit into 4
        most = what.group or GROUPS[-1]
        fitting = [g for g in GROUPS if g <= most and cols % g == 0]
        name = f"INT4_G{fitting[-1]}" if fitting else ""
    if what.name == "mxfp4" and leaf.scales_at.dtype in E8M0:
        name = "MXFP4"
    known = FORMATS.get(name)
    return name if known and cols % known.elems == 0 else DECODED


def mapped(rows: Rows, fmt: Format) -> Bytes | None:
    """The bytes of all rows where a file holds them in this format and order, or None."""
    if isinstance(rows, Plain) and rows.kind == fmt.name:
        return rows.stored.raw()
    return None


def encode(rows: Rows, fmt: Format, start: int, stop: int) -> Bytes:
    """Rows [start, stop) as bytes of an engine format: uint8 (rows, row bytes), a new array."""
    parts = [_encode_leaf(leaf, index, fmt) for leaf, index in rows.leaves(start, stop)]
    size = fmt.row_bytes(rows.cols)
    return np.concatenate(parts) if parts else np.zeros((0, size), np.uint8)


def _encode_leaf(leaf: Leaf, index: Index, fmt: Format) -> Bytes:
    if isinstance(leaf, Plain) and leaf.kind == fmt.name:
        return leaf.stored.raw().reshape(leaf.rows, -1)[index]
    if isinstance(leaf, Packed) and fmt.name in INT_BLOCKS:
        block, packed, scales = INT_BLOCKS[fmt.name], leaf.packed(index), leaf.scales(index)
        if leaf.what.name != "int2-row":
            return pack_stored(block, packed, scales)
        return pack_blocks(block, int_codec.unpack(leaf.what, packed, leaf.cols), scales)
    if isinstance(leaf, Packed) and fmt.name == "MXFP4":
        return _mxfp4(leaf, index)
    return float_bytes(leaf.take(index), fmt.name)


def _mxfp4(leaf: Packed, index: Index) -> Bytes:
    """GGUF's blocks of 32: the exponent, then low nibbles 0..15 and high nibbles 16..31."""
    values = int_codec.nibbles(leaf.packed(index)).reshape(len(index), -1, 2, 16)
    exponents = leaf.scales_at.raw().reshape(leaf.rows, -1)[index]
    quants = values[:, :, 0] | (values[:, :, 1] << 4)
    out: Bytes = np.concatenate([exponents[..., None], quants], axis=2).reshape(len(index), -1)
    return out


def float_bytes(values: Floats, name: str) -> Bytes:
    """Values (n, cols) as F32, F16 or BF16 bytes (n, bytes). float16 must be able to hold them."""
    if name == "F32":
        out: Bytes = np.ascontiguousarray(values, np.float32).view(np.uint8)
    elif name == "BF16":
        out = int_codec.to_bf16(values).view(np.uint8)
    else:
        with np.errstate(over="ignore"):
            out = np.ascontiguousarray(values.astype(np.float16)).view(np.uint8)
    return out.reshape(len(values), -1)


class RowsMatrix(Matrix):
    """Rows [first, first + rows) of a container, packed into `raw` when that is first read."""

    _source: Rows
    _first: int
    _made: list[Bytes]

    def __init__(self, fmt: Format, source: Rows, first: int = 0, rows: int | None = None) -> None:
        count = source.rows - first if rows is None else rows
        for name, value in (
            ("fmt", fmt), ("rows", count), ("cols", source.cols), ("_source", source),
            ("_first", first), ("_made", []),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def raw(self) -> Bytes:
        """uint8 (rows, row bytes), made once and kept until `forget`."""
        if not self._made:
            self._made.append(self._bytes(0, self.rows))
        return self._made[0]

    def _bytes(self, start: int, stop: int) -> Bytes:
        return encode(self._source, self.fmt, self._first + start, self._first + stop)

    def dequantize(self, start: int = 0, stop: int | None = None) -> Floats:
        """Rows [start, stop) as float32 (rows, cols)."""
        if self._made:
            return super().dequantize(start, stop)
        stop = self.rows if stop is None else min(stop, self.rows)
        raw = self._bytes(start, stop)
        return Matrix(self.fmt, raw, len(raw), self.cols).dequantize()

    def part(self, start: int, stop: int) -> Matrix:
        """Rows [start, stop), packed on their own."""
        return RowsMatrix(self.fmt, self._source, self._first + start, stop - start)

    def forget(self) -> None:
        """Drop the packed bytes."""
        self._made.clear()
