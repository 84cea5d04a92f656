"""roof_copy: the bandwidth of reading and writing (bench --roof)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .kernel import Array, Case, Kernel
from .roof_read import launch


def reference(x: Array, y: Array, *, count: int, threads: int) -> None:
    """y = x; uint32 (4 count,)."""
    y[: 4 * count] = x[: 4 * count]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Whole rounds, ragged ends."""
    for count, threads in ((4096, 64), (1001, 37)):
        x = rng.integers(0, 1 << 32, 4 * count, dtype=np.uint32)
        ops = {"x": x, "y": np.zeros(4 * count, np.uint32)}
        yield Case(f"{count} vectors by {threads}", ops, {"count": count, "threads": threads})


KERNEL = Kernel("roof_copy", launch, reference, cases)
