"""From a container to plans: one model's dispatch lists for decode, prefill and scoring.

The plans share buffers and weights, so that all can be recorded over one allocation. Which
kernels a plan takes is the builder's matter (builder.py); what a layer is, the family's (arch/).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..kernels import q8
from .builder import SHORT, Builder, PlanOptions
from .builder_batch import BatchBuilder
from .builder_int8 import Int8Builder
from .builder_narrow import NarrowBuilder
from .builder_token import TokenBuilder
from .container import Container
from .errors import ModelError
from .families import FAMILIES
from .next_row import beyond_row
from .plan import Buf, Dispatch, Phase, Plan, Role
from .prefetching import prefetched
from .spec import ModelSpec
from .weights import Weights

__all__ = ["Forward", "PlanOptions"]

NORM, OUTPUT_BIAS = "output_norm.weight", "output.bias"


class Forward:
    """The plans of one model for one executor, over shared buffers and weights."""

    def __init__(self, container: Container, spec: ModelSpec, opts: PlanOptions) -> None:
        for dim in (layer.head_dim for layer in spec.layers):
            if dim % 4:
                raise ModelError(container.path, f"head size {dim} is no multiple of 4")
        self.spec, self.opts = spec, opts
        scales = dict.fromkeys((NORM, OUTPUT_BIAS), spec.logit_scale)
        self.weights = Weights(container, opts.binding_bytes, scales)
        self._output = "token_embd.weight" if spec.tied else "output.weight"

    def _single(self, reach: int = 0) -> Builder:
        form = Int8Builder if self.opts.int8 else TokenBuilder
        if self.opts.narrow and 0 < reach <= SHORT:
            form = NarrowBuilder
        return form(self.spec, self.opts, self.weights, reach)

    def _layers(self, b: Builder) -> Buf:
        return FAMILIES[self.spec.arch].layers(b)

    def _head(self, b: Builder, x: Buf) -> None:
        b.head(x, NORM, self._output, self.logits)
        self._finish_logits(b, self.logits)

    def _finish_logits(self, b: Builder, logits: Buf) -> None:
        if OUTPUT_BIAS in self.spec.tensors:
            b.add_bias(logits, [OUTPUT_BIAS], Phase.HEAD)
        b.softcap(logits)

    @property
    def step(self) -> Buf:
        """The step words."""
        return self._single().step

    @property
    def tokens(self) -> Buf:
        """Token ids of the batch."""
        return self._single().tokens

    @property
    def logits(self) -> Buf:
        """Logits of the last token (1, n_vocab)."""
        return Buf("logits", (1, self.spec.n_vocab))

    @property
    def all_logits(self) -> Buf:
        """Logits of several tokens: as many rows as keep the buffer near 64 MB, at most 64."""
        size = min(64 << 20, self.opts.binding_bytes) // 4
        rows = max(1, min(self.opts.batch, 64, size // self.spec.n_vocab))
        return Buf("all_logits", (rows, self.spec.n_vocab), role=Role.OUTPUT)

    def decode(self, sampling: Sequence[Dispatch] = (), reach: int = 0) -> Plan:
        """One token: embedding, layers, head, then the sampling dispatches over `logits`, which
        may look up the next embedding (next_row.py).

        `reach`: the fastest form for so few positions; any form gives the right result.
        """
        b = self._single(reach)
        self._head(b, self._layers(b))
        layers = list(prefetched(b.out, b.step)) if self.opts.prefetch else b.out
        layers = [*beyond_row(layers, sampling), *sampling]
        return Plan(1, tuple(layers), f"decode {reach}" if reach else "decode")

    def prefill(self, rows: int, tail: Sequence[Dispatch] = (), head: bool = False) -> Plan:
        """A batch of up to `rows` tokens; `head` also computes the last token's logits."""
        b = self._batch(rows) if rows > 1 else self._single()
        x = self._layers(b)
        if head:
            self._head(b, x)
        return Plan(rows, (*b.out, *tail), f"prefill {rows}")

    def forms(self, sampling: Sequence[Dispatch], history: Dispatch) -> dict[str, Plan]:
        """A plan of every form that a generation takes, by name: all its buffers are theirs."""
        tail = (history, *sampling)
        plans = [self.decode(sampling), self.prefill(max(2, self.opts.batch), tail, head=True)]
        plans += [self.decode(sampling, reach) for reach in self.opts.reaches]
        if self.opts.few:
            plans.append(self.prefill(2, tail, head=True))
        return {plan.name: plan for plan in plans}

    def _batch(self, rows: int) -> Builder:
        if rows > self.opts.few:
            return BatchBuilder(self.spec, self.opts, self.weights)
        opts = replace(self.opts, products="int8")
        return BatchBuilder(self.spec, opts, self.weights, few=True)

    def score(self) -> Plan:
        """A batch of up to `all_logits.rows` tokens with the logits of every one."""
        b = BatchBuilder(self.spec, self.opts, self.weights)
        x = self._layers(b)
        names, rows = [self._output], [self.spec.n_vocab]
        output = self.weights.matrix(self._output, self.spec.n_vocab, x.cols)
        if b.opts.products == "int8" and output.fmt.name not in q8.FORMATS:
            b.opts = replace(b.opts, products="f32")
        normed = b.normed(x, NORM, Phase.HEAD)
        b.project(normed, names, rows, x.cols, self.all_logits, Phase.HEAD)
        self._finish_logits(b, self.all_logits)
        return Plan(self.all_logits.rows, tuple(b.out), "score")
