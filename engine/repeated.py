"""Large weights for checks, without the time that large random weights take."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from .blocks import Bytes, Floats, Matrix


class Repeated(Matrix):
    """Rows `index` (rows,) of `base`: as large as a model's, decoded in a fraction of the time.

    Its bytes are made when someone reads `raw`, which the way to a device does without.
    """

    base: Matrix
    index: Any

    def __init__(self, base: Matrix, index: Any) -> None:
        for name, value in (
            ("fmt", base.fmt), ("rows", len(index)), ("cols", base.cols), ("base", base),
            ("index", index),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @cached_property
    def raw(self) -> Bytes:
        """uint8 (rows, row bytes)."""
        rows: Bytes = self.base.raw[self.index]
        return rows

    @cached_property
    def _decoded(self) -> Floats:
        return self.base.dequantize()

    def part(self, start: int, stop: int) -> Matrix:
        """Rows [start, stop)."""
        return Repeated(self.base, self.index[start:stop])

    def dequantize(self, start: int = 0, stop: int | None = None) -> Floats:
        """Rows [start, stop) as float32 (rows, cols)."""
        rows: Floats = self._decoded[self.index[start:stop]]
        return rows

    def times(self, x: Floats, start: int, stop: int) -> Floats:
        """x (n, cols) times the transposed rows [start, stop): (n, stop - start)."""
        last = self.__dict__.get("_last")
        # decoded rows that are copied cross memory three times, all rows of the base once
        if not (last and last[0] is x) and self.base.rows > 3 * (stop - start):
            return x @ self.dequantize(start, stop).T
        if not (last and last[0] is x):
            last = self.__dict__["_last"] = x, self._decoded @ x.T
        out: Floats = last[1][self.index[start:stop]].T
        return out

    def forget(self) -> None:
        """Drop decoded values, products and bytes."""
        for name in ("_decoded", "_last", "raw"):
            self.__dict__.pop(name, None)
