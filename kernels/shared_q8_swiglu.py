"""shared_q8_swiglu: gate, up and SiLU of the shared experts of a stack, which need no router."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from . import q8
from .experts import gate_tiling, launch_q8
from .experts_cases import swiglu_case
from .experts_q8_swiglu import run
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits

# (routed experts, shared ones, first of the stack, slots before, rows, cols)
SHAPES = ((4, 1, 0, 2, 32, 256), (3, 2, 2, 3, 96, 512))


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One expert's rows per workgroup."""
    chunks, shared = int(params["cols"]) // 32, int(params["taken"])
    return launch_q8(ops, params, limits, gate_tiling, shared, shared, chunks)


def reference(
    w: Matrix, xq: Array, xs: Array, ssq: Array, yq: Array, ys: Array, step: Array, *, cols: int,
    rows: int, eps: float, experts: int, first: int, routed: int, slot: int, taken: int,
) -> None:
    """yq, ys (slots, rows) from `slot` on: as experts_q8_swiglu of the experts routed … routed +
    taken. w: `experts` experts from number `first` on (experts.py)."""
    route = np.full((1, slot + taken, 2), -1, np.float32)
    route[0, slot:, 0] = routed + np.arange(taken)
    run(w, xq, xs, ssq, route, yq, ys, None, cols, rows, eps, experts, first)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format."""
    for i, fmt in enumerate(q8.FORMATS):
        routed, shared, first, slot, rows, cols = SHAPES[i % 2]
        experts = routed + shared - first
        ops = q8.vector_operands(rng, cols)
        ops |= swiglu_case(rng, fmt, (experts, first, rows, cols), biased=False)
        ops["yq"] = np.zeros((slot + shared, rows // 4), np.uint32)
        ops["ys"] = np.zeros((slot + shared, rows // q8.GROUP, 2), np.float32)
        params = {"cols": cols, "rows": rows, "eps": 1e-5, "experts": experts, "first": first,
                  "routed": routed, "slot": slot, "taken": shared}  # fmt: skip
        masks = {"yq": np.zeros((slot + shared, rows), bool), "ys": np.zeros(ops["ys"].shape, bool)}
        for mask in masks.values():
            mask[slot:] = True
        yield Case(f"{fmt} {shared} behind {routed}", ops, params, limit=1e-5, only=masks,
                   int8=frozenset({"yq"}))  # fmt: skip


KERNEL = Kernel("shared_q8_swiglu", launch, reference, cases, needs=q8.needs)
