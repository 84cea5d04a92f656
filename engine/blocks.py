"""Weight formats: block sizes, the planes a block is split into on the device, and decoding.

A format stores rows of `cols` values as blocks of `elems` values in `bytes` bytes (ggml-quants.h
of llama.cpp defines them; `gguf.quants` is the reference decoder that we call). On the device a
matrix is stored as planes: all quants of the matrix, then all scales, each plane starting on a
16-byte boundary, so that neighbouring lanes load neighbouring 16-byte words. docs/formats.md
shows every layout.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize
from gguf.quants import quantize as gguf_quantize

from .grids import GRIDS, grid_words
from .int_blocks import INT_BLOCKS, IntBlock, unpack_blocks

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Plane:
    """Part of every block: bytes [offset, offset + size) of the block and `pad` zero bytes, stored
    consecutively."""

    name: str
    offset: int
    size: int
    pad: int = 0

    @property
    def stride(self) -> int:
        """Bytes per block on the device."""
        return self.size + self.pad


@dataclass(frozen=True)
class Format:
    """One weight format: `elems` values in `bytes` bytes, split into at most 4 planes.

    A format with a codebook of vectors (engine/grids.py) has `grid`, and the codebook's words as
    one more plane behind the others.
    """

    name: str
    type_id: int
    elems: int
    bytes: int
    planes: tuple[Plane, ...]
    grid: bool = False

    def row_bytes(self, cols: int) -> int:
        """Bytes of one row of `cols` values; `cols` is a multiple of `elems`."""
        return cols // self.elems * self.bytes

    def plane_words(self, blocks: int) -> tuple[int, ...]:
        """32-bit words of each plane for `blocks` blocks, each rounded up to 16 bytes."""
        words = tuple(-(-blocks * p.stride // 16) * 4 for p in self.planes)
        return (*words, grid_words(self.name).size) if self.grid else words


def _format(name: str, *planes: tuple[str, int, int] | tuple[str, int, int, int]) -> Format:
    kind = GGMLQuantizationType[name]
    elems, size = GGML_QUANT_SIZES[kind]
    assert sum(p[2] for p in planes) == size, name
    parts = tuple(Plane(*p) for p in planes)
    return Format(name, int(kind), elems, size, parts, name in GRIDS)


def _int_format(block: IntBlock) -> Format:
    planes, at = [], 0
    for name, size in block.planes:
        planes.append(Plane(name, at, size))
        at += size
    return Format(block.name, block.type_id, block.elems, block.bytes, tuple(planes))


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        _format("F32", ("x", 0, 4)),
        _format("F16", ("x", 0, 2)),
        _format("BF16", ("x", 0, 2)),
        _format("Q4_0", ("qs", 2, 16), ("d", 0, 2)),
        _format("Q4_1", ("qs", 4, 16), ("dm", 0, 4)),
        _format("Q5_0", ("qs", 6, 16), ("qh", 2, 4), ("d", 0, 2)),
        _format("Q5_1", ("qs", 8, 16), ("qh", 4, 4), ("dm", 0, 4)),
        _format("Q8_0", ("qs", 2, 32), ("d", 0, 2)),
        _format("Q4_K", ("qs", 16, 128), ("dms", 0, 16)),
        _format("Q5_K", ("qs", 48, 128), ("qh", 16, 32), ("dms", 0, 16)),
        _format("Q6_K", ("ql", 0, 128), ("qh", 128, 64), ("sc", 192, 16), ("d", 208, 2)),
        _format("Q2_K", ("qs", 16, 64), ("sc", 0, 16), ("dm", 80, 4)),
        _format("Q3_K", ("qs", 32, 64), ("qh", 0, 32), ("scd", 96, 14, 2)),
        _format("IQ4_NL", ("qs", 2, 16), ("d", 0, 2)),
        _format("IQ4_XS", ("qs", 8, 128), ("dsc", 0, 8)),
        _format("MXFP4", ("qs", 1, 16), ("e", 0, 1)),
        _format("NVFP4", ("qs", 4, 32), ("e", 0, 4)),
        _format("TQ1_0", ("qs", 0, 48), ("qh", 48, 4), ("d", 52, 2)),
        _format("TQ2_0", ("qs", 0, 64), ("d", 64, 2)),
        _format("IQ1_S", ("qs", 2, 32), ("qh", 34, 16), ("d", 0, 2)),
        _format("IQ1_M", ("qs", 0, 32), ("qh", 32, 16), ("scd", 48, 8)),
        _format("IQ2_XXS", ("qs", 2, 64), ("d", 0, 2)),
        _format("IQ2_XS", ("qs", 2, 64), ("sc", 66, 8), ("d", 0, 2)),
        _format("IQ2_S", ("qs", 2, 64), ("hsc", 66, 16), ("d", 0, 2)),
        _format("IQ3_XXS", ("qs", 2, 64), ("ss", 66, 32), ("d", 0, 2)),
        _format("IQ3_S", ("qs", 2, 64), ("hss", 66, 44), ("d", 0, 2)),
        *map(_int_format, INT_BLOCKS.values()),
    )
}
BY_TYPE: dict[int, Format] = {f.type_id: f for f in FORMATS.values()}


@dataclass(frozen=True)
class Matrix:
    """Weights as the file holds them: `raw` uint8 (rows, row bytes), decoding to (rows, cols)."""

    fmt: Format
    raw: Bytes
    rows: int
    cols: int

    @classmethod
    def of(cls, fmt: Format, raw: Bytes, cols: int) -> Matrix:
        """Wrap contiguous `raw` bytes as rows of `cols` values of `fmt`."""
        rows = raw.size // fmt.row_bytes(cols)
        return cls(fmt, raw.reshape(rows, fmt.row_bytes(cols)), rows, cols)

    @property
    def nbytes(self) -> int:
        """Bytes of `raw`, known without looking at it."""
        return self.rows * self.fmt.row_bytes(self.cols)

    def part(self, start: int, stop: int) -> Matrix:
        """Rows [start, stop) as a matrix of their own, not copied."""
        raw = self.raw[start:stop]
        return Matrix(self.fmt, raw, len(raw), self.cols)

    def columns(self, first: int, count: int) -> Matrix:
        """Columns [first, first + count), whole blocks: a copy, unless they are all."""
        if count == self.cols:
            return self
        raw = self.raw[:, self.fmt.row_bytes(first) : self.fmt.row_bytes(first + count)]
        return Matrix(self.fmt, np.ascontiguousarray(raw), self.rows, count)

    def converted(self, fmt: Format) -> Matrix:
        """The values in F32, F16 or Q8_0, rounded."""
        if fmt.name == "Q8_0":
            raw = gguf_quantize(self.dequantize(), GGMLQuantizationType.Q8_0)
            return Matrix.of(fmt, np.ascontiguousarray(raw).reshape(-1), self.cols)
        values = self.dequantize().astype(np.float16 if fmt.name == "F16" else np.float32)
        return Matrix.of(fmt, np.ascontiguousarray(values).view(np.uint8).reshape(-1), self.cols)

    def forget(self) -> None:
        """Drop what was made for `raw`; mapped bytes stay. `raw` may be read again."""

    def dequantize(self, start: int = 0, stop: int | None = None) -> Floats:
        """Rows [start, stop) as float32 (rows, cols)."""
        raw = self.raw[start:stop]
        if self.fmt.name == "F32":
            return raw.view(np.float32)
        if not len(raw):  # gguf's decoders need at least one block
            return np.zeros((0, self.cols), np.float32)
        if self.fmt.name in INT_BLOCKS:
            return unpack_blocks(self.fmt.name, raw, self.cols)
        joined = raw.reshape(len(raw) // _together(len(raw), self.cols), -1)
        with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale may be infinite
            out = gguf_dequantize(joined, GGMLQuantizationType(self.fmt.type_id))
        return np.asarray(out, np.float32).reshape(raw.shape[0], self.cols)


def _together(rows: int, cols: int) -> int:
    """How many rows to decode as one. gguf takes 16 at a time, a score of calls for each: few
    values are not worth them, and many do not stay in a cache."""
    if rows * cols <= 1 << 17:
        return rows
    count = 1
    while rows % (2 * count) == 0 and 2 * count * cols <= 1 << 13:
        count *= 2
    return count


def pack_planes(m: Matrix) -> npt.NDArray[np.uint32]:
    """The device layout of a matrix, as the `repack` shader writes it. For tests and F32."""
    blocks = m.raw.reshape(-1, m.fmt.bytes)
    out = []
    for plane, words in zip(m.fmt.planes, m.fmt.plane_words(len(blocks)), strict=False):
        buf = np.zeros(words * 4, np.uint8)
        part = blocks[:, plane.offset : plane.offset + plane.size]
        buf[: len(blocks) * plane.stride].reshape(-1, plane.stride)[:, : plane.size] = part
        out.append(buf.view(np.uint32))
    if m.fmt.grid:
        out.append(grid_words(m.fmt.name))
    return np.concatenate(out)
