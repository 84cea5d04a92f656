"""Rows of weights wherever they lie in a container: stored, packed, gathered, joined or computed.

A tensor under its GGUF name is a `Rows`: rows of `cols` values, made of leaves. A leaf holds rows
of one tensor of a file (`Plain`, `Packed`) or computes them (`Computed`); `Joined` puts
experts one after another, `Gathered` permutes rows. Nothing is read before it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import int_codec
from .blocks import Bytes, Floats
from .int_formats import E8M0, FP8_BLOCK, IntKind, up
from .safetensors import Stored

Index = npt.NDArray[np.intp]
PLAIN = ("F64", "F32", "F16", "BF16")
FP8 = IntKind("fp8-e4m3-b128", "8")


class Rows(ABC):
    """Rows (rows, cols) of a matrix; vectors are one row."""

    rows: int
    cols: int

    @abstractmethod
    def leaves(self, start: int, stop: int) -> Iterator[tuple[Leaf, Index]]:
        """The leaves that hold rows [start, stop), each with its own row numbers, in order."""

    def values(self, start: int = 0, stop: int | None = None) -> Floats:
        """Rows [start, stop) decoded: float32 (rows, cols)."""
        stop = self.rows if stop is None else min(stop, self.rows)
        parts = [leaf.take(index) for leaf, index in self.leaves(start, stop)]
        return np.concatenate(parts) if parts else np.zeros((0, self.cols), np.float32)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The distinct formats of all leaves, by name."""
        return tuple(dict.fromkeys(leaf.kind for leaf in self.parts))

    @property
    @abstractmethod
    def parts(self) -> tuple[Leaf, ...]:
        """All leaves, each once."""


class Leaf(Rows):
    """Rows of one tensor."""

    kind: str  # dtype, or name of an int format

    @property
    def parts(self) -> tuple[Leaf, ...]:
        return (self,)

    def leaves(self, start: int, stop: int) -> Iterator[tuple[Leaf, Index]]:
        yield self, np.arange(start, stop)

    @abstractmethod
    def take(self, index: Index) -> Floats:
        """Those rows decoded: float32 (len(index), cols)."""


def _select(a: npt.NDArray[Any], index: Index) -> npt.NDArray[Any]:
    """a[index], as a view where the rows follow each other."""
    if len(index) and index[-1] - index[0] == len(index) - 1 and np.all(np.diff(index) == 1):
        return a[index[0] : index[-1] + 1]
    return a[index]


class Plain(Leaf):
    """A tensor of F64, F32, F16 or BF16 values as rows of its last axis."""

    def __init__(self, stored: Stored) -> None:
        if stored.dtype not in PLAIN:
            raise stored.fail(f"dtype {stored.dtype} without scales is not supported; expected "
                              f"{', '.join(PLAIN)}, or U8 with {stored.name}.qs")  # fmt: skip
        self.stored, self.kind = stored, stored.dtype
        self.cols = stored.shape[-1] if stored.shape else 1
        self.rows = stored.elems // self.cols if self.cols else 0

    def take(self, index: Index) -> Floats:
        raw = _select(self.stored.raw().reshape(self.rows, -1), index)
        flat = np.ascontiguousarray(raw).reshape(-1)
        if self.kind == "BF16":
            values = int_codec.bf16(flat)
        else:
            dtype = {"F64": np.float64, "F32": np.float32, "F16": np.float16}[self.kind]
            values = flat.view(dtype).astype(np.float32)
        return values.reshape(len(index), self.cols)


class Packed(Leaf):
    """A matrix in an int format: packed bytes and scales of two stored tensors."""

    def __init__(
        self, weights: Stored, scales: Stored, what: IntKind, rows: int, cols: int
    ) -> None:
        self.weights, self.scales_at, self.what = weights, scales, what
        self.rows, self.cols, self.kind = rows, cols, what.name

    def packed(self, index: Index) -> Bytes:
        """Packed bytes (n, row_bytes)."""
        raw = self.weights.raw().reshape(self.rows, int_codec.row_bytes(self.what, self.cols))
        return _select(raw, index)

    def scales(self, index: Index) -> Floats:
        """Scales (n, …) of those rows, as int_codec.dequantize takes them."""
        if self.what.name == "e8-iq3-lattice":
            return np.zeros((len(index), 0), np.float32)
        raw = self.scales_at.raw()
        if self.what.name == FP8.name:
            table = self._decoded(raw).reshape(up(self.rows, FP8_BLOCK), -1)
            out: Floats = table[index // FP8_BLOCK]
            return out
        return self._decoded(_select(raw.reshape(self.rows, -1), index)).reshape(len(index), -1)

    def _decoded(self, raw: Bytes) -> Floats:
        """Scales as float32, in the shape of nothing in particular."""
        if self.scales_at.dtype in E8M0:
            return int_codec.e8m0(raw)
        flat = np.ascontiguousarray(raw).reshape(-1)
        if self.scales_at.dtype == "BF16":
            return int_codec.bf16(flat)
        dtype = np.float16 if self.scales_at.dtype == "F16" else np.float32
        return flat.view(dtype).astype(np.float32)

    def take(self, index: Index) -> Floats:
        packed, scales = self.packed(index), self.scales(index)
        return int_codec.dequantize(self.what, packed, scales, self.cols)


class Computed(Leaf):
    """Rows that follow from others: `function(index)` gives float32 (len(index), cols). `kind` is
    the float format that is exact enough for them."""

    def __init__(
        self, rows: int, cols: int, function: Callable[[Index], Floats], kind: str = "F32"
    ) -> None:
        self.rows, self.cols, self.kind, self._function = rows, cols, kind, function

    def take(self, index: Index) -> Floats:
        return self._function(index)


class Gathered(Rows):
    """Rows of another matrix in another order: row i is row index[i]."""

    def __init__(self, base: Rows, index: Index) -> None:
        self.base, self.index = base, index
        self.rows, self.cols = len(index), base.cols

    @property
    def parts(self) -> tuple[Leaf, ...]:
        return self.base.parts

    def leaves(self, start: int, stop: int) -> Iterator[tuple[Leaf, Index]]:
        if not isinstance(self.base, Leaf):
            raise TypeError("rows of a single tensor are gathered, not of several")
        yield self.base, self.index[start:stop]


@dataclass(frozen=True)
class _Span:
    start: int
    rows: Rows


class Joined(Rows):
    """Matrices of one width, one after another."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.cols, self.rows = parts[0].cols, 0
        self._spans: list[_Span] = []
        for part in parts:
            self._spans.append(_Span(self.rows, part))
            self.rows += part.rows

    @property
    def parts(self) -> tuple[Leaf, ...]:
        return tuple(leaf for span in self._spans for leaf in span.rows.parts)

    def leaves(self, start: int, stop: int) -> Iterator[tuple[Leaf, Index]]:
        for span in self._spans:
            first, last = max(start, span.start), min(stop, span.start + span.rows.rows)
            if first < last:
                yield from span.rows.leaves(first - span.start, last - span.start)
