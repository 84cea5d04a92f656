"""Rows of a batch in the order of their experts: what the kernels of expert batches share.

A pair is (token, slot), number token * slots + slot. A row is a pair in the sorted order: start
(experts + 1,) holds the first row of each expert and the number of rows, order the pair of each
row, place the row of each pair (or NOWHERE). Shared experts count as experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .kernel import Array, Launch, Params, Shaped
from .limits import Limits
from .matvec_launch import grid_2d
from .reference import step_words
from .routing import unpack

NOWHERE = 0xFFFFFFFF


def sort_pairs(route: Array, experts: int) -> tuple[Array, Array, Array]:
    """start, order and place for a route (n, slots, 2)."""
    ids = unpack(route)[0].reshape(-1)
    order = np.argsort(ids, kind="stable")[np.count_nonzero(ids < 0) :]
    start = np.searchsorted(ids[order], np.arange(experts + 1))
    place = np.full(len(ids), NOWHERE, np.uint32)
    place[order] = np.arange(len(order))
    return start.astype(np.uint32), order.astype(np.uint32), place


def launch_rows(params: Params, rows: int, slots: int, width: int, limits: Limits) -> Launch:
    """One workgroup for each possible row; `width`: what one invocation does not do alone."""
    size = limits.workgroup(min(256, max(32, width)), 4)
    return Launch("", (size,), grid_2d(rows * slots, limits))


def case_batch(
    rng: np.random.Generator, n: int, experts: int, slots: int, empty: int = 0
) -> dict[str, Any]:
    """route, start, order, place of a batch of n tokens in buffers for one more; `empty` slots of
    each token are free and some experts have no token."""
    route = np.zeros((n + 1, slots, 2), np.float32)
    usable = max(slots, experts - 1)
    for row in route:
        row[:, 0] = rng.permutation(usable)[:slots] if usable <= experts else range(slots)
        row[:, 1] = rng.uniform(0.1, 1, slots)
        row[slots - empty :] = (-1, 0)
    start, order, place = sort_pairs(route[:n], experts)
    pairs = (n + 1) * slots
    return {
        "route": route, "start": start, "order": np.resize(order, pairs),
        "place": np.resize(place, pairs), "step": step_words(n, 4),
    }  # fmt: skip


# (tokens, experts, slots, empty slots)
BATCHES = ((1, 4, 2, 0), (5, 9, 3, 1), (70, 6, 3, 0))


def batches(rng: np.random.Generator) -> Iterator[tuple[str, int, int, int, dict[str, Any]]]:
    """Name, tokens, experts, slots and operands of every batch."""
    for n, experts, slots, empty in BATCHES:
        ops = case_batch(rng, n, experts, slots, empty)
        yield f"n={n} {slots} of {experts} experts", n, experts, slots, ops


def pick(ops: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The operands that a kernel has."""
    return {name: ops[name] for name in (*names, "step")}


def slots_in(ops: Mapping[str, Shaped]) -> int:
    """Slots of a route (batch, slots, 2)."""
    return ops["route"].cols // 2
