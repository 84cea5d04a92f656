"""Weight operands of plans: matrices of one format stacked, those too large for a binding split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .blocks import FORMATS, Floats, Matrix
from .container import Container
from .plan import Weight

CHUNK = 32  # columns that a kernel takes at a time: every row length is a multiple


class Weights:
    """Weight operands by name, made once: stacks of equal formats, split where too large."""

    def __init__(
        self, container: Container, binding_bytes: int, scales: Mapping[str, float] | None = None
    ) -> None:
        # less what planes may add to the bytes of a file (engine/blocks.py): a pad, a codebook
        self._container, self._limit = container, binding_bytes - binding_bytes // 32 - (1 << 16)
        self._scales = scales or {}
        self._made: dict[str, Weight] = {}
        self._matrices: dict[str, Matrix] = {}

    def matrix(self, name: str, *shape: int) -> Matrix:
        """The named tensor as rows of its last axis; row lengths that the kernels cannot take are
        refused."""
        if name not in self._matrices:
            m = self._container.matrix(name, *shape)
            if shape[-1] % CHUNK:
                raise self._container.fail(name, f"has rows of {shape[-1]} values, which is no "
                                                 f"multiple of {CHUNK}")  # fmt: skip
            self._matrices[name] = m
        return self._matrices[name]

    def stack(self, name: str, parts: Sequence[Matrix]) -> Weight:
        """Matrices that the caller has put together, under a name of their own."""
        return self._weight(name, tuple(parts))

    def table(self, name: str, make: Callable[[Container], Floats]) -> Weight:
        """A float32 table (rows, cols) made from tensors of the container, under a new name."""

        def matrix(c: Container) -> Matrix:
            raw = np.ascontiguousarray(make(c), np.float32)
            return Matrix.of(FORMATS["F32"], raw.view(np.uint8).reshape(-1), raw.shape[-1])

        return self.made(name, matrix)

    def made(self, name: str, make: Callable[[Container], Matrix]) -> Weight:
        """A matrix made from tensors of the container, under a new name."""
        if name not in self._made:
            self._weight(name, (make(self._container),))
        return self._made[name]

    def _weight(self, name: str, parts: tuple[Matrix, ...]) -> Weight:
        return self._made.setdefault(name, Weight(name, parts))

    def vector(self, name: str, n: int) -> Weight:
        """A norm's gain as one float32 row, times its factor in `scales`; ones without a name."""
        if not name:
            return self.ones(n)
        if name not in self._made:
            scale = np.float32(self._scales.get(name, 1.0))
            self._row(name, self._container.vector(name, n) * scale)
        return self._made[name]

    def _row(self, name: str, values: npt.NDArray[np.float32]) -> Weight:
        return self._weight(name, (Matrix.of(FORMATS["F32"], values.view(np.uint8), len(values)),))

    @property
    def path(self) -> Path:
        """The model, for messages."""
        return self._container.path

    @property
    def limit(self) -> int:
        """Bytes of the largest weight."""
        return self._limit

    def fits(self, *parts: Matrix) -> bool:
        """Whether the parts can be one binding."""
        return sum(m.nbytes for m in parts) <= self._limit

    def rows(self, names: Sequence[str], rows: Sequence[int], cols: int) -> Iterator[
        tuple[Weight, int]
    ]:
        """The named matrices as (weight, first output row): one stack per run of one format."""
        mats = [(n, self.matrix(n, r, cols)) for n, r in zip(names, rows, strict=True)]
        first = 0
        for _, run in groupby(mats, key=lambda item: item[1].fmt.name):
            group = list(run)
            if self.fits(*(m for _, m in group)):
                yield self._weight("|".join(n for n, _ in group), tuple(m for _, m in group)), first
            else:
                yield from self._split(group, first)
            first += sum(m.rows for _, m in group)

    def _split(self, group: list[tuple[str, Matrix]], first: int) -> Iterator[tuple[Weight, int]]:
        for name, m in group:
            most = max(1, self._limit // m.fmt.row_bytes(m.cols))
            for start in range(0, m.rows, most):
                part = m.part(start, min(start + most, m.rows))
                yield self._weight(f"{name}[{start}:]", (part,)), first + start
            first += m.rows

    def vectors(self, names: Sequence[str], sizes: Sequence[int]) -> Weight:
        """Vectors one behind the other as one float32 row; zeros for those without a name."""
        key = "|".join(n or f"zeros({size})" for n, size in zip(names, sizes, strict=True))
        if key not in self._made:
            parts = [
                self._container.vector(n, size) if n else np.zeros(size, np.float32)
                for n, size in zip(names, sizes, strict=True)
            ]
            self._row(key, np.concatenate(parts))
        return self._made[key]

    def ones(self, n: int) -> Weight:
        """A gain that changes nothing."""
        return self._row(f"ones({n})", np.ones(n, np.float32))

    def padded(self, name: str, rows: int, cols: int) -> Weight:
        """A matrix of few rows or columns, with zeros up to multiples of 32 in both."""
        m = self._container.matrix(name, rows, cols)
        more, wide = -rows % CHUNK, -cols % CHUNK
        if not (more or wide):
            return self._weight(name, (m,))
        values = np.pad(m.dequantize(), ((0, more), (0, wide)))
        raw = np.ascontiguousarray(values, np.float32).view(np.uint8)
        return self._weight(name, (Matrix.of(FORMATS["F32"], raw, cols + wide),))

    def scalar(self, name: str) -> float:
        """The only value of a tensor; it becomes part of the plan."""
        return float(self._container.vector(name, 1)[0])

    @property
    def all(self) -> tuple[Weight, ...]:
        """Every weight that the plans made so far use, once each."""
        return tuple(self._made.values())
