"""The experts of a layer: router, gates and ups, weighted sum. One function per form of a plan.

Shared experts in formats of their own take the way of a dense network beside the group; they read
the same normalised input, so they come before the group changes the residual stream.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..kernels import (
    experts_down,
    experts_down_bias,
    experts_oai,
    experts_q8_choose_swiglu,
    experts_q8_down,
    experts_q8_down_bias,
    experts_q8_oai,
    experts_q8_swiglu,
    experts_swiglu,
    router_token,
    router_token_logits,
)
from .builder_moe_batch import batch_experts, shared_names
from .moe_weights import ExpertWeights, MoeLayer, Stack
from .plan import Buf, Operand, Phase, Role

if TYPE_CHECKING:
    from .builder import Builder, Push
    from .builder_int8 import Int8Builder
    from .builder_token import TokenBuilder


def route_buf(b: Builder, m: MoeLayer) -> Buf:
    """Experts and weights of a batch (batch, slots, 2)."""
    return Buf(f"route.{m.routing.slots}", (b.opts.batch, m.routing.slots, 2))


def logits_buf(b: Builder, m: MoeLayer) -> Buf:
    """The router's product (batch, experts)."""
    return Buf(f"router.{m.routing.experts}", (b.opts.batch, m.routing.experts))


def route_token(b: Builder, x: Buf, gain: str, m: MoeLayer) -> Buf:
    """The route of one token."""
    route = route_buf(b, m)
    b.add(
        router_token.KERNEL, Phase.ROUTER, m.label + "ffn_gate_inp",
        {"cols": x.cols, "eps": b.spec.eps, **m.routing.params()}, x=x,
        g=b.weights.vector(gain, x.cols), w=m.router, b=m.router_bias,
        logits=logits_buf(b, m),
        arrived=Buf("router.arrived", (1,), "U32", Role.STATE), route=route,
    )  # fmt: skip
    return route


def stack_params(stack: Stack, rows: int, cols: int) -> Push:
    """Push words of a product with one stack."""
    return {"cols": cols, "rows": rows, "experts": stack.count, "first": stack.first}


def inner_buf(b: Builder, m: MoeLayer) -> Buf:
    """Inner vectors of a token's experts (1, slots * n_ff)."""
    width = m.routing.slots * m.n_ff
    return Buf(f"experts.inner.{width}", (1, width))


def token_experts(b: TokenBuilder, x: Buf, gain: str, layer: int, after: str) -> None:
    """Three dispatches in float32. Gates and ups of different formats take the way of batches."""
    m = ExpertWeights(b.spec, b.weights, layer).layer()
    if not m.inner:
        from .builder_batch import BatchBuilder

        plain = replace(b.opts, products="f32")
        batch_experts(BatchBuilder(b.spec, plain, b.weights, out=b.out), x, gain, layer, after)
        return
    route, inner, phase = route_token(b, x, gain, m), inner_buf(b, m), Phase.EXPERTS
    for s in m.inner:
        params = stack_params(s, m.n_ff, x.cols) | {"eps": b.spec.eps}
        g = b.weights.vector(gain, x.cols)
        a: dict[str, Operand] = {"x": x, "g": g, "w": s.w, "route": route, "y": inner}
        kernel = experts_oai.KERNEL if s.bias else experts_swiglu.KERNEL
        b.add(kernel, phase, s.w.name, params, **a, **({"b": s.bias} if s.bias else {}))
    shared = shared_inner(b, x, gain, m)
    for s in m.down:
        params = stack_params(s, x.cols, m.n_ff)
        a = {"x": inner, "w": s.w, "route": route, "y": x}
        kernel = experts_down_bias.KERNEL if s.bias else experts_down.KERNEL
        b.add(kernel, phase, s.w.name, params, **a, **({"b": s.bias} if s.bias else {}))
    if shared:
        b.project_add(shared, m.label + "ffn_down_shexp.weight", x, Phase.SHARED, after)


def shared_inner(b: Builder, x: Buf, gain: str, m: MoeLayer) -> Buf | None:
    """Gate and up of shared experts that are no part of the group."""
    if not m.separate:
        return None
    assert b.spec.moe is not None
    width = b.spec.moe.routing.shared * m.n_ff
    y, first = b.buf(f"ffn.{width}", width), len(b.out)
    b.gated(x, gain, shared_names(m), y)
    b.out[first:] = [replace(d, phase=Phase.SHARED) for d in b.out[first:]]
    return y


def chooses_late(b: Int8Builder, m: MoeLayer) -> bool:
    """Whether gates and ups choose their experts themselves (PlanOptions.choosers)."""
    quick = experts_q8_choose_swiglu.suits(m.routing, b.opts.choosers)
    return quick and not any(s.bias for s in m.inner)


def int8_logits(b: Int8Builder, x: Buf, gain: str, m: MoeLayer) -> None:
    """The router's product."""
    b.add(router_token_logits.KERNEL, Phase.ROUTER, m.label + "ffn_gate_inp",
          {"cols": x.cols, "eps": b.spec.eps}, x=x, g=b.weights.vector(gain, x.cols), w=m.router,
          logits=logits_buf(b, m))  # fmt: skip


def int8_chosen(b: Int8Builder, x: Buf, m: MoeLayer) -> None:
    """Choice of experts, gates and ups of them and of the shared ones."""
    inner, route = inner_buf(b, m), route_buf(b, m)
    more = experts_q8_choose_swiglu.params_of(m.routing) | {"eps": b.spec.eps}
    for s in m.inner:
        b.add(experts_q8_choose_swiglu.KERNEL, Phase.EXPERTS, s.w.name,
              stack_params(s, m.n_ff, x.cols) | more, w=s.w, ssq=b.squares(x),
              logits=logits_buf(b, m), b=m.router_bias, route=route,
              **b.quantized(x, "xq", "xs"), **b.quantized(inner, "yq", "ys"))  # fmt: skip


def int8_routed(b: Int8Builder, x: Buf, gain: str, m: MoeLayer) -> None:
    """Choice of experts, then gates and ups."""
    route, inner = route_token(b, x, gain, m), inner_buf(b, m)
    for s in m.inner:
        kernel = experts_q8_oai.KERNEL if s.bias else experts_q8_swiglu.KERNEL
        b.add(
            kernel, Phase.EXPERTS, s.w.name, stack_params(s, m.n_ff, x.cols) | {"eps": b.spec.eps},
            w=s.w, ssq=b.squares(x), route=route, **b.quantized(x, "xq", "xs"),
            **b.quantized(inner, "yq", "ys"), **({"b": s.bias} if s.bias else {}),
        )  # fmt: skip


def int8_experts(b: Int8Builder, x: Buf, gain: str, layer: int, after: str) -> None:
    """Three dispatches with int8 activations, and those of shared experts apart from the group."""
    m = ExpertWeights(b.spec, b.weights, layer).layer()
    if chooses_late(b, m):
        int8_logits(b, x, gain, m)
        shared = shared_inner(b, x, gain, m)
        int8_chosen(b, x, m)
    else:
        int8_routed(b, x, gain, m)
        shared = shared_inner(b, x, gain, m)
    for s in m.down:
        kernel = experts_q8_down_bias.KERNEL if s.bias else experts_q8_down.KERNEL
        b.add(
            kernel, Phase.EXPERTS, s.w.name, stack_params(s, x.cols, m.n_ff), w=s.w, y=x,
            route=route_buf(b, m), g=b.weights.vector(after, x.cols), ssq=b.squares(x),
            **b.quantized(inner_buf(b, m), "xq", "xs"), **b.quantized(x, "yq", "ys"),
            **({"b": s.bias} if s.bias else {}),
        )  # fmt: skip
    if shared:
        b.project_add(shared, m.label + "ffn_down_shexp.weight", x, Phase.SHARED, after)
