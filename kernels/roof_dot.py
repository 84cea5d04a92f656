"""roof_dot: the rate of packed 8-bit dot products (bench --roof)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .kernel import Array, Case, Kernel
from .roof_fma import CHAINS, STEPS
from .roof_read import launch

OPS = 8 * CHAINS * STEPS  # four products and four sums per step and chain


def reference(y: Array, *, threads: int, rounds: int, factor: int) -> None:
    """y[t] = exclusive or of the chains a' = a · factor + a (bytes, modulo 2^32) from 8 t + k."""
    start = CHAINS * np.arange(threads, dtype=np.uint32)[:, None]
    a = start + np.arange(CHAINS, dtype=np.uint32)
    b = np.array([factor], np.uint32).view(np.int8).astype(np.int32)
    for _ in range(STEPS * rounds):
        parts = np.ascontiguousarray(a).view(np.int8).reshape(threads, CHAINS, 4)
        a = a + (parts.astype(np.int32) * b).sum(axis=2).astype(np.int32).view(np.uint32)
    y[:threads] = np.bitwise_xor.reduce(a, axis=1)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Factors of both signs."""
    for rounds, factor in ((2, 0x81FF7F03), (1, 0x0102FE80)):
        params = {"threads": 200, "rounds": rounds, "factor": factor}
        yield Case(f"{rounds} rounds", {"y": np.zeros(200, np.uint32)}, params)


KERNEL = Kernel("roof_dot", launch, reference, cases, needs=lambda limits: limits.int_dot)
