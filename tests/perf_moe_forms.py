"""Other forms of a layer's stages: latent attention in one dispatch or in parts, late choices.

Methods record kernels of layer i, as those of perf_moe_layer.Layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perf_bench import Bench
from perf_moe_layer import EPS, Layer, Sizes

from kompute_llm.kernels import (
    experts_q8_choose_swiglu,
    mla_absorb_q8,
    mla_attend_q8,
    mla_token,
    mla_token_plain,
    router_token_logits,
)
from kompute_llm.kernels.mla_parts import Parts, parts_of, query_width
from kompute_llm.kernels.mla_token_launch import Head

Record = Callable[[Any, int], None]


class Forms(Layer):
    """A layer whose stages have other forms as well. `parts`: workgroups of a head."""

    def __init__(self, b: Bench, s: Sizes, positions: int) -> None:
        super().__init__(b, s, positions)
        head = Head(s.rank, s.nope, s.rot, s.value, s.q_rank)
        self.parts = parts_of(head, s.heads, b.device.limits)
        most = s.nope // 32
        self.summands = self.floats(1, query_width(s.heads, s.rank, s.rot, most))

    def in_one(self, seq: Any, i: int, whole: bool) -> None:
        """Latent attention of all heads in one dispatch; `whole`: with q_b."""
        s, w = self.s, self.w[i]
        params = {"heads": s.heads, "rank": s.rank, "nope": s.nope, "n_rot": s.rot,
                  "value": s.value, "scale": 0.07, "eps": EPS}  # fmt: skip
        ops = {"a": self.f["a"], "kb": w["k_b_q8"], "h": w["gains"], "rope": self.rope,
               "k": self.caches[i], **self.q8("v", "yq", "ys")}  # fmt: skip
        if whole:
            self.b.add(seq, mla_token.KERNEL, params | {"q_rank": s.q_rank}, w=w["v_and_q_b"],
                       **ops)  # fmt: skip
        else:
            self.b.add(seq, mla_token_plain.KERNEL, params | {"first": s.q_rank}, w=w["v_b"],
                       x=self.f["plain"], **ops)  # fmt: skip

    def core(self, seq: Any, i: int) -> None:
        """From plain queries to the heads' values."""
        self.in_one(seq, i, whole=False)

    def head(self, seq: Any, i: int) -> None:
        """From the compressed query to the heads' values."""
        self.in_one(seq, i, whole=True)

    def shared_params(self, parts: Parts) -> dict[str, Any]:
        """Of both kernels in parts."""
        s = self.s
        return {"heads": s.heads, "rank": s.rank, "n_rot": s.rot, "parts": parts.query}

    def absorb_parts(self, seq: Any, i: int, parts: Parts | None = None) -> None:
        """From the compressed query to summands of absorbed ones, the cache's row."""
        s, w = self.s, self.w[i]
        params = {"nope": s.nope, "q_rank": s.q_rank, "eps": EPS}
        self.b.add(seq, mla_absorb_q8.KERNEL, params | self.shared_params(parts or self.parts),
                   w=w["q_b"], a=self.f["a"], kb=w["k_b_q8"], h=w["gains"], rope=self.rope,
                   q=self.summands, k=self.caches[i])  # fmt: skip

    def attend_parts(self, seq: Any, i: int, parts: Parts | None = None) -> None:
        """From these to the heads' values."""
        parts = parts or self.parts
        params = {"value": self.s.value, "shares": parts.values, "scale": 0.07}
        self.b.add(seq, mla_attend_q8.KERNEL, params | self.shared_params(parts),
                   w=self.w[i]["v_b"], q=self.summands, k=self.caches[i],
                   **self.q8("v", "yq", "ys"))  # fmt: skip

    def in_parts(self, query: int, values: int) -> Record:
        """Both, with so many workgroups per head."""
        parts = Parts(query, values)

        def record(seq: Any, i: int) -> None:
            self.absorb_parts(seq, i, parts)
            self.attend_parts(seq, i, parts)

        return record

    def logits(self, seq: Any, i: int) -> None:
        """The router's product alone."""
        w = self.w[i]
        self.b.add(seq, router_token_logits.KERNEL, {"cols": self.s.width, "eps": EPS},
                   x=self.v["x"]["f"], g=w["gain"], w=w["router"],
                   logits=self.f["logits"])  # fmt: skip

    def choose(self, seq: Any, i: int) -> None:
        """Choice of experts, gates and ups of them and of the shared one."""
        s, w = self.s, self.w[i]
        params = {"cols": s.width, "rows": s.n_ff, "eps": EPS, "experts": s.experts + 1,
                  "first": 0}  # fmt: skip
        params |= experts_q8_choose_swiglu.params_of(self.rule)
        self.b.add(seq, experts_q8_choose_swiglu.KERNEL, params, w=w["gate"], b=w["bias"],
                   ssq=self.v["x"]["ssq"], logits=self.f["logits"], route=self.route,
                   **self.q8("x", "xq", "xs"), **self.q8("e", "yq", "ys"))  # fmt: skip

    def late(self, seq: Any, i: int) -> None:
        """Experts with a late choice."""
        for kernel in (self.logits, self.choose, self.down):
            kernel(seq, i)

    def early(self, seq: Any, i: int) -> None:
        """Experts with router_token."""
        for kernel in (self.router, self.gate, self.down):
            kernel(seq, i)

    def layer(self, *kernels: Record) -> Record:
        """A whole layer: latent attention, output projection, experts."""
        before, experts = kernels[:-1], kernels[-1]

        def record(seq: Any, i: int) -> None:
            for kernel in (*before, self.output, experts):
                kernel(seq, i)

        return record
