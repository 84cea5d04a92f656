"""The weights of a layer's experts, as stacks: gates and ups of several experts in one weight.

Experts are numbered with the shared ones behind the routed ones, if their formats agree; then all
are one group. Stacks that exceed the binding limit are split by ranges of experts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..kernels.matvec_launch import PLAIN_FORMATS
from ..kernels.routing import Routing
from .blocks import Floats, Matrix
from .container import Container
from .errors import ModelError
from .plan import Weight
from .spec_model import ModelSpec
from .weights import Weights


@dataclass(frozen=True)
class Stack:
    """`count` experts from number `first` on; `bias`: their biases in one row, or None."""

    w: Weight
    first: int
    count: int
    bias: Weight | None = None


@dataclass(frozen=True)
class MoeLayer:
    """One layer. `inner`: gates and ups, where their formats agree; else `gates` and `ups`.

    `separate`: the shared experts are no part of the stacks, for their formats differ.
    """

    label: str
    routing: Routing
    n_ff: int
    router: Weight
    router_bias: Weight
    inner: tuple[Stack, ...]
    gates: tuple[Stack, ...]
    ups: tuple[Stack, ...]
    down: tuple[Stack, ...]
    separate: bool
    bias: Weight | None = None  # of all gates and ups
    down_bias: Weight | None = None


Parts = Callable[[int, int], list[Matrix]]  # the matrices of experts [first, stop)


class ExpertWeights:
    """Makes the weights of layer `layer`."""

    def __init__(self, spec: ModelSpec, weights: Weights, layer: int) -> None:
        assert spec.moe is not None
        self.spec, self.moe, self.weights = spec, spec.moe, weights
        self.label = f"blk.{layer}."
        self.folded = self._folds()

    @property
    def total(self) -> int:
        """Experts in the stacks."""
        return self.moe.total if self.folded else self.moe.routing.experts

    def layer(self) -> MoeLayer:
        """All of it."""
        e, rules = self.moe.routing.experts, self.moe.routing
        router = self.weights.table(
            self.label + "ffn_gate_inp.f32",
            lambda c: c.matrix(self.label + "ffn_gate_inp.weight", e, self.spec.n_embd)
            .dequantize(),
        )
        gate, up = self._routed("gate"), self._routed("up")
        together = gate(0, 1)[0].fmt is up(0, 1)[0].fmt
        inner = self._stacks("ffn_inner", [gate, up], self._inner_bias) if together else ()
        return MoeLayer(
            self.label, rules if self.folded else replace(rules, shared=0), self.moe.n_ff,
            router, self.weights.table(self.label + "router.bias", self._router_bias), inner,
            () if together else self._stacks("ffn_gates", [gate]),
            () if together else self._stacks("ffn_ups", [up]),
            self._stacks("ffn_downs", [self._down], self._down_bias),
            separate=bool(rules.shared) and not self.folded,
            bias=self._bias("ffn_inner", self._inner_bias, 0, self.total),
            down_bias=self._bias("ffn_downs", self._down_bias, 0, self.total),
        )  # fmt: skip

    def _name(self, kind: str, which: str) -> str:
        return f"{self.label}ffn_{kind}_{which}.weight"

    def _folds(self) -> bool:
        """Whether the shared experts can lie behind the routed ones."""
        s, f = self.moe.routing.shared, self.moe.n_ff
        if not s:
            return False
        for kind in ("gate", "up", "down"):
            shape = (self.spec.n_embd, s * f) if kind == "down" else (s * f, self.spec.n_embd)
            shared = self.weights.matrix(self._name(kind, "shexp"), *shape)
            routed = (self._down if kind == "down" else self._routed(kind))(0, 1)[0]
            if shared.fmt is not routed.fmt or (kind == "down" and s > 1 and f % shared.fmt.elems):
                return False
        return True

    def _routed(self, kind: str) -> Parts:
        e, f, n = self.moe.routing.experts, self.moe.n_ff, self.spec.n_embd
        merged = "ffn_gate_up_exps.weight" in self.spec.has

        def parts(first: int, stop: int) -> list[Matrix]:
            last = min(stop, e)
            if merged:
                m = self.weights.matrix(self._name("gate_up", "exps"), e, 2 * f, n)
                half = f if kind == "up" else 0
                out = [m.part(2 * i * f + half, 2 * i * f + half + f) for i in range(first, last)]
            else:
                m = self.weights.matrix(self._name(kind, "exps"), e, f, n)
                out = [m.part(first * f, last * f)] if first < last else []
            if stop > e:
                m = self.weights.matrix(self._name(kind, "shexp"), (self.moe.total - e) * f, n)
                out.append(m.part(max(first - e, 0) * f, (stop - e) * f))
            return out

        return parts

    def _down(self, first: int, stop: int) -> list[Matrix]:
        e, f, n = self.moe.routing.experts, self.moe.n_ff, self.spec.n_embd
        last, out = min(stop, e), []
        if first < last:
            m = self.weights.matrix(self._name("down", "exps"), e, n, f)
            out.append(m.part(first * n, last * n))
        if stop > e:
            m = self.weights.matrix(self._name("down", "shexp"), n, (self.moe.total - e) * f)
            out += [m.columns(i * f, f) for i in range(max(first - e, 0), stop - e)]
        return out

    def _stacks(
        self, name: str, kinds: Sequence[Parts], bias: Callable[[Container], Floats | None] | None
        = None,
    ) -> tuple[Stack, ...]:
        each = sum(sum(m.nbytes for m in parts(0, 1)) for parts in kinds)
        most = max(1, self.weights.limit // each)
        if each > self.weights.limit:
            raise ModelError(
                self.weights.path, f"one expert takes {each} bytes, more than the "
                f"{self.weights.limit} bytes that one binding may have on this device",
                f"tensor '{self.label}{name}'",
            )  # fmt: skip
        out = []
        for first in range(0, self.total, most):
            stop = min(first + most, self.total)
            parts = [m for kind in kinds for m in kind(first, stop)]
            if "ffn_down_exps.bias" in self.spec.has and parts[0].fmt.name in PLAIN_FORMATS:
                raise ModelError(
                    self.weights.path, f"experts with biases cannot be {parts[0].fmt.name}",
                    f"tensor '{self.label}{name}'",
                )  # fmt: skip
            w = self.weights.stack(f"{self.label}{name}[{first}:{stop}]", parts)
            made = self._bias(name, bias, first, stop) if bias else None
            out.append(Stack(w, first, stop - first, made))
        return tuple(out)

    def _bias(
        self, name: str, make: Callable[[Container], Floats | None], first: int, stop: int
    ) -> Weight | None:
        """Biases (kinds, experts, rows) of a range of experts, in one row."""
        if "ffn_down_exps.bias" not in self.spec.has:
            return None

        def row(c: Container) -> Floats:
            values = make(c)
            assert values is not None
            return values[:, first:stop].reshape(1, -1)

        return self.weights.table(f"{self.label}{name}.bias[{first}:{stop}]", row)

    def _inner_bias(self, c: Container) -> Floats:
        e, f = self.moe.routing.experts, self.moe.n_ff
        names = [f"{self.label}ffn_{kind}_exps.bias" for kind in ("gate", "up")]
        return np.stack([c.matrix(name, e, f).dequantize() for name in names])

    def _down_bias(self, c: Container) -> Floats:
        name = f"{self.label}ffn_down_exps.bias"
        return c.matrix(name, self.moe.routing.experts, self.spec.n_embd).dequantize()[None]

    def _router_bias(self, c: Container) -> Floats:
        """Rows: added to the logits, added to the scores."""
        e = self.moe.routing.experts
        out = np.zeros((2, e), np.float32)
        for row, name in zip(out, ("ffn_gate_inp.bias", "exp_probs_b.bias"), strict=True):
            if self.label + name in c.tensors:
                row[:] = c.vector(self.label + name, e)
        return out
