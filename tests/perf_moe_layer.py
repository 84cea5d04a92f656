"""Buffers and kernels of a layer of DeepSeek V3's kind, stage by stage, for perf_moe_table.py.

Sizes of GLM-4.7-Flash in Q3_K; weights of LAYERS layers in turn. Other forms: perf_moe_forms.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from perf_bench import Bench, Operand, Step

from kompute_llm.engine.builder import SHORT
from kompute_llm.engine.plan import Buf
from kompute_llm.kernels import (
    experts_q8_down,
    experts_q8_swiglu,
    matvec_q8_add,
    mla,
    mla_absorb,
    mla_attention,
    mla_attention_coop,
    mla_compress_q8,
    mla_expand_q8,
    norm_matvec_q8,
    router_token,
)
from kompute_llm.kernels.kernel import Kernel
from kompute_llm.kernels.routing import Gating, Routing

LAYERS, REPEATS, EPS = 8, 4, 1e-5
PORTABLE = 32, mla.MIN_SPLIT  # splits of mla_attention, as in plans on large devices


@dataclass(frozen=True)
class Sizes:
    """Of the layer; `n_ff`: rows of an expert."""

    width: int = 2048
    heads: int = 20
    q_rank: int = 768
    rank: int = 512
    rot: int = 64
    nope: int = 192
    value: int = 256
    experts: int = 64
    n_ff: int = 1536

    @property
    def first(self) -> int:
        """Rows of the first product."""
        return self.q_rank + self.rank + self.rot

    @property
    def plain(self) -> int:
        """Values of all heads' queries."""
        return self.heads * (self.nope + self.rot)

    @property
    def inner(self) -> int:
        """Values of all heads' results."""
        return self.heads * self.value


SMALL = Sizes(256, 4, 256, 256, 32, 32, 64, 8, 256)


class Layer:
    """Buffers of LAYERS layers of one size. Every method records a kernel of layer i."""

    def __init__(self, b: Bench, s: Sizes, positions: int) -> None:
        self.b, self.s, self.positions = b, s, positions
        self.short = positions <= SHORT
        self.coop = mla_attention_coop.needs(b.device.limits) and not self.short
        self.splits, self.least = (128, mla_attention_coop.LEAST) if self.coop else PORTABLE
        self.rule = Routing(s.experts, 4, 1, Gating.SIGMOID, normalise=True, scale=2.5)
        vectors = {"x": s.width, "c": s.q_rank, "v": s.inner, "e": 5 * s.n_ff}
        self.v = {name: b.vector(n) for name, n in vectors.items()}
        f = {"a": s.first, "plain": s.plain, "q": s.heads * (s.rank + s.rot), "logits": s.experts}
        self.f = {name: self.floats(1, n) for name, n in f.items()}
        self.part = self.floats(s.heads * 128, s.rank + 2)
        self.rope = self.floats(positions, s.rot)
        words = positions * (s.rank + s.rot) // 2
        cache = Buf("k", (positions, s.rank + s.rot), "F16")
        self.caches = [(b.storage(words), cache) for _ in range(LAYERS)]
        route = np.zeros((1, 5, 2), np.float32)
        route[0, :, 0], route[0, :, 1] = (1, 17, 33, 49, 64), 0.25
        route[0, :, 0] *= s.experts / 64
        self.route = b.exchange(route), Buf("route", route.shape)
        self.arrived = b.exchange(np.zeros(4, np.uint32)), Buf("arrived", (1,), "U32")
        self.w = [self.weights() for _ in range(LAYERS)]

    def floats(self, rows: int, cols: int) -> Operand:
        """A float32 buffer."""
        return self.b.storage(rows * cols), Buf("f", (rows, cols))

    def weights(self) -> dict[str, Operand]:
        """Of one layer, by kernel."""
        s, make = self.s, self.b.weight
        return {
            "compress": make(s.first, s.width, "Q3_K"), "q_b": make(s.plain, s.q_rank, "Q3_K"),
            "k_b": make(s.heads * s.rank, s.nope, "F16"),
            "k_b_q8": make(s.heads * s.rank, s.nope, "Q8_0"), "v_b": make(s.inner, s.rank, "Q3_K"),
            "out": make(s.width, s.inner, "Q3_K"), "router": make(s.experts, s.width, "F32"),
            "bias": make(2, s.experts, "F32"), "gain": make(1, s.width, "F32"),
            "gate": make(2 * (s.experts + 1) * s.n_ff, s.width, "Q3_K"),
            "down": make((s.experts + 1) * s.width, s.n_ff, "Q3_K"),
            "v_and_q_b": make(s.inner + s.plain * s.q_rank // s.rank, s.rank, "Q3_K"),
            "gains": make(1, s.q_rank + s.rank, "F32"),
        }  # fmt: skip

    def q8(self, name: str, quants: str, scales: str) -> dict[str, Operand]:
        """A vector in int8 under the names of bindings."""
        return {quants: self.v[name]["q"], scales: self.v[name]["s"]}

    def added(self) -> dict[str, Operand]:
        """The residual stream as products add to it."""
        return {"y": self.v["x"]["f"], "ssq": self.v["x"]["ssq"], **self.q8("x", "yq", "ys")}

    def compress(self, seq: Any, i: int) -> None:
        """Compressed query, latent, key."""
        s, w = self.s, self.w[i]
        params = {"cols": s.width, "rows": s.first, "y_off": 0, "width": s.q_rank, "eps": EPS}
        self.b.add(seq, mla_compress_q8.KERNEL, params, w=w["compress"], g=w["gain"],
                   ssq=self.v["x"]["ssq"], y=self.f["a"], squares_of=self.v["c"]["ssq"],
                   **self.q8("x", "xq", "xs"), **self.q8("c", "yq", "ys"))  # fmt: skip

    def first(self, seq: Any, i: int) -> None:
        """The same in float32 alone."""
        params = {"cols": self.s.width, "rows": self.s.first, "y_off": 0, "eps": EPS}
        self.b.add(seq, norm_matvec_q8.KERNEL, params, w=self.w[i]["compress"], y=self.f["a"],
                   ssq=self.v["x"]["ssq"], **self.q8("x", "xq", "xs"))  # fmt: skip

    def query(self, seq: Any, i: int) -> None:
        """Plain queries."""
        s = self.s
        params = {"cols": s.q_rank, "rows": s.plain, "y_off": 0, "eps": EPS}
        self.b.add(seq, norm_matvec_q8.KERNEL, params, w=self.w[i]["q_b"], y=self.f["plain"],
                   ssq=self.v["c"]["ssq"], **self.q8("c", "xq", "xs"))  # fmt: skip

    def absorb(self, seq: Any, i: int) -> None:
        """Absorbed queries, the cache's row."""
        s = self.s
        params = {"rank": s.rank, "nope": s.nope, "n_rot": s.rot, "heads": s.heads,
                  "first": s.q_rank, "eps": EPS}  # fmt: skip
        self.b.add(seq, mla_absorb.KERNEL, params, x=self.f["plain"], a=self.f["a"],
                   kb=self.w[i]["k_b"], h=self.w[i]["gain"], rope=self.rope, q=self.f["q"],
                   k=self.caches[i])  # fmt: skip

    def attend(self, seq: Any, i: int, kernel: Kernel | None = None) -> None:
        """Attention by splits."""
        s = self.s
        best = mla_attention_coop.KERNEL if self.coop else mla_attention.KERNEL
        params = {"heads": s.heads, "rank": s.rank, "n_rot": s.rot, "splits": self.splits,
                  "scale": 0.07, "most": mla.ALL, "least": self.least}  # fmt: skip
        self.b.add(seq, kernel or best, params, q=self.f["q"], k=self.caches[i], part=self.part)

    def expand(self, seq: Any, i: int) -> None:
        """Splits joined, values."""
        s = self.s
        params = {"rows": s.value, "splits": self.splits, "heads": s.heads, "most": mla.ALL,
                  "rank": s.rank, "least": self.least}  # fmt: skip
        self.b.add(seq, mla_expand_q8.KERNEL, params, part=self.part, w=self.w[i]["v_b"],
                   **self.q8("v", "yq", "ys"))  # fmt: skip

    def output(self, seq: Any, i: int) -> None:
        """Output projection."""
        params = {"cols": self.s.inner, "rows": self.s.width}
        self.b.add(seq, matvec_q8_add.KERNEL, params, w=self.w[i]["out"], g=self.w[i]["gain"],
                   **self.q8("v", "xq", "xs"), **self.added())  # fmt: skip

    def router(self, seq: Any, i: int) -> None:
        """Choice of experts; all logits are equal, so the first four."""
        w, params = self.w[i], {"cols": self.s.width, "eps": EPS, **self.rule.params()}
        self.b.add(seq, router_token.KERNEL, params, x=self.v["x"]["f"], g=w["gain"],
                   w=w["router"], b=w["bias"], logits=self.f["logits"], arrived=self.arrived,
                   route=self.route)  # fmt: skip

    def gate(self, seq: Any, i: int) -> None:
        """Gates and ups of the chosen experts."""
        s, (w, own) = self.s, self.w[i]["gate"]
        params = {"cols": s.width, "rows": s.n_ff, "eps": EPS, "experts": s.experts + 1, "first": 0}
        self.b.add(seq, experts_q8_swiglu.KERNEL, params, w=(w, own), ssq=self.v["x"]["ssq"],
                   route=self.route, **self.q8("x", "xq", "xs"),
                   **self.q8("e", "yq", "ys"))  # fmt: skip

    def down(self, seq: Any, i: int) -> None:
        """Their weighted sum."""
        s = self.s
        params = {"cols": s.n_ff, "rows": s.width, "experts": s.experts + 1, "first": 0}
        self.b.add(seq, experts_q8_down.KERNEL, params, w=self.w[i]["down"], route=self.route,
                   g=self.w[i]["gain"], **self.q8("e", "xq", "xs"), **self.added())  # fmt: skip

    def rest(self, seq: Any, i: int) -> None:
        """What comes after the heads' values."""
        for kernel in (self.output, self.router, self.gate, self.down):
            kernel(seq, i)

    def whole(self, seq: Any, i: int) -> None:
        """All of it."""
        for kernel in (self.compress, self.query, self.absorb, self.attend, self.expand, self.rest):
            kernel(seq, i)

    def portable(self, seq: Any, i: int) -> None:
        """Attention without matrix cores."""
        before, (self.splits, self.least) = (self.splits, self.least), PORTABLE
        self.attend(seq, i, mla_attention.KERNEL)
        self.splits, self.least = before

    def nbytes(self, *names: str) -> float:
        """Bytes of weights that a token reads."""
        used = {"gate": 5 / (self.s.experts + 1), "down": 5 / (self.s.experts + 1)}
        return sum(float(self.w[0][n][1].nbytes) * used.get(n, 1.0) for n in names)

    @property
    def cached(self) -> float:
        """Bytes of the cache that a token reads."""
        return self.positions * (self.s.rank + self.s.rot) * 2

    def each(self, kernel: Any) -> list[Step]:
        """Steps of all layers."""

        def of(i: int) -> Step:
            return lambda seq: kernel(seq, i)

        return [of(i) for i in range(LAYERS)]

    def chain(self, *kernels: Any) -> Any:
        """A sequence of the kernels, layer after layer."""
        steps = [step for i in zip(*map(self.each, kernels), strict=True) for step in i]
        return self.b.chain(steps, REPEATS)

    def micros(self, sequences: list[Any]) -> list[float]:
        """Microseconds a layer of each sequence."""
        return [t / (LAYERS * REPEATS) for t in self.b.turns(sequences)]
