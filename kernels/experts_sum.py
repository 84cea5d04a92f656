"""experts_sum: the weighted results of the experts of a batch into the residual stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .experts_rows import batches, pick
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .routing import unpack


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Four values per invocation, tokens along y."""
    vectors = int(params["cols"]) // 4
    size = limits.workgroup(min(256, max(32, vectors)))
    return Launch("", (size,), (-(-vectors // size), rows, 1))


def run(
    x: Array, route: Array, place: Array, y: Array, step: Array, bias: Array | None,
    cols: int, slots: int,
) -> None:
    """The reference with and without biases (experts, cols)."""
    n = int(step[words.N])
    ids, weights = unpack(route[:n])
    rows = place[: n * slots].reshape(n, slots)
    for token in range(n):
        for slot in np.flatnonzero(ids[token] >= 0):
            out = x[rows[token, slot], :cols]
            if bias is not None:
                out = out + bias[ids[token, slot]]
            y[token, :cols] += weights[token, slot] * out


def reference(
    x: Array, route: Array, place: Array, y: Array, step: Array, *, cols: int, slots: int
) -> None:
    """y[token] += sum over slots of weight * x[row of the pair]; x (rows, cols)."""
    run(x, route, place, y, step, None, cols, slots)


def case_operands(rng: np.random.Generator, ops: dict[str, Any], n: int, slots: int, cols: int) -> (
    dict[str, Any]
):
    """x, y and the route of a batch."""
    chosen = pick(ops, "route", "place")
    chosen["x"] = rng.standard_normal(((n + 1) * slots, cols)).astype(np.float32)
    chosen["y"] = rng.standard_normal((n + 1, cols)).astype(np.float32)
    return chosen


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Full and empty slots."""
    for name, n, experts, slots, ops in batches(rng):
        cols = 20 * experts
        chosen = case_operands(rng, ops, n, slots, cols)
        yield Case(name, chosen, {"cols": cols, "slots": slots}, rows=n + 1)


KERNEL = Kernel("experts_sum", launch, reference, cases)
