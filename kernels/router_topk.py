"""router_topk: experts of every token of a batch and their weights, from the router's logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import row_chunks, step_words
from .routing import RULES, case_bias, choose, f32_matrix, spec, workgroup


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per token."""
    return Launch("", spec(params, workgroup(params, limits, 256)), (rows, 1, 1))


def reference(logits: Array, b: Matrix, route: Array, step: Array, **rules: Any) -> None:
    """route[:n] (n, slots, 2) from logits (n, experts); b as in routing.choose."""
    n = int(step[words.N])
    bias = np.concatenate([piece for _, piece in row_chunks(b)])
    route[:n] = choose(logits[:n], bias, **rules)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every rule; a batch smaller than the launch; equal scores."""
    for name, rule in RULES.items():
        logits: Any = (rng.standard_normal((5, rule.experts)) * 1.5).astype(np.float32)
        logits[1] = 0.25
        ops = {
            "logits": logits, "b": f32_matrix(case_bias(rng, rule)),
            "route": np.zeros((5, rule.slots, 2), np.float32), "step": step_words(4, 3),
        }  # fmt: skip
        written = np.zeros(ops["route"].shape, bool)
        written[:4] = True
        yield Case(name, ops, rule.params(), rows=5, limit=1e-13, only={"route": written})


KERNEL = Kernel("router_topk", launch, reference, cases)
