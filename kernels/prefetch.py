"""prefetch: the starts of weights brought into the device's cache beside other dispatches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, step_words

SECTOR = 8  # words: the least that GPUs read from memory
EACH = 8  # reads of an invocation
NAMES = ("a", "b", "c", "d")


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """All reads at once; a workgroup reads of one weight."""
    size = limits.workgroup(256)
    groups = sum(-(-int(params[f"{n}_count"]) // (size * EACH * SECTOR)) for n in NAMES)
    return Launch("", (size, SECTOR, EACH), (groups, 1, 1))


def reference(
    a: Matrix, b: Matrix, c: Matrix, d: Matrix, sink: Array, step: Array, *, a_count: int,
    b_count: int, c_count: int, d_count: int,
) -> None:
    """Nothing that anybody reads."""


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Whole rounds, the start of a weight, a few words; fewer than four weights."""
    for counts in ((256 * 128, 64 * 128, 9, 2048), (5000, 0, 0, 0), (7, 16 * 128, 0, 0)):
        ops: dict[str, Array | Matrix] = {
            n: random_matrix(rng, "F32", -(-max(count, 1) // 128), 128)
            for n, count in zip(NAMES, counts, strict=True)
        }
        ops |= {"sink": np.zeros(4, np.uint32), "step": step_words(1, 3)}
        params = {f"{n}_count": count for n, count in zip(NAMES, counts, strict=True)}
        yield Case(f"{counts} words", ops, params, exact=True)


KERNEL = Kernel("prefetch", launch, reference, cases)
