"""fill: words of a buffer set to one value (state cleared, outputs poisoned)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .matvec_launch import grid_2d


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One invocation per word."""
    size = limits.workgroup(256)
    return Launch("", (size,), grid_2d(-(-int(params["count"]) // size), limits))


def reference(dst: Array, *, word: int, count: int, value: int) -> None:
    """dst[word : word + count] = value; dst uint32."""
    dst[word : word + count] = value


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """The middle of a buffer, and nothing else of it."""
    for size, word, count in ((1000, 0, 1000), (1000, 3, 700), (5, 4, 1)):
        dst = rng.integers(0, 1 << 32, size, dtype=np.uint32)
        params = {"word": word, "count": count, "value": 0xFFC0DEAD}
        yield Case(f"{count} of {size} words", {"dst": dst}, params, exact=True)


KERNEL = Kernel("fill", launch, reference, cases)
