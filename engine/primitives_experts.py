"""Primitives of expert layers: a token's experts, the experts of a batch, shared experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..kernels import (
    experts_down,
    experts_gate,
    experts_gather,
    experts_matmul,
    experts_matmul_coop,
    experts_matmul_int8,
    experts_q8_down,
    experts_q8_swiglu,
    experts_sort,
    experts_sum,
    experts_swiglu,
    q8,
)
from ..kernels.kernel import Kernel
from ..kernels.matmul_groups import convert
from ..kernels.reference import random_matrix, step_words
from .blocks import FORMATS
from .harness_chain import Chain, Link, Output, chain_of
from .primitives import Check, Limit, Primitive, formats_of, normal, weight
from .primitives_products import EPS, TOKENS, groups

FLOAT = (experts_swiglu.KERNEL, experts_down.KERNEL)
INT8 = (experts_q8_swiglu.KERNEL, experts_q8_down.KERNEL)
FORMS: dict[str, Kernel] = {
    "f32": experts_matmul.KERNEL, "int8": experts_matmul_int8.KERNEL,
    "coop": experts_matmul_coop.KERNEL,
}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """`count` experts with `inner` values between matrices of `width` columns, all of them used."""

    count: int
    width: int
    inner: int

    def __str__(self) -> str:
        return f"K={self.count} {self.inner}x{self.width}"

    def stacks(self, fmt: str, matrices: int, room: int) -> Iterator[tuple[int, int]]:
        """(first expert, experts) of weights that a binding takes, with 1 or 2 matrices each."""
        each = matrices * (FORMATS[fmt].row_bytes(self.width) + 4) * self.inner
        most = max(1, room // each)
        for first in range(0, self.count, most):
            yield first, min(most, self.count - first)


SHARED, MANY = Group(1, 6144, 2048), Group(32, 1536, 512)
USUAL, LARGE = Group(8, 2048, 768), Group(8, 6144, 2048)
HUGE = Group(32, 6144, 2048)
FULL_SIZE = ("Q4_K", "INT4_G64", "INT3_G64")  # formats of large groups; the last two of the largest


def route(rng: np.random.Generator, n: int, slots: int, experts: int) -> Any:
    """Weights and numbers of `slots` different experts for each of n tokens."""
    out = np.zeros((n, slots, 2), np.float32)
    for row in out:
        row[:, 0] = rng.permutation(experts)[:slots]
        row[:, 1] = rng.uniform(0.05, 1, slots) / slots**0.5
    return out


def add_stacks(
    ops: dict[str, Any], rng: np.random.Generator, fmt: str, g: Group, room: int
) -> tuple[list[tuple[str, int, int]], list[tuple[str, int, int]]]:
    """Weights of gates and ups, and of downs, into `ops`: (operand, first expert, experts)."""
    inner, down = [], []
    for first, count in g.stacks(fmt, 2, room):
        ops[f"w{first}"] = weight(rng, fmt, 2 * count * g.inner, g.width)
        inner.append((f"w{first}", first, count))
    for first, count in g.stacks(fmt, 1, room):
        ops[f"d{first}"] = weight(rng, fmt, count * g.width, g.inner)
        down.append((f"d{first}", first, count))
    return inner, down


def token(int8: bool, fmt: str, g: Group, room: int, rng: np.random.Generator) -> Chain:
    """Gates and ups of all slots, then the weighted sum of their downs."""
    ops: dict[str, Any] = q8.vector_operands(rng, g.width) if int8 else {
        "x": normal(rng, 1, g.width), "g": random_matrix(rng, "F32", 1, g.width),
        "step": step_words(1, 5), "inner": normal(rng, 1, g.count * g.inner),
    }  # fmt: skip
    if int8:
        hidden = groups(g.count * g.inner)
        ops |= {"iq": hidden["yq"], "is": hidden["ys"], **groups(g.width),
                "g": random_matrix(rng, "F32", 1, g.width)}  # fmt: skip
    ops |= {"route": route(rng, 1, g.count, g.count), "y": normal(rng, 1, g.width)}
    inner, down = add_stacks(ops, rng, fmt, g, room)
    links = []
    for name, first, count in inner:
        params = {"cols": g.width, "rows": g.inner, "eps": EPS, "experts": count, "first": first}
        uses = {"w": name, "yq": "iq", "ys": "is"} if int8 else {"w": name, "y": "inner"}
        links.append(Link((INT8 if int8 else FLOAT)[0], params, 1, uses))
    for name, first, count in down:
        params = {"cols": g.inner, "rows": g.width, "experts": count, "first": first}
        uses = {"w": name, "xq": "iq", "xs": "is"} if int8 else {"w": name, "x": "inner"}
        links.append(Link((INT8 if int8 else FLOAT)[1], params, 1, uses))
    outputs = [Output("y"), *([Output("yq", scales="ys")] if int8 else [])]
    return chain_of(ops, links, *outputs, experts=g.count)


def of_batch(form: str, fmt: str, g: Group, slots: int, n: int, room: int,
             rng: np.random.Generator) -> Chain:  # fmt: skip
    """n tokens sorted by expert, products of each expert's tokens, gate, weighted sum."""
    x, pairs = convert(normal(rng, n, g.width), form), n * slots
    state = {"f32": np.float32, "coop": np.float16, "int8": np.uint32}[form]
    packed = convert(normal(rng, 1, g.inner), form).shape[1]
    ops: dict[str, Any] = {
        "x": x, "route": route(rng, n, slots, g.count), "y": normal(rng, n, g.width),
        "start": np.zeros(g.count + 1, np.uint32), "order": np.zeros(pairs, np.uint32),
        "place": np.zeros(pairs, np.uint32), "sorted": np.zeros((pairs, x.shape[1]), x.dtype),
        "gu": np.zeros((pairs, 2 * g.inner), np.float32), "inner": np.zeros((pairs, packed), state),
        "out": np.zeros((pairs, g.width), np.float32), "step": step_words(n, 4),
    }  # fmt: skip
    both, down = add_stacks(ops, rng, fmt, g, room)
    shared = {"slots": slots, "experts": g.count}
    words = x.shape[1] * x.itemsize // 4
    links = [
        Link(experts_sort.KERNEL, {"experts": g.count}, n),
        Link(experts_gather.KERNEL, {"words": words, **shared}, n, {"y": "sorted"}),
    ]
    for name, first, count in both:
        for half in (0, 1):
            params = {"cols": g.width, "rows": g.inner, "x_stride": x.shape[1],
                      "y_stride": 2 * g.inner, "y_off": half * g.inner, "first": first,
                      "row0": half * count * g.inner, "groups": count, **shared}  # fmt: skip
            links.append(Link(FORMS[form], params, n, {"w": name, "x": "sorted", "y": "gu"}))
    gate = {"cols": g.inner, "y_stride": packed, **shared}
    links.append(Link(experts_gate.KERNEL, gate, n, {"y": "inner"}))
    for name, first, count in down:
        params = {"cols": g.inner, "rows": g.width, "x_stride": packed, "y_stride": g.width,
                  "y_off": 0, "first": first, "row0": 0, "groups": count, **shared}  # fmt: skip
        links.append(Link(FORMS[form], params, n, {"w": name, "x": "inner", "y": "out"}))
    links.append(Link(experts_sum.KERNEL, {"cols": g.width, "slots": slots}, n, {"x": "out"}))
    return chain_of(ops, links, "y", experts=g.count)


def token_checks(room: int) -> Iterator[Check]:
    """Every format: a shared expert, a usual group; 32 experts; large groups in few formats."""
    for int8, kernels in ((False, FLOAT), (True, INT8)):
        for i, fmt in enumerate(formats_of(kernels[0])):
            more = [LARGE] if fmt in FULL_SIZE else []
            more += [HUGE] if int8 and fmt in FULL_SIZE[1:] else []
            wide = [MANY] if i % 3 == 0 or fmt in FULL_SIZE else []
            for g in (SHARED, USUAL, *wide, *more):
                form = "int8" if int8 else "f32"
                yield Check(f"token {form} {fmt} {g}", kernels,
                            partial(token, int8, fmt, g, room), timed=fmt in q8.FORMATS,
                            issued=g is USUAL)  # fmt: skip


def batch_checks(room: int) -> Iterator[Check]:
    """Every format, few tokens: 4 of 8 experts, and a shared expert."""
    rest = (experts_sort, experts_gather, experts_gate, experts_sum)
    for form, kernel in FORMS.items():
        kernels = (kernel, *(module.KERNEL for module in rest))
        for i, fmt in enumerate(formats_of(kernel)):
            n = TOKENS[i % 4]
            for g, slots in ((USUAL, 4), *(((SHARED, 1),) if fmt in FULL_SIZE else ())):
                yield Check(f"{form} {fmt} {slots} of {g} S={n}", kernels,
                            partial(of_batch, form, fmt, g, slots, n, room),
                            issued=fmt == "Q4_K")  # fmt: skip


GROUP = Limit("max rel", 3e-3, "three products one behind the other, of up to 32 experts; where "
              "activations are int8, values between two quants round either way")  # fmt: skip
PRIMITIVES = (
    Primitive("experts", "expert group of one token, and shared expert", GROUP, token_checks),
    Primitive("experts-batch", "expert group of a batch", GROUP, batch_checks),
)
