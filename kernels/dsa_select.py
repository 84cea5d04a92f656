"""dsa_select: the positions with the best scores, for each token of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .dsa import select
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .reference import step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per token."""
    return Launch("", (limits.workgroup(256),), (rows, 1, 1))


def reference(score: Array, chosen: Array, step: Array, *, most: int, positions: int) -> None:
    """chosen[i] (most,) from score[i, : pos + i + 1], where there are more than `most`."""
    n, pos = int(step[words.N]), int(step[words.POS])
    for i in range(n):
        if pos + i + 1 > most:
            chosen[i] = select(score[i, : pos + i + 1], most)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Few and many positions, scores of both signs, equal scores, exactly as many as wanted."""
    for n, pos, most in ((3, 10, 12), (2, 700, 64), (2, 3000, 2048), (1, 50, 1)):
        score: Any = rng.standard_normal((n + 1, pos + n + 1)).astype(np.float32)
        score[0] = np.round(score[0])
        chosen = np.zeros((n + 1, most), np.uint32)
        only = {"chosen": np.arange(n + 1)[:, None].repeat(most, 1) + pos + 1 > most}
        only["chosen"][n:] = False
        ops = {"score": score, "chosen": chosen, "step": step_words(n, pos)}
        params = {"most": most, "positions": score.shape[1]}
        yield Case(f"n={n} {most} of {pos}", ops, params, rows=n + 1, only=only)


KERNEL = Kernel("dsa_select", launch, reference, cases)
