"""Large weights for checks, without the time that large random weights take."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .blocks import Floats, Matrix


@dataclass(frozen=True)
class Repeated(Matrix):
    """Rows drawn from the rows of `base`: as large as a model's, decoded in a fraction of the
    time."""

    base: Matrix
    index: Any  # (rows,)

    @cached_property
    def _decoded(self) -> Floats:
        return self.base.dequantize()

    def dequantize(self, start: int = 0, stop: int | None = None) -> Floats:
        """Rows [start, stop) as float32 (rows, cols)."""
        rows: Floats = self._decoded[self.index[start:stop]]
        return rows

    def times(self, x: Floats, start: int, stop: int) -> Floats:
        """x (n, cols) times the transposed rows [start, stop): (n, stop - start)."""
        if self.base.rows > stop - start:
            return x @ self.dequantize(start, stop).T
        out: Floats = (self._decoded @ x.T)[self.index[start:stop]].T
        return out
