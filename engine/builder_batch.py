"""Plans of batches: activations in float32, float16 (matrix cores) or int8 (packed dots)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..kernels import (
    attention_prefill,
    attention_prefill_coop,
    geglu,
    matmul,
    matmul_add,
    matmul_coop,
    matmul_coop_add,
    matmul_coop_geglu,
    matmul_coop_swiglu,
    matmul_int8,
    matmul_int8_add,
    matvec_int8,
    matvec_int8_add,
    quantize_geglu,
    quantize_norm,
    quantize_rows,
    quantize_swiglu,
    rmsnorm,
    swiglu,
)
from ..kernels.kernel import Kernel
from ..kernels.quantize_layout import row_words
from .builder import Builder, Push
from .builder_mla import batch_latent
from .builder_moe_batch import batch_experts
from .builder_sinks import batch_sinks, has_sinks
from .heads import PLAIN, HeadOps
from .plan import Buf, Phase


@dataclass(frozen=True)
class Form:
    """The products of one form of activations."""

    matmul: Kernel
    matmul_add: Kernel


FORMS = {
    "f32": Form(matmul.KERNEL, matmul_add.KERNEL),
    "f16": Form(matmul_coop.KERNEL, matmul_coop_add.KERNEL),
    "int8": Form(matmul_int8.KERNEL, matmul_int8_add.KERNEL),
}
FEW = Form(matvec_int8.KERNEL, matvec_int8_add.KERNEL)


# by activation: the gate in float32; on matrix cores with both projections; to float16 or int8
GATES = {
    "silu": (swiglu.KERNEL, matmul_coop_swiglu.KERNEL, quantize_swiglu.KERNEL),
    "gelu": (geglu.KERNEL, matmul_coop_geglu.KERNEL, quantize_geglu.KERNEL),
}


@dataclass
class BatchBuilder(Builder):
    """A batch of tokens in the form `opts.products`; `few`: at most `opts.few` tokens."""

    few: bool = False

    @property
    def form(self) -> Form:
        """The kernels of this plan's products."""
        return FEW if self.few else FORMS[self.opts.products]

    def factor(self, name: str, width: int) -> Buf:
        """Activations (batch, width) in the form that the products read."""
        if self.opts.products == "f32":
            return self.buf(name, width)
        if self.opts.products == "f16":
            return Buf(f"{name}.f16", (self.opts.batch, width), "F16")
        return Buf(f"{name}.int8", (self.opts.batch, row_words(width)), "U32")

    def normed(self, x: Buf, gain: str, phase: Phase) -> Buf:
        """rmsnorm(x) * gain, or x without a gain, in the form that the products read."""
        if not gain:
            return self.as_factor(x, phase)
        y, g = self.factor("normed", x.cols), self.weights.vector(gain, x.cols)
        if self.opts.products == "f32":
            params: Push = {"n_embd": x.cols, "eps": self.spec.eps}
            self.add(rmsnorm.KERNEL, phase, gain, params, x=x, g=g, y=y)
        else:
            params = {"cols": x.cols, "y_stride": y.cols, "eps": self.spec.eps}
            self.add(quantize_norm.KERNEL, phase, gain, params, x=x, g=g, y=y)
        return y

    def project(
        self, x: Buf, names: Sequence[str], rows: Sequence[int], cols: int, y: Buf, phase: Phase
    ) -> None:
        """y = [W1; W2; …] x; x in the form of `factor`, `cols` values a row."""
        for w, first in self.weights.rows(names, rows, cols):
            params = self.product(w, cols, y, first) | {"x_stride": x.cols}
            self.add(self.form.matmul, phase, w.name, params, x=x, w=w, y=y)

    def as_factor(self, x: Buf, phase: Phase) -> Buf:
        """A float32 buffer in the form that the products read."""
        if self.opts.products == "f32":
            return x
        out = self.factor(x.name, x.cols)
        params: Push = {"cols": x.cols, "x_stride": x.cols, "y_stride": out.cols}
        self.add(quantize_rows.KERNEL, phase, x.name, params, x=x, y=out)
        return out

    def qkv(
        self, x: Buf, gain: str, names: Sequence[str], layer: int, ops: HeadOps = PLAIN
    ) -> Buf:
        """Norm, projections, what heads go through and the cache write."""
        y, rows = self.qkv_buf(layer), self.qkv_rows(names, layer)
        self.project(self.normed(x, gain, Phase.QKV), names, rows, x.cols, y, Phase.QKV)
        return self.finish_heads(y, layer, ops)

    def attend(self, qkv: Buf, y: Buf, layer: int) -> None:
        """Causal attention; the result in the form that the next product reads."""
        if has_sinks(self):
            batch_sinks(self, qkv, y, layer)
            return
        label, phase, out = f"blk.{layer}.attention", Phase.ATTENTION, self.factor(y.name, y.cols)
        k, v = self.cache("k", layer), self.cache("v", layer)
        fits = self.layer(layer).head_dim <= attention_prefill_coop.MAX_DIM
        on_cores = self.opts.coop_attention and fits
        direct = out if out.dtype == "F16" and on_cores else y
        kernel = attention_prefill_coop.KERNEL if on_cores else attention_prefill.KERNEL
        self.add(kernel, phase, label, self.attention(layer), qkv=qkv, k=k, v=v, y=direct)
        if direct.name != out.name:
            self.as_factor(y, phase)

    def project_add(self, x: Buf, name: str, y: Buf, phase: Phase, gain: str) -> None:
        """One product that adds to y."""
        factor = self.factor(x.name, x.cols)
        for w, first in self.weights.rows([name], [y.cols], x.cols):
            params = self.product(w, x.cols, y, first) | {"x_stride": factor.cols}
            self.add(self.form.matmul_add, phase, w.name, params, x=factor, w=w, y=y)

    def latent(self, x: Buf, gain: str, y: Buf, layer: int) -> None:
        """See builder_mla.py."""
        batch_latent(self, x, gain, y, layer)

    def experts(self, x: Buf, gain: str, layer: int, after: str) -> None:
        """See builder_moe_batch.py."""
        batch_experts(self, x, gain, layer, after)

    def project_norm_add(
        self, x: Buf, name: str, norm: str, y: Buf, phase: Phase, gain: str, scale: float = 1.0
    ) -> None:
        """A product, then the norm and the sum."""
        product = self.buf("product", y.cols)
        self.project(self.factor(x.name, x.cols), [name], [y.cols], x.cols, product, phase)
        self.norm_add(product, norm, y, phase, gain, scale)

    def narrow(self, x: Buf, name: str, rows: int, cols: int, y: Buf, phase: Phase) -> None:
        """A product in float16 on matrix cores, else in float32."""
        w, f16 = self.weights.padded(name, rows, cols), self.opts.products == "f16"
        factor = self.as_factor(x, phase) if f16 else x
        kernel = matmul_coop.KERNEL if f16 else matmul.KERNEL
        params = self.product(w, w.cols, y, 0) | {"x_stride": factor.cols}
        self.add(kernel, phase, name, params, x=factor, w=w, y=y)

    def gated(
        self, x: Buf, gain: str, names: Sequence[str], y: Buf, gate: str = "silu",
        bias: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Both projections and the gate in one kernel on matrix cores, else in two."""
        n_ff, phase, label = y.cols, Phase.FFN, "|".join(names)
        normed, out = self.normed(x, gain, phase), self.factor(y.name, n_ff)
        rows = self.gated_rows(names, n_ff)
        if self.opts.products == "f16" and not bias and self.stacks(names, n_ff, x.cols):
            ((w, _),) = self.weights.rows(names, rows, x.cols)
            params = self.product(w, x.cols, out, 0) | {"rows": n_ff, "x_stride": normed.cols}
            self.add(GATES[gate][1], phase, w.name, params, x=normed, w=w, y=out)
            return
        both = self.buf(f"gate_up.{n_ff}", 2 * n_ff)
        self.project(normed, names, rows, x.cols, both, phase)
        self.add_bias(both, bias, phase)
        if self.opts.products == "f32":
            self.add(GATES[gate][0], phase, label, {"n_ff": n_ff}, gu=both, y=out)
        else:
            params = {"cols": n_ff, "y_stride": out.cols}
            self.add(GATES[gate][2], phase, label, params, gu=both, y=out)
