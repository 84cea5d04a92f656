"""mla_expand_q8: splits of latent attention joined, in int8 times v_b, the result in int8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from . import q8
from .experts import rows_of
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .mla import MIN_SPLIT
from .mla_values import case_operands, joined
from .settled import settled


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Workgroups of whole groups of 16 rows of one head, enough for all units."""
    heads, count, splits = (int(params[name]) for name in ("heads", "rows", "splits"))
    rank, subgroup = ops["w"].cols, limits.subgroup_size
    size, lanes = limits.workgroup(256, subgroup), subgroup
    while lanes > 1 and lanes > rank // 32:
        lanes //= 2
    per = 1
    while size // lanes * per % q8.GROUP:
        per *= 2
    while per < 4 and heads * count >= 2 * limits.units * (size // lanes * per):
        per *= 2
    parts, least = -(-count // (size // lanes * per)), int(params.get("least", MIN_SPLIT))
    spec = (size, parts, rank, lanes, per, subgroup, least, splits)
    return Launch(ops["w"].format_name, spec, (heads * parts, 1, 1), subgroup)


def reference(
    part: Array, w: Matrix, yq: Array, ys: Array, step: Array, *,
    rows: int, splits: int, heads: int, most: int, rank: int, least: int = MIN_SPLIT,
) -> None:
    """yq, ys = q8 of the heads' values; part (heads, splits, rank + 2), w (heads * rows, rank)."""
    latent = joined(part, step, splits, most, rank, least).astype(np.float32)
    out = [
        rows_of(w, i * rows, rows) @ q8.values(*q8.quantize(x)) for i, x in enumerate(latent)
    ]
    yq[:], ys[:] = q8.quantize(np.concatenate(out))


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every quantized format once; splits of 16 positions and of more."""
    for i, fmt in enumerate(q8.FORMATS):
        yield settled(partial(_case, rng, fmt, i), reference)


def _case(rng: np.random.Generator, fmt: str, i: int) -> Case:
    name, ops, params = case_operands(rng, fmt, i)
    n = int(params["heads"] * params["rows"])
    ops |= {"yq": np.zeros(n // 4, np.uint32), "ys": np.zeros((n // 16, 2), np.float32)}
    return Case(name, ops, params, limit=2e-5, int8=frozenset({"yq"}))


KERNEL = Kernel("mla_expand_q8", launch, reference, cases, needs=q8.needs)
