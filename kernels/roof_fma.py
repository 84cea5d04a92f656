"""roof_fma: the rate of float32 multiply-adds (bench --roof)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .kernel import Array, Case, Kernel
from .roof_read import launch

CHAINS, STEPS = 8, 16  # per invocation; steps per round
OPS = 2 * CHAINS * STEPS  # operations of an invocation per round


def reference(y: Array, *, threads: int, rounds: int, factor: float, term: float) -> None:
    """y[t] = sum of the chains a' = a · factor + term that start at t % 16 + k."""
    start = np.arange(threads)[:, None] % 16 + np.arange(CHAINS)
    a = start.astype(np.float32)
    for _ in range(STEPS * rounds):
        a = a * np.float32(factor) + np.float32(term)
    y[:threads] = a.sum(axis=1)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Chains that converge, and ones that stay as they are."""
    for rounds, factor, term in ((3, 0.5, 1.0), (1, 0.875, -3.0)):
        params = {"threads": 300, "rounds": rounds, "factor": factor, "term": term}
        yield Case(f"{rounds} rounds", {"y": np.zeros(300, np.float32)}, params)


KERNEL = Kernel("roof_fma", launch, reference, cases)
