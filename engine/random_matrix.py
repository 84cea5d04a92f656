"""Random weights that need no bytes: known by name, shape and format, made where they are used.

A device fills their planes itself (engine/random_fill.py); whoever reads `raw` or values on the
host gets a piece of the model's random blocks, which are others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..kernels.random_blocks import set_scales
from .blocks import Bytes, Format, Matrix

SIZE = 0.02  # of weights
VALUES = {"F32": np.float32, "F16": np.float16}


def random_blocks(fmt: Format, count: int) -> Bytes:
    """Blocks of values of about SIZE, the same on every call: uint8 (count, bytes)."""
    rng = np.random.default_rng(abs(fmt.type_id))
    if fmt.name in VALUES:
        values = rng.normal(0, SIZE, count).astype(VALUES[fmt.name])
        return values.view(np.uint8).reshape(count, fmt.bytes)
    if fmt.name == "BF16":
        bits = rng.normal(0, SIZE, count).astype(np.float32).view(np.uint32) >> 16
        return bits.astype(np.uint16).view(np.uint8).reshape(count, fmt.bytes)
    blocks: Bytes = rng.integers(0, 256, (count, fmt.bytes), dtype=np.uint8)
    set_scales(rng, fmt, blocks, SIZE)
    return blocks


class RandomMatrix(Matrix):
    """Rows of a random tensor, from block `first` of it on. `label` names the tensor.

    `source()` gives the bytes of all of the tensor's rows, for the host.
    """

    label: str
    first: int
    _source: Callable[[], Bytes]
    _made: list[Bytes]

    def __init__(
        self, fmt: Format, rows: int, cols: int, label: str, source: Callable[[], Bytes],
        first: int = 0,
    ) -> None:  # fmt: skip
        for name, value in (
            ("fmt", fmt), ("rows", rows), ("cols", cols), ("label", label), ("_source", source),
            ("first", first), ("_made", []),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.rows * self.cols // self.fmt.elems

    @property
    def raw(self) -> Bytes:
        """uint8 (rows, row bytes) for the host, kept until `forget`."""
        if not self._made:
            start = self.first * self.fmt.bytes
            self._made.append(self._source()[start : start + self.nbytes].reshape(self.rows, -1))
        return self._made[0]

    def part(self, start: int, stop: int) -> Matrix:
        """Rows [start, stop)."""
        rows = min(stop, self.rows) - start
        first = self.first + start * self.cols // self.fmt.elems
        return RandomMatrix(self.fmt, rows, self.cols, self.label, self._source, first)

    def columns(self, first: int, count: int) -> Matrix:
        """Columns [first, first + count), random weights of their own."""
        return RandomMatrix(
            self.fmt, self.rows, count, f"{self.label}[:, {first}:]",
            lambda: super(RandomMatrix, self).columns(first, count).raw.reshape(-1),
        )  # fmt: skip

    def converted(self, fmt: Format) -> Matrix:
        """Random weights of float format `fmt`."""
        return RandomMatrix(
            fmt, self.rows, self.cols, f"{self.label} {fmt.name}",
            lambda: super(RandomMatrix, self).converted(fmt).raw.reshape(-1),
        )  # fmt: skip

    def forget(self) -> None:
        """Drop the bytes."""
        self._made.clear()
