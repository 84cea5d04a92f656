"""router_token: norm, router product and choice of experts of one token in one dispatch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import product, rms_normalise, row_chunks, step_words, vector
from .router_token_logits import row_size
from .routing import RULES, case_bias, choose, f32_matrix, spec

MOST_EACH = 16  # experts of a lane


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """A workgroup per expert, or per few of them where there are many more than compute units."""
    if by_subgroups(params, limits):
        return launch_subgroups(params, limits)
    experts, size = int(params["experts"]), limits.workgroup(128)
    per = 1
    while per < 4 and experts > 4 * per * limits.units:
        per *= 2
    return Launch("SG0", (*spec(params, size), per), (-(-experts // per), 1, 1))


def by_subgroups(params: Params, limits: Limits) -> bool:
    """Whether one subgroup can choose: no groups, a lane per slot, few experts per lane."""
    size = limits.subgroup_size
    few = int(params["used"]) <= size and int(params["experts"]) <= MOST_EACH * size
    return limits.subgroups and int(params["groups"]) == 1 and few


def launch_subgroups(params: Params, limits: Limits) -> Launch:
    """A workgroup per expert."""
    experts, cols, subgroup = int(params["experts"]), int(params["cols"]), limits.subgroup_size
    size = row_size(cols, limits)
    constants = (*spec(params, size), subgroup, cols)
    return Launch("SG1", constants, (experts, 1, 1), subgroup)


def reference(
    x: Array, g: Matrix, w: Matrix, b: Matrix, logits: Array, arrived: Array, route: Array,
    step: Array, *, cols: int, eps: float, **rules: Any,
) -> None:
    """route[0] from x[0] (cols,): logits = W (rmsnorm(x) * g), W float32 (experts, cols)."""
    logits[0] = product(rms_normalise(x[:1, :cols], vector(g), eps), w)[0]
    arrived[:] = 0
    bias = np.concatenate([piece for _, piece in row_chunks(b)])
    route[:1] = choose(logits[:1], bias, **rules)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every rule. The router's rows are long enough that no two scores are nearly equal."""
    for name, rule in RULES.items():
        cols = 96 if rule.experts > 8 else 2048
        x: Any = rng.standard_normal((1, cols)).astype(np.float32)
        w = rng.standard_normal((rule.experts, cols)) * 1.5 / np.sqrt(cols)
        ops = {
            "x": x, "g": f32_matrix(rng.uniform(0.5, 1.5, (1, cols))), "w": f32_matrix(w),
            "b": f32_matrix(case_bias(rng, rule)),
            "logits": np.zeros((1, rule.experts), np.float32), "arrived": np.zeros(1, np.uint32),
            "route": np.zeros((1, rule.slots, 2), np.float32), "step": step_words(1, 3),
        }  # fmt: skip
        params = {"cols": cols, "eps": 1e-5, **rule.params()}
        alone = 1.0 if rule.experts == 1 else 0.0  # a single sum may cancel to next to nothing
        yield Case(name, ops, params, limit=1e-11, scale=alone)


KERNEL = Kernel("router_token", launch, reference, cases)
