"""experts_q8_choose_swiglu: choice of a token's experts from logits; gate, up and SiLU of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from . import experts, q8
from .experts import launch_q8, slots_in
from .experts_cases import ALL_SHAPES, swiglu_case
from .experts_q8_swiglu import run
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .mla_query import whole
from .routing import RULES, Routing, case_bias, choose, f32_matrix

EACH = 4  # experts of a lane, beyond which every workgroup's choice would take too long


def suits(rule: Routing, lanes: int) -> bool:
    """Whether one subgroup of so many lanes chooses quickly: no groups, a lane per slot."""
    return rule.groups == 1 and rule.used <= lanes and rule.experts <= EACH * lanes


def gate_tiling(rows: int, chunks: int, lanes: int, units: int, step: int) -> q8.Tiling:
    """As without the choice, whose registers leave room for one row of formats in fours."""
    t = experts.gate_tiling(rows, chunks, lanes, units, step)
    return replace(t, rows=1) if step > 1 else t


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One slot's rows per workgroup."""
    slots, chunks = slots_in(ops), int(params["cols"]) // 32
    base = launch_q8(ops, params, limits, gate_tiling, slots, slots, chunks)
    return replace(base, spec=(*base.spec, int(params["routed"]), int(params["used"])))


def reference(
    w: Matrix, xq: Array, xs: Array, ssq: Array, logits: Array, b: Matrix, route: Array,
    yq: Array, ys: Array, step: Array, *, cols: int, rows: int, eps: float, experts: int,
    first: int, routed: int, used: int, gating: int, scale: float, sum_floor: float, top_p: float,
) -> None:
    """The route of logits (1, routed) as of router_token; yq, ys (slots, rows) as of
    experts_q8_swiglu. The dispatch with first = 0 writes the route."""
    shared = route.shape[1] - used
    found = choose(logits[:1], whole(b), experts=routed, used=used, shared=shared, gating=gating,
                   groups=1, groups_used=1, group_best=1, scale=scale, sum_floor=sum_floor,
                   top_p=top_p)  # fmt: skip
    if first == 0:
        route[:1] = found
    run(w, xq, xs, ssq, found, yq, ys, None, cols, rows, eps, experts, first)


def params_of(rule: Routing) -> dict[str, int | float]:
    """The parameters of a rule."""
    names = ("used", "gating", "scale", "sum_floor", "top_p")
    return {"routed": rule.experts, **{name: rule.params()[name] for name in names}}


def case(rng: np.random.Generator, fmt: str, name: str, rule: Routing, first: int) -> Case:
    """One case: a stack of the experts from `first` on. Logits are never nearly equal."""
    experts, rows, cols = rule.experts + rule.shared - first, 32, 256
    logits = rng.permutation(rule.experts) * 0.25 - rule.experts / 12
    ops = q8.vector_operands(rng, cols)
    ops |= swiglu_case(rng, fmt, (experts, first, rows, cols), biased=False)
    ops |= {
        "logits": logits.astype(np.float32)[None], "b": f32_matrix(case_bias(rng, rule)),
        "route": np.zeros((1, rule.slots, 2), np.float32),
        "yq": np.zeros((rule.slots, rows // 4), np.uint32),
        "ys": np.zeros((rule.slots, rows // q8.GROUP, 2), np.float32),
    }  # fmt: skip
    params = {"cols": cols, "rows": rows, "eps": 1e-5, "experts": experts, "first": first,
              **params_of(rule)}  # fmt: skip
    rules: Any = rule.params()
    mask = choose(ops["logits"], whole(ops["b"]), **rules)[0, :, 0] >= first
    masks = {"yq": np.repeat(mask[:, None], rows, 1),
             "ys": np.repeat(mask[:, None], rows // 8, 1).reshape(rule.slots, -1, 2),
             "route": np.full((1, rule.slots, 2), first == 0)}  # fmt: skip
    return Case(f"{fmt} {name} from {first}", ops, params, limit=1e-5, only=masks,
                int8=frozenset({"yq"}))  # fmt: skip


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every rule without groups in one format or the other; every format with one rule."""
    rules = [(n, r) for n, r in RULES.items() if suits(r, 32)]
    for i, (name, rule) in enumerate(rules):
        few = replace(rule, experts=min(rule.experts, 32))
        yield case(rng, ALL_SHAPES[i % 2], name, few, 0)
    for fmt in q8.FORMATS:
        yield case(rng, fmt, "chosen", RULES["chosen"], 0)
    yield case(rng, "Q4_K", "chosen", RULES["chosen"], 20)


def needs(limits: Limits) -> bool:
    """As other products; a lane for each slot of the cases, few experts a lane."""
    return q8.needs(limits) and limits.subgroup_size * EACH >= 32


KERNEL = Kernel("experts_q8_choose_swiglu", launch, reference, cases, needs=needs)
