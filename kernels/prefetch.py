"""prefetch: the start of a weight brought into the device's cache beside other dispatches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import random_matrix, step_words

SECTOR = 8  # words: the least that GPUs read from memory
EACH = 8  # reads of an invocation


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """All reads at once."""
    size = limits.workgroup(256)
    grid = (-(-int(params["count"]) // (size * EACH * SECTOR)), 1, 1)
    return Launch("", (size, SECTOR, EACH), grid)


def reference(w: Matrix, sink: Array, step: Array, *, count: int) -> None:
    """Nothing that anybody reads."""


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Whole rounds, the start of a weight, a few words."""
    for rows, count in ((256, 256 * 128), (64, 5000), (16, 9)):
        ops: dict[str, Array | Matrix] = {
            "w": random_matrix(rng, "F32", rows, 128), "sink": np.zeros(4, np.uint32),
            "step": step_words(1, 3),
        }  # fmt: skip
        yield Case(f"{count} words", ops, {"count": count}, exact=True)


KERNEL = Kernel("prefetch", launch, reference, cases)
