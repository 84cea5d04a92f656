"""The router as a primitive: choice of experts of one token, of a batch, and beside their gates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ..kernels import (
    experts_q8_choose_swiglu,
    q8,
    router_token,
    router_token_logits,
    router_topk,
)
from ..kernels.kernel import Kernel
from ..kernels.limits import Limits
from ..kernels.reference import random_matrix, rms_normalise, step_words, vector
from ..kernels.routing import RULES, Gating, Routing, choose, f32_matrix
from .harness_chain import Chain, Link, Output, chain_of
from .primitives import Check, normal, weight
from .primitives_products import EPS

NEAR = 1e-5  # rounding of logits that must not change the choice of a check's inputs
ROUTERS = {
    "softmax 8 of 128": Routing(128, 8, normalise=True),
    "softmax 8 of 128 not normalised": Routing(128, 8),
    "sigmoid 8 of 256 in groups": RULES["groups of 256"],
    "sigmoid 8 of 384": RULES["384 experts"],
    "softmax of the chosen 4 of 32": RULES["chosen"],
    "sigmoid 4 of 64 and one": Routing(64, 4, 1, Gating.SIGMOID, normalise=True, scale=1.8),
}
LATE = experts_q8_choose_swiglu.KERNEL


def clear_logits(rng: np.random.Generator, rule: Routing, n: int, bias: Any) -> Any:
    """Logits (n, experts) whose choice survives rounding."""
    while True:
        logits: Any = normal(rng, n, rule.experts) * 1.5
        params: Any = rule.params()
        first = choose(logits, bias, **params)[..., 0]
        moved = (logits + normal(rng, n, rule.experts) * np.float32(NEAR) for _ in range(8))
        if all(np.array_equal(first, choose(m, bias, **params)[..., 0]) for m in moved):
            return logits


def router(kernel: Kernel, rule: Routing, n: int, cols: int, rng: np.random.Generator) -> Chain:
    """Experts exactly, weights within the limit."""
    bias = np.zeros((2, rule.experts), np.float32)
    if rule.gating == Gating.SIGMOID:
        bias[1] = rng.uniform(-0.2, 0.2, rule.experts)
    logits = clear_logits(rng, rule, n, bias)
    made = np.zeros((n, rule.slots, 2), np.float32)
    ids = np.zeros(made.shape, bool)
    ids[..., 0] = True
    ops: dict[str, Any] = {"b": f32_matrix(bias), "route": made, "step": step_words(n, 3)}
    outputs = Output("route", mask=ids, exact=True), Output("route", mask=~ids)
    if kernel is router_topk.KERNEL:
        return chain_of(ops | {"logits": logits}, [Link(kernel, rule.params(), n)], *outputs)
    x, g = normal(rng, 1, cols), random_matrix(rng, "F32", 1, cols)
    w = normal(rng, rule.experts, cols) / np.float32(cols**0.5)
    xn = rms_normalise(x, vector(g), EPS)[0].astype(np.float64)
    w += np.outer(logits[0] - w @ xn, xn) / (xn @ xn)  # so that W xn are the logits
    ops |= {"x": x, "g": g, "w": f32_matrix(w), "arrived": np.zeros(1, np.uint32),
            "logits": np.zeros((1, rule.experts), np.float32)}  # fmt: skip
    params = {"cols": cols, "eps": EPS}
    if kernel is not LATE:
        return chain_of(ops, [Link(kernel, params | rule.params())], *outputs)
    inner, experts = 32, rule.experts + rule.shared
    ops |= q8.vector_operands(rng, cols) | {
        "ew": weight(rng, "Q4_0", 2 * experts * inner, cols),
        "yq": np.zeros((rule.slots, inner // 4), np.uint32),
        "ys": np.zeros((rule.slots, inner // q8.GROUP, 2), np.float32),
    }  # fmt: skip
    more = {"rows": inner, "experts": experts, "first": 0}
    links = [Link(router_token_logits.KERNEL, params),
             Link(kernel, params | more | experts_q8_choose_swiglu.params_of(rule), 1,
                  {"w": "ew"})]  # fmt: skip
    return chain_of(ops, links, *outputs, Output("yq", scales="ys"))


def few(rule: Routing, limits: Limits) -> bool:
    """Whether a subgroup chooses where gates are multiplied."""
    return experts_q8_choose_swiglu.suits(rule, limits.subgroup_size)


def router_checks(room: int) -> Iterator[Check]:
    """Rules of models with many experts."""
    for name, rule in ROUTERS.items():
        for cols in (2048, 6144):
            yield Check(f"router_token {name} from {cols}", (router_token.KERNEL,),
                        partial(router, router_token.KERNEL, rule, 1, cols))  # fmt: skip
            yield Check(f"experts_q8_choose_swiglu {name} from {cols}",
                        (router_token_logits.KERNEL, LATE), partial(router, LATE, rule, 1, cols),
                        suits=partial(few, rule))  # fmt: skip
        for n in (1, 2, 11):
            yield Check(f"router_topk {name} S={n}", (router_topk.KERNEL,),
                        partial(router, router_topk.KERNEL, rule, n, 0))  # fmt: skip
