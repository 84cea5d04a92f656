"""The experts of a layer for a batch: tokens sorted by expert, one product for all experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..kernels import (
    experts_gate,
    experts_gate_oai,
    experts_gather,
    experts_matmul,
    experts_matmul_coop,
    experts_matmul_coop_swiglu,
    experts_matmul_int8,
    experts_sort,
    experts_sum,
    experts_sum_bias,
    router_logits,
    router_topk,
)
from ..kernels.kernel import Kernel
from ..kernels.quantize_layout import row_words
from .moe_weights import ExpertWeights, MoeLayer, Stack
from .plan import Buf, Operand, Phase

if TYPE_CHECKING:
    from .builder import Push
    from .builder_batch import BatchBuilder

FORMS = {
    "f32": experts_matmul.KERNEL, "f16": experts_matmul_coop.KERNEL,
    "int8": experts_matmul_int8.KERNEL,
}  # fmt: skip


def shared_names(m: MoeLayer) -> list[str]:
    """Gate and up of the shared experts."""
    return [m.label + "ffn_gate_shexp.weight", m.label + "ffn_up_shexp.weight"]


class ExpertBatch:
    """Dispatches of one layer; `pairs` rows hold the experts' vectors in the order of experts."""

    def __init__(self, b: BatchBuilder, m: MoeLayer) -> None:
        self.b, self.m = b, m
        self.slots = m.routing.slots
        self.total = m.routing.experts + m.routing.shared
        self.pairs = b.opts.batch * self.slots
        self.route = Buf(f"route.{self.slots}", (b.opts.batch, self.slots, 2))
        self.start = Buf(f"experts.start.{self.total}", (self.total + 1,), "U32")
        self.order = Buf(f"experts.order.{self.slots}", (self.pairs,), "U32")
        self.place = Buf(f"experts.place.{self.slots}", (self.pairs,), "U32")

    def rows(self, name: str, width: int, form: str = "f32") -> Buf:
        """Vectors of all pairs in some form."""
        name = f"experts.{name}.{self.slots}.{width}"
        if form == "f32":
            return Buf(name, (self.pairs, width))
        if form == "f16":
            return Buf(f"{name}.f16", (self.pairs, width), "F16")
        return Buf(f"{name}.int8", (self.pairs, row_words(width)), "U32")

    def route_and_sort(self, x: Buf, gain: str) -> None:
        """Router in float32, choice, order of the pairs."""
        b, m, phase = self.b, self.m, Phase.ROUTER
        e = m.routing.experts
        logits = b.buf(f"router.{e}", e)
        params: Push = {"cols": x.cols, "eps": b.spec.eps, "rows": e}
        b.add(router_logits.KERNEL, phase, m.router.name, params, x=x,
              g=b.weights.vector(gain, x.cols), w=m.router, logits=logits)  # fmt: skip
        b.add(router_topk.KERNEL, phase, m.label + "ffn_gate_inp", m.routing.params(),
              logits=logits, b=m.router_bias, route=self.route)  # fmt: skip
        b.add(experts_sort.KERNEL, phase, m.label + "ffn_gate_inp", {"experts": self.total},
              route=self.route, start=self.start, order=self.order, place=self.place)  # fmt: skip

    def product(
        self, x: Buf, cols: int, s: Stack, rows: int, row0: int, y: Buf, at: int,
        kernel: Kernel | None = None, more: Push | None = None,
    ) -> None:
        """y columns at … = the experts' rows from row0 on times their vectors."""
        params: Push = {
            "cols": cols, "rows": rows, "x_stride": x.cols, "y_stride": y.cols, "y_off": at,
        }  # fmt: skip
        kernel = kernel or FORMS[self.b.opts.products]
        for phase, first, count, chosen in self.kinds(s):
            own: Push = {
                "first": first, "row0": row0 + (first - s.first) * rows, "groups": count, **chosen,
                **(more or {}),
            }  # fmt: skip
            self.b.add(kernel, phase, s.w.name, params | own, x=x, w=s.w, y=y, start=self.start)

    def kinds(self, s: Stack) -> Iterator[tuple[Phase, int, int, Push]]:
        """(phase, first, experts, how many of how many a token takes) of the routed experts of a
        stack and of its shared ones, which see all tokens and so want larger tiles."""
        routed, stop = self.m.routing.experts, s.first + s.count
        if s.first < routed:
            of: Push = {"slots": self.m.routing.used, "experts": routed}
            yield Phase.EXPERTS, s.first, min(stop, routed) - s.first, of
        first = max(s.first, routed)
        if first < stop:
            yield Phase.SHARED, first, stop - first, {"slots": stop - first,
                                                      "experts": stop - first}  # fmt: skip

    def inner(self, x: Buf, gain: str) -> Buf:
        """The experts' inner vectors, in the form that the next product reads."""
        b, m, form = self.b, self.m, self.b.opts.products
        normed = b.normed(x, gain, Phase.EXPERTS)
        words = normed.words // normed.rows
        sorted_x = self.rows("x", x.cols, form)
        b.add(experts_gather.KERNEL, Phase.EXPERTS, m.label + "ffn_gate_inp",
              {"words": words, "slots": self.slots, "experts": self.total}, x=normed,
              start=self.start, order=self.order, y=sorted_x)  # fmt: skip
        if form == "f16" and m.inner and not m.bias:
            return self.gated(sorted_x, x.cols)
        return self.gate(self.both(sorted_x, x.cols))

    def gated(self, x: Buf, cols: int) -> Buf:
        """Gates, ups and inner vectors by one kernel, on matrix cores."""
        m, y = self.m, self.rows("inner", self.m.n_ff, "f16")
        for s in m.inner:
            up: Push = {"up": s.count * m.n_ff}
            self.product(x, cols, s, m.n_ff, 0, y, 0, experts_matmul_coop_swiglu.KERNEL, up)
        return y

    def both(self, x: Buf, cols: int) -> Buf:
        """Gates and ups (pairs, 2 n_ff)."""
        m, y = self.m, self.rows("gate_up", 2 * self.m.n_ff)
        for s in m.inner:
            self.product(x, cols, s, m.n_ff, 0, y, 0)
            self.product(x, cols, s, m.n_ff, s.count * m.n_ff, y, m.n_ff)
        for at, stacks in ((0, m.gates), (m.n_ff, m.ups)):
            for s in stacks:
                self.product(x, cols, s, m.n_ff, 0, y, at)
        return y

    def gate(self, both: Buf) -> Buf:
        """silu(gate) * up, or the limited gate with biases."""
        b, m = self.b, self.m
        y = self.rows("inner", m.n_ff, b.opts.products)
        params: Push = {
            "cols": m.n_ff, "y_stride": y.cols, "experts": self.total, "slots": self.slots,
        }  # fmt: skip
        ops: dict[str, Operand] = {"gu": both, "start": self.start, "y": y}
        if m.bias:
            ops |= {"route": self.route, "order": self.order, "b": m.bias}
        kernel = experts_gate_oai.KERNEL if m.bias else experts_gate.KERNEL
        b.add(kernel, Phase.EXPERTS, m.label + "ffn_gate_exps", params, **ops)
        return y

    def down(self, inner: Buf, x: Buf) -> None:
        """x += the weighted results."""
        b, m, out = self.b, self.m, self.rows("out", x.cols)
        for s in m.down:
            self.product(inner, m.n_ff, s, x.cols, 0, out, 0)
        params: Push = {"cols": x.cols, "slots": self.slots}
        ops: dict[str, Operand] = {"x": out, "route": self.route, "place": self.place, "y": x}
        if m.down_bias:
            ops["b"] = m.down_bias
        kernel = experts_sum_bias.KERNEL if m.down_bias else experts_sum.KERNEL
        b.add(kernel, Phase.EXPERTS, m.label + "ffn_down_exps", params, **ops)


def batch_experts(b: BatchBuilder, x: Buf, gain: str, layer: int, after: str) -> None:
    """All of a layer's experts."""
    from .builder_moe import shared_inner

    m = ExpertWeights(b.spec, b.weights, layer).layer()
    batch = ExpertBatch(b, m)
    batch.route_and_sort(x, gain)
    inner = batch.inner(x, gain)
    shared = shared_inner(b, x, gain, m)
    batch.down(inner, x)
    if shared:
        b.project_add(shared, m.label + "ffn_down_shexp.weight", x, Phase.SHARED, after)
