"""experts_gather: rows of a batch, in any form, copied into the order of their experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from .experts_rows import batches, launch_rows, pick
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per row."""
    return launch_rows(params, rows, int(params["slots"]), int(params["words"]) // 4, limits)


def reference(
    x: Array, start: Array, order: Array, y: Array, step: Array, *,
    words: int, slots: int, experts: int,
) -> None:
    """y[row] = x[token of the row]; rows of `words` words, a multiple of 4."""
    count = int(start[experts])
    y[:count] = x[order[:count] // slots]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Rows of few and of many words."""
    for name, n, experts, slots, ops in batches(rng):
        words = 64 * experts
        chosen = pick(ops, "start", "order")
        chosen["x"] = rng.integers(0, 1 << 32, (n + 1, words), dtype=np.uint32)
        chosen["y"] = np.zeros(((n + 1) * slots, words), np.uint32)
        only = {"y": np.arange((n + 1) * slots)[:, None].repeat(words, 1) < ops["start"][-1]}
        params = {"words": words, "slots": slots, "experts": experts}
        yield Case(name, chosen, params, rows=n + 1, only=only)


KERNEL = Kernel("experts_gather", launch, reference, cases)
