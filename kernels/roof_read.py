"""roof_read: the read bandwidth of a device (bench --roof)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .matvec_launch import grid_2d


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """`threads` invocations."""
    size = limits.workgroup(256)
    return Launch("", (size,), grid_2d(-(-int(params["threads"]) // size), limits))


def reference(x: Array, y: Array, *, count: int, threads: int) -> None:
    """y[t] = exclusive or of the words of vectors t, t + threads, …; x uint32 (4 count,)."""
    words = np.bitwise_xor.reduce(x[: 4 * count].reshape(count, 4), axis=1)
    for t in range(threads):
        y[t] = np.bitwise_xor.reduce(words[t::threads], initial=0)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Whole rounds, ragged ends, fewer vectors than invocations."""
    for count, threads in ((4096, 64), (1001, 37), (20, 50)):
        x = rng.integers(0, 1 << 32, 4 * count, dtype=np.uint32)
        ops = {"x": x, "y": np.zeros(threads, np.uint32)}
        yield Case(f"{count} vectors by {threads}", ops, {"count": count, "threads": threads})


KERNEL = Kernel("roof_read", launch, reference, cases)
