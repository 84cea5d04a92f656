"""mla_values: splits of latent attention joined, times each head's rows of v_b."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .matvec_launch import ALL_FORMATS, FEW_PLAIN
from .mla import ALL, MIN_SPLIT, parts, split_length
from .mla_query import whole
from .reference import Floats, random_matrix, step_words


def launch_as(
    ops: Mapping[str, Shaped], params: Params, limits: Limits, multiple: int
) -> Launch:
    """PARTS workgroups per head, each of a multiple of `multiple` rows."""
    heads, rows, splits = (int(params[name]) for name in ("heads", "rows", "splits"))
    rank, size = ops["w"].cols, limits.workgroup(256)
    share = parts(heads, rows, limits, multiple)
    lanes = 8
    while lanes > 1 and (
        lanes > rank // 32 or 4 * (rank + 2 * splits + lanes * rows // share) > limits.shared_bytes
    ):
        lanes //= 2
    least = int(params.get("least", MIN_SPLIT))
    spec = (size, share, rank, lanes, rows // share, splits, least)
    return Launch(ops["w"].format_name, spec, (heads * share, 1, 1))


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """PARTS workgroups per head."""
    return launch_as(ops, params, limits, 4)


def joined(
    part: Array, step: Array, splits: int, most: int, rank: int, least: int = MIN_SPLIT
) -> Floats:
    """The heads' sums of latents (heads, rank) from those of the splits."""
    length = min(int(step[words.POS]) + 1, most)
    used = -(-length // split_length(length, splits, least))
    best = part[:, :used, rank]
    shrink = np.exp(best - best.max(axis=1, keepdims=True))
    total = (part[:, :used, rank + 1] * shrink).sum(axis=1, keepdims=True)
    latent: Floats = np.einsum("hs,hsr->hr", shrink, part[:, :used, :rank]) / total
    return latent


def values(
    part: Array, w: Any, step: Array, rows: int, splits: int, heads: int, most: int,
    least: int = MIN_SPLIT,
) -> Floats:
    """The heads' values (heads * rows,)."""
    rank = w.cols
    latent = joined(part, step, splits, most, rank, least)
    out = np.einsum("hvr,hr->hv", whole(w).reshape(heads, rows, rank), latent)
    return np.asarray(out, np.float32).reshape(-1)


def reference(
    part: Array, w: Matrix, y: Array, step: Array, *,
    rows: int, splits: int, heads: int, most: int, rank: int, least: int = MIN_SPLIT,
) -> None:
    """y[0] (heads, rows) from part (heads, splits, rank + 2); w (heads * rows, rank)."""
    y[0] = values(part, w, step, rows, splits, heads, most, least)


def case_operands(
    rng: np.random.Generator, fmt: str, i: int
) -> tuple[str, dict[str, Any], dict[str, int | float]]:
    """Name, operands and params of case i: one split and several, the last ones unused."""
    heads, rows, rank, splits, pos = (
        (2, 64, 256, 4, 7), (5, 32, 512, 8, 100), (20, 256, 512, 33, 600),
    )[i % 3]  # fmt: skip
    part = rng.standard_normal((heads, splits, rank + 2)).astype(np.float32)
    part[:, :, rank + 1] = rng.uniform(1, 9, (heads, splits))
    seen = min(pos + 1, ALL if i % 2 else 90)
    part[:, -(-seen // split_length(seen, splits)) :] = np.nan
    ops: dict[str, Any] = {
        "part": part, "w": random_matrix(rng, fmt, heads * rows, rank, rank**-0.5),
        "step": step_words(1, pos),
    }  # fmt: skip
    params: dict[str, int | float] = {
        "rows": rows, "splits": splits, "heads": heads, "most": ALL if i % 2 else 90,
        "rank": rank,
    }  # fmt: skip
    return f"{fmt} {heads} heads {rows}x{rank} pos={pos}", ops, params


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format once."""
    for i, fmt in enumerate((*ALL_FORMATS, *FEW_PLAIN)):
        name, ops, params = case_operands(rng, fmt, i)
        ops["y"] = np.zeros((1, int(params["heads"] * params["rows"])), np.float32)
        yield Case(name, ops, params)


KERNEL = Kernel("mla_values", launch, reference, cases)
