"""Plans of a single token with int8 activations (kernels/q8.py): five dispatches per layer.

A vector x lives as x.q (quants), x.s (scale and sum per group of 16) and, where a norm reads it,
x.ssq (sums of squares): the kernel that makes x quantizes it, times the gain of the next norm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..kernels import (
    attention_q8,
    attention_short_q8,
    attention_tiles_q8,
    embed_q8,
    matvec_q8_add,
    norm_add_q8,
    norm_matvec_q8,
    norm_matvec_q8_geglu,
    norm_matvec_q8_swiglu,
    q8,
    qkv_rope_q8,
)
from .builder import Builder, Push
from .builder_inputs import InputNames, inputs_int8
from .builder_mixed import ANY_FORMAT, gated_apart, normed_product
from .builder_mla_int8 import int8_latent
from .builder_moe import int8_experts
from .builder_sinks import has_sinks, int8_sinks
from .container import Container
from .heads import PLAIN, HeadOps
from .plan import Buf, Operand, Phase, Role


class Int8Builder(Builder):
    """One token, int8. `obstacle` says whether a model's layers can take this form."""

    def quantized(self, x: Buf, quants: str, scales: str) -> dict[str, Operand]:
        """The int8 form of a vector under the binding names of a kernel."""
        return {
            quants: Buf(f"{x.name}.q", (x.cols // 4,), "U32"),
            scales: Buf(f"{x.name}.s", (x.cols // q8.GROUP, 2)),
        }

    def squares(self, x: Buf) -> Buf:
        """Sums of squares per group of 16, from which the norm follows."""
        return Buf(f"{x.name}.ssq", (x.cols // q8.GROUP,))

    def embed(self, x: Buf, name: str, gain: str) -> None:
        """The row in float32 and quantized."""
        g = self.weights.vector(gain, x.cols)
        for w, row0 in self.weights.rows([name], [self.spec.n_vocab], x.cols):
            params: Push = {"n_embd": x.cols, "row0": row0, "rows": w.rows,
                            "scale": self.spec.embed_scale}  # fmt: skip
            self.add(
                embed_q8.KERNEL, Phase.EMBED, name, params, tokens=self.tokens, w=w, g=g, x=x,
                ssq=self.squares(x), **self.quantized(x, "yq", "ys"),
            )  # fmt: skip

    def norm_of(self, x: Buf, gain: str) -> tuple[Buf, float]:
        """Sums of squares and eps of the norm that x goes through. Without a gain it is none:
        1 / sqrt(0 + 1)."""
        if gain:
            return self.squares(x), self.spec.eps
        widest = max(self.spec.n_embd, *(max(s.q_dim, s.n_ff) for s in self.spec.layers))
        return Buf("zeros", (widest // q8.GROUP,), role=Role.STATE), 1.0

    def qkv(
        self, x: Buf, gain: str, names: Sequence[str], layer: int, ops: HeadOps = PLAIN
    ) -> Buf:
        """One kernel per weight format; rotation and cache write fused for neighbouring pairs.

        Not fused into caches that are quantized: groups of 32 values need a kernel of their own.
        Nor with formats that have no int8 kernels.
        """
        y, rows, s = self.qkv_buf(layer), self.qkv_rows(names, layer), self.layer(layer)
        k, v = self.cache("k", layer), self.cache("v", layer)
        stacks = list(self.weights.rows(names, rows, x.cols))
        known = all(w.fmt.name in q8.FORMATS for w, _ in stacks)
        pairs = self.spec.ropes[s.rope].mode == "interleaved" and qkv_rope_q8.suits(k, v)
        if not (known and pairs and gain and ops == PLAIN and s.cache == layer):
            normed_product(self, x, gain, names, rows, y, Phase.QKV)
            return self.finish_heads(y, layer, ops)
        for w, first in stacks:
            params: Push = {"cols": x.cols, "rows": w.rows, "y_off": first, "eps": self.spec.eps}
            a = self.quantized(x, "xq", "xs") | {"w": w, "ssq": self.squares(x), "y": y}
            self.add(
                qkv_rope_q8.KERNEL, Phase.QKV, w.name, params | self.heads(layer), **a,
                rope=self.rope(layer), k=k, v=v,
            )  # fmt: skip
        return y

    def attend(self, qkv: Buf, y: Buf, layer: int) -> None:
        """All splits and their join in one kernel, by tiles where the caches' types allow it; one
        head a workgroup in short contexts."""
        if has_sinks(self):
            int8_sinks(self, qkv, y, layer)
            return
        k, v, spec = self.cache("k", layer), self.cache("v", layer), self.layer(layer)
        if self.short and self.opts.short_attention:
            self.add(
                attention_short_q8.KERNEL, Phase.ATTENTION, f"blk.{layer}.attention",
                self.attention(layer), qkv=qkv, k=k, v=v, **self.quantized(y, "yq", "ys"),
            )  # fmt: skip
            return
        arrived = Buf("arrived", (max(s.n_head for s in self.spec.layers),), "U32", Role.STATE)
        params, kernel = self.attention(layer) | {"splits": self.opts.splits}, attention_q8.KERNEL
        group = spec.n_head // spec.n_head_kv
        if self.opts.tiles and attention_tiles_q8.takes(k.format_name, v.format_name):
            params["heads"], kernel = 1 if self.short else group, attention_tiles_q8.KERNEL
        self.add(
            kernel, Phase.ATTENTION, f"blk.{layer}.attention", params, qkv=qkv, k=k, v=v,
            part=self.part(layer), arrived=arrived, **self.quantized(y, "yq", "ys"),
        )  # fmt: skip

    def project_add(self, x: Buf, name: str, y: Buf, phase: Phase, gain: str) -> None:
        """Product, sum and quantization for the next norm."""
        ((w, _),) = self.weights.rows([name], [y.cols], x.cols)
        g = self.weights.vector(gain, y.cols)
        self.add(
            matvec_q8_add.KERNEL, phase, name, {"cols": x.cols, "rows": w.rows}, w=w, g=g, y=y,
            ssq=self.squares(y), **self.quantized(x, "xq", "xs"), **self.quantized(y, "yq", "ys"),
        )  # fmt: skip

    def latent(self, x: Buf, gain: str, y: Buf, layer: int) -> None:
        """See builder_mla_int8.py."""
        int8_latent(self, x, gain, y, layer)

    def experts(self, x: Buf, gain: str, layer: int, after: str) -> None:
        """See builder_moe.py."""
        int8_experts(self, x, gain, layer, after)

    def project_norm_add(
        self, x: Buf, name: str, norm: str, y: Buf, phase: Phase, gain: str, scale: float = 1.0
    ) -> None:
        """A product, then norm, sum and quantization."""
        product = self.buf("product", y.cols)
        self.product_q8(x, name, y.cols, product, phase)
        self.norm_add(product, norm, y, phase, gain, scale)

    def product_q8(self, x: Buf, name: str, rows: int, y: Buf, phase: Phase) -> None:
        """The first columns of y = W x for a vector that exists in int8."""
        zeros, one = self.norm_of(x, "")
        for w, first in self.weights.rows([name], [rows], x.cols):
            params: Push = {"cols": x.cols, "rows": w.rows, "y_off": first, "eps": one}
            self.add(
                norm_matvec_q8.KERNEL, phase, w.name, params, w=w, ssq=zeros, y=y,
                **self.quantized(x, "xq", "xs"),
            )  # fmt: skip

    def add_inputs(
        self, x: Buf, names: InputNames, y: Buf, inputs: Buf, layer: int, gain: str, scale: float
    ) -> None:
        """See builder_inputs.py."""
        inputs_int8(self, x, names, y, inputs, layer, gain, scale)

    def norm_add(
        self, x: Buf, norm: str, y: Buf, phase: Phase, gain: str, scale: float = 1.0
    ) -> None:
        """The sum too is quantized for the next norm."""
        post, g = self.weights.vector(norm, y.cols), self.weights.vector(gain, y.cols)
        params: Push = {"cols": y.cols, "eps": self.spec.eps, "scale": scale}
        self.add(
            norm_add_q8.KERNEL, phase, norm, params, x=x, post=post, g=g, y=y,
            ssq=self.squares(y), **self.quantized(y, "yq", "ys"),
        )  # fmt: skip

    def narrow(self, x: Buf, name: str, rows: int, cols: int, y: Buf, phase: Phase) -> None:
        """One mat-vec in float32."""
        self.narrow_last(x, name, rows, cols, y, phase)

    def gated(
        self, x: Buf, gain: str, names: Sequence[str], y: Buf, gate: str = "silu",
        bias: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Norm, both projections, gate and quantization in one kernel where the weights stack."""
        n_ff, (ssq, eps) = y.cols, self.norm_of(x, gain)
        stacks = list(self.weights.rows(names, self.gated_rows(names, n_ff), x.cols))
        if bias or len(stacks) > 1 or stacks[0][0].fmt.name not in q8.FORMATS:
            gated_apart(self, x, gain, names, y, gate, bias)
            return
        kernel, w = norm_matvec_q8_geglu if gate == "gelu" else norm_matvec_q8_swiglu, stacks[0][0]
        self.add(
            kernel.KERNEL, Phase.FFN, w.name, {"cols": x.cols, "rows": n_ff, "eps": eps}, w=w,
            ssq=ssq, **self.quantized(x, "xq", "xs"), **self.quantized(y, "yq", "ys"),
        )  # fmt: skip

    def head(self, x: Buf, gain: str, name: str, logits: Buf) -> None:
        """In int8 if the output matrix is quantized, else in float32."""
        normed_product(self, x, gain, [name], [self.spec.n_vocab], logits, Phase.HEAD)


# Small matrices that are multiplied in float32, and layers that no plan uses
_OWN_FORM = re.compile(
    r"ffn_gate_inp|\.bias$|attn_[kv]_b\.|indexer\.|nextn\.|inp_gate\.|\d\.proj\."
)


def takes_batches(container: Container) -> bool:
    """Whether batches can take int8 products: every matrix of the layers has such kernels."""
    return all(
        t.format_name in q8.FORMATS for name, t in container.tensors.items()
        if name.startswith("blk.") and len(t.shape) > 1 and not _OWN_FORM.search(name)
    )  # fmt: skip


def obstacle(container: Container, binding_bytes: int) -> str:
    """Why single tokens cannot take the int8 forms: "", or what is in the way.

    Matrices that read vectors which exist in int8 only need a format that has int8 kernels, and
    room in one binding; the others may have any format (builder_mixed.py).
    """
    for name, t in container.tensors.items():
        if not name.startswith("blk.") or len(t.shape) < 2 or _OWN_FORM.search(name):
            continue
        if ANY_FORMAT.search(name):
            continue
        if t.format_name not in q8.FORMATS:
            return f"tensor '{name}' is {t.format_name}"
        if 2 * t.nbytes > binding_bytes and "_exps." not in name:  # these go by ranges
            return f"tensor '{name}' is too large for one binding"
        other = container.tensors.get(name.replace("_gate_exps", "_up_exps"))
        if other and other.type_id != t.type_id:
            return f"tensor '{name}' and '{other.name}' differ in format"
    return ""
