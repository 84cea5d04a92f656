"""Plans of a single token with float32 activations: seven dispatches per layer of a llama."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels import (
    attention,
    attention_combine,
    geglu,
    matvec_add,
    norm_matvec_geglu,
    norm_matvec_swiglu,
    swiglu,
)
from .builder import Builder, Push
from .builder_mla import token_latent
from .builder_moe import token_experts
from .builder_sinks import has_sinks, token_sinks
from .heads import PLAIN, HeadOps
from .plan import Buf, Phase

# by activation: the gate alone, and with norm and both projections
GATES = {
    "silu": (swiglu.KERNEL, norm_matvec_swiglu.KERNEL),
    "gelu": (geglu.KERNEL, norm_matvec_geglu.KERNEL),
}


class TokenBuilder(Builder):
    """One token, float32."""

    def qkv(
        self, x: Buf, gain: str, names: Sequence[str], layer: int, ops: HeadOps = PLAIN
    ) -> Buf:
        """Norm and projections fused, then what heads go through and the cache write."""
        y, rows = self.qkv_buf(layer), self.qkv_rows(names, layer)
        self.read(x, gain, names, rows, y, Phase.QKV)
        return self.finish_heads(y, layer, ops)

    def read(
        self, x: Buf, gain: str, names: Sequence[str], rows: Sequence[int], y: Buf, phase: Phase
    ) -> None:
        """y = [W1; W2; …] x, normalised if there is a gain."""
        if gain:
            self.norm_project_last(x, gain, names, rows, y, phase)
        else:
            self.project_last(x, names, rows, y, phase)

    def attend(self, qkv: Buf, y: Buf, layer: int) -> None:
        """Splits of the context side by side, then joined."""
        if has_sinks(self):
            token_sinks(self, qkv, y, layer)
            return
        s, splits, part = self.layer(layer), self.opts.splits, self.part(layer)
        label, phase = f"blk.{layer}.attention", Phase.ATTENTION
        k, v = self.cache("k", layer), self.cache("v", layer)
        params = self.attention(layer) | {"splits": splits}
        self.add(attention.KERNEL, phase, label, params, qkv=qkv, k=k, v=v, part=part)
        join: Push = {"n_head": s.n_head, "head_dim": s.head_dim, "splits": splits}
        self.add(attention_combine.KERNEL, phase, label, join, part=part, y=y)

    def project_add(self, x: Buf, name: str, y: Buf, phase: Phase, gain: str) -> None:
        """One mat-vec that adds to y."""
        for w, first in self.weights.rows([name], [y.cols], x.cols):
            params = self.product(w, x.cols, y, first)
            self.add(matvec_add.KERNEL, phase, w.name, params, x=x, w=w, y=y)

    def latent(self, x: Buf, gain: str, y: Buf, layer: int) -> None:
        """See builder_mla.py."""
        token_latent(self, x, gain, y, layer)

    def experts(self, x: Buf, gain: str, layer: int, after: str) -> None:
        """See builder_moe.py."""
        token_experts(self, x, gain, layer, after)

    def project_norm_add(
        self, x: Buf, name: str, norm: str, y: Buf, phase: Phase, gain: str, scale: float = 1.0
    ) -> None:
        """A mat-vec, then the norm and the sum."""
        product = self.buf("product", y.cols)
        self.project_last(x, [name], [y.cols], product, phase)
        self.norm_add(product, norm, y, phase, gain, scale)

    def narrow(self, x: Buf, name: str, rows: int, cols: int, y: Buf, phase: Phase) -> None:
        """One mat-vec."""
        self.narrow_last(x, name, rows, cols, y, phase)

    def gated(
        self, x: Buf, gain: str, names: Sequence[str], y: Buf, gate: str = "silu",
        bias: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Norm, both projections and the gate in one kernel where the weights stack."""
        n_ff, phase, rows = y.cols, Phase.FFN, self.gated_rows(names, y.cols)
        if bias or not gain or not self.stacks(names, n_ff, x.cols):
            both = self.buf(f"gate_up.{n_ff}", 2 * n_ff)
            self.read(x, gain, names, rows, both, phase)
            self.add_bias(both, bias, phase)
            self.add(GATES[gate][0], phase, "|".join(names), {"n_ff": n_ff}, gu=both, y=y)
            return
        ((w, _),) = self.weights.rows(names, rows, x.cols)
        g = self.weights.vector(gain, x.cols)
        params = self.product(w, x.cols, y, 0) | {"rows": n_ff, "eps": self.spec.eps}
        self.add(GATES[gate][1], phase, w.name, params, x=x, g=g, w=w, y=y)
