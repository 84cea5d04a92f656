"""experts_sort: the pairs (token, slot) of a batch in the order of their experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..engine import step as words
from .experts_rows import batches, case_batch, pick, slots_in, sort_pairs
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per expert."""
    experts, slots = int(params["experts"]), slots_in(ops)
    size = limits.workgroup(min(256, max(32, rows * slots)))
    return Launch("", (size, experts, slots), (experts, 1, 1))


def reference(
    route: Array, start: Array, order: Array, place: Array, step: Array, *, experts: int
) -> None:
    """start, order, place of the first n tokens of a route; see experts_rows.py."""
    n, slots = int(step[words.N]), route.shape[1]
    start[:], rows, place[: n * slots] = sort_pairs(route[:n], experts)
    order[: len(rows)] = rows


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Small batches, several pairs per invocation, many experts."""
    large = ("n=1200 8 of 260 experts", 1200, 260, 8, case_batch(rng, 1200, 260, 8, 1))
    for name, n, experts, slots, ops in (*batches(rng), large):
        rows = np.arange((n + 1) * slots)
        only = {"order": rows < ops["start"][-1], "place": rows < n * slots}
        chosen = pick(ops, "route", "start", "order", "place")
        yield Case(name, chosen, {"experts": experts}, rows=n + 1, only=only, exact=True)


KERNEL = Kernel("experts_sort", launch, reference, cases)
