"""What `validate` checks beyond each kernel's own cases: primitives in shapes that models have.

A primitive is something a model asks for (a product, a token's experts, a norm), with one limit
and the reason for it; its checks run it in the weight formats and forms that the kernels have.
Checks are made one at a time, so that one weight is in memory, not all.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels.kernel import Kernel
from ..kernels.limits import Limits
from ..kernels.reference import random_matrix
from .blocks import FORMATS, Matrix
from .harness_chain import Chain
from .repeated import Repeated

ROUNDED = 1e-2  # of outputs in int8: one of 127 steps, where a value lies between two of them
DISTINCT = 16  # a large weight has a sixteenth of its rows, each in many places
MOST_ROWS = 2048  # and no more than these


@dataclass(frozen=True)
class Limit:
    """The largest error by `measure`: "max rel" (of the largest value), "NMSE", or "exact"."""

    measure: str
    value: float
    reason: str

    def __str__(self) -> str:
        return "exact" if self.measure == "exact" else f"{self.value:.0e} {self.measure}"


Make = Callable[[np.random.Generator], Chain]
Suits = Callable[[Limits], bool]


def anywhere(limits: Limits) -> bool:
    """The `Suits` of checks whose sizes every device takes."""
    return True


@dataclass(frozen=True)
class Check:
    """One case: `make(rng)` gives operands and dispatches. `timed`: `--bench` runs it unasked;
    `issued`: also as several submits in flight; `suits`: whether its sizes fit a device."""

    name: str
    kernels: tuple[Kernel, ...]
    make: Make
    timed: bool = False
    issued: bool = False
    suits: Suits = anywhere

    @property
    def results(self) -> int:
        """How many results it has."""
        return 2 if self.issued else 1

    def chain(self, seed: int, primitive: str) -> Chain:
        """The inputs that belong to a seed, whatever else is checked."""
        key = zlib.crc32(f"{primitive} {self.name}".encode())
        return self.make(np.random.default_rng([seed, key]))


@dataclass(frozen=True)
class Primitive:
    """`checks(room)`: `room` is the largest weight in bytes that one binding takes."""

    name: str
    title: str
    limit: Limit
    checks: Callable[[int], Iterator[Check]]


def weight(rng: np.random.Generator, fmt: str, rows: int, cols: int) -> Matrix:
    """Random weights whose products with normal vectors are about normal."""
    if rows <= 16 * DISTINCT or rows * cols < 1 << 20:
        return random_matrix(rng, fmt, rows, cols, cols**-0.5)
    own = min(max(rows // DISTINCT, 64), MOST_ROWS)
    base = random_matrix(rng, fmt, own, cols, cols**-0.5)
    index = rng.integers(base.rows, size=rows)
    return Repeated(base, index)


def normal(rng: np.random.Generator, *shape: int) -> Any:
    """Normal float32 values."""
    return rng.standard_normal(shape, dtype=np.float32)


def formats_of(kernel: Kernel) -> list[str]:
    """Weight formats that a kernel is built for, in the order of FORMATS."""
    built = {part for build in kernel.interface.builds for part in build.split(".")}
    return [name for name in FORMATS if name in built]


def fitting_rows(fmt: str, rows: int, cols: int, room: int) -> int:
    """`rows`, or as many as a binding takes: models split their weights the same way."""
    most = room // (FORMATS[fmt].row_bytes(cols) + 4) // 64 * 64
    return min(rows, most)


def ragged(fmt: str, cols: int) -> int:
    """A width near `cols` that is an odd number of the format's blocks and of 32 values."""
    unit = max(32, FORMATS[fmt].elems)
    return (cols // unit | 1) * unit


def all_primitives() -> list[Primitive]:
    """Every primitive, in the order of a token's way."""
    from . import (
        primitives_attention,
        primitives_experts,
        primitives_latent_token,
        primitives_products,
        primitives_rest,
        primitives_rotation,
    )

    return [
        *primitives_products.PRIMITIVES, *primitives_experts.PRIMITIVES,
        *primitives_latent_token.PRIMITIVES, *primitives_rotation.PRIMITIVES,
        *primitives_attention.PRIMITIVES, *primitives_rest.PRIMITIVES,
    ]  # fmt: skip
