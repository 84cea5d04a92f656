"""mla_attention_chosen: latent attention of one token over the positions that dsa_select chose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..engine import step as words
from .dsa import chosen_case, seen
from .kernel import Array, Case, Kernel
from .mla import MIN_SPLIT, split_length
from .mla_attention import launch, run
from .reference import step_words


def reference(
    q: Array, k: Array, part: Array, step: Array, chosen: Array, *,
    heads: int, rank: int, n_rot: int, splits: int, scale: float, most: int,
    least: int = MIN_SPLIT,
) -> None:
    """As mla_attention, over k[chosen[0]] where the token has more than `most` positions."""
    rows = seen(k, chosen[0], int(step[words.POS]) + 1, most)
    run(q, rows, part, heads, rank, n_rot, splits, scale, least)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Fewer positions than may be chosen, and more."""
    for pos, most in ((20, 64), (300, 40)):
        for dtype in (np.float16, np.float32):
            heads, rank, rot, splits = 4, 64, 32, 4
            used = -(-min(pos + 1, most) // split_length(min(pos + 1, most), splits))
            ops: dict[str, Any] = {
                "q": rng.standard_normal((1, heads * (rank + rot))).astype(np.float32),
                "k": rng.standard_normal((pos + 3, rank + rot)).astype(dtype),
                "part": np.zeros((heads, splits, rank + 2), np.float32),
                "step": step_words(1, pos), "chosen": chosen_case(rng, 1, pos, most),
            }  # fmt: skip
            written = np.zeros((heads, splits, rank + 2), bool)
            written[:, :used] = True
            params = {"heads": heads, "rank": rank, "n_rot": rot, "splits": splits, "scale": 0.07,
                      "most": most}  # fmt: skip
            yield Case(f"{most} of {pos + 1} {np.dtype(dtype).name}", ops, params,
                       only={"part": written})  # fmt: skip


KERNEL = Kernel("mla_attention_chosen", launch, reference, cases)
