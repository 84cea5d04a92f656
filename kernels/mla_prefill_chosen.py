"""mla_prefill_chosen: latent attention of a batch over the positions that dsa_select chose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .dsa import chosen_case, seen
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .mla import attend, cache_build, tile
from .reference import step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Tokens along x, groups of heads along y."""
    heads, rank, rot = (int(params[name]) for name in ("heads", "rank", "n_rot"))
    spec = tile(heads, rank, rot, ops["k"].format_name == "F16", limits)
    return Launch(cache_build(ops), spec, (rows, -(-heads // spec[1]), 1))


def reference(
    q: Array, k: Array, y: Array, step: Array, chosen: Array, *,
    heads: int, rank: int, n_rot: int, scale: float, most: int,
) -> None:
    """As mla_prefill, over k[chosen[i]] for tokens with more than `most` positions."""
    n, pos = int(step[words.N]), int(step[words.POS])
    for i in range(n):
        rows = seen(k, chosen[i], pos + i + 1, most).astype(np.float32)
        sums, _, total = attend(q[i].reshape(heads, rank + n_rot), rows, rank, scale)
        y[i] = (sums / total[:, None]).reshape(-1)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Tokens on both sides of the limit."""
    for dtype in (np.float16, np.float32):
        heads, rank, rot, n, pos, most = 4, 64, 32, 6, 17, 20
        ops: dict[str, Any] = {
            "q": rng.standard_normal((n, heads * (rank + rot))).astype(np.float32),
            "k": rng.standard_normal((pos + n + 2, rank + rot)).astype(dtype),
            "y": np.zeros((n, heads * rank), np.float32), "step": step_words(n, pos),
            "chosen": chosen_case(rng, n, pos, most),
        }  # fmt: skip
        params = {"heads": heads, "rank": rank, "n_rot": rot, "scale": 0.07, "most": most}
        yield Case(f"n={n} pos={pos} {most} chosen {np.dtype(dtype).name}", ops, params, rows=n)


KERNEL = Kernel("mla_prefill_chosen", launch, reference, cases)
