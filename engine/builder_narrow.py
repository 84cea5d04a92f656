"""Plans of a single token of narrow dense models in short contexts: three dispatches per layer.

A layer of few bytes takes as long as its dispatches wait for each other, so they are fewer here
and do some work again in every workgroup. The residual stream is a buffer of parts (kernels/
narrow.py): attention with its output projection leaves one part per head, the feed-forward network
one per slice of its inner values.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels import attention_out_q8, narrow, sum_ffn_q8, sum_q8, sum_qkv_rope_q8
from ..kernels.limits import Limits
from .builder import Push
from .builder_int8 import Int8Builder
from .container import Container
from .heads import PLAIN, HeadOps
from .plan import Buf, Phase
from .spec_model import ModelSpec

WIDEST = 1024  # values of the residual stream
MOST_BYTES = 1 << 17  # of a stream in parts, which every workgroup reads


class NarrowBuilder(Int8Builder):
    """One token, int8, for models that `suits` names. Of two verbs that are one dispatch, the first
    keeps its arguments for the second."""

    _qkv: Buf
    _gated: tuple[str, Sequence[str]]

    def heads_parts(self, x: Buf) -> Buf:
        """The stream behind attention: x as it was before, and a part per head."""
        return Buf(x.name, (1 + self.spec.n_head, x.cols))

    def slice_parts(self, x: Buf) -> Buf:
        """The stream behind the feed-forward network: what it was before, a part per slice."""
        return Buf("parts", (1 + narrow.slices(self.spec.n_ff), x.cols))

    def embed(self, x: Buf, name: str, gain: str) -> None:
        """The only part of the stream so far."""
        super().embed(self.heads_parts(x), name, gain)

    def qkv(
        self, x: Buf, gain: str, names: Sequence[str], layer: int, ops: HeadOps = PLAIN
    ) -> Buf:
        """The first layer reads what embed has quantized."""
        if layer == 0:
            return super().qkv(x, gain, names, layer, ops)
        y, g = self.qkv_buf(layer), self.weights.vector(gain, x.cols)
        ((w, _),) = self.weights.rows(names, self.qkv_rows(names, layer), x.cols)
        params: Push = {"rows": w.rows, "eps": self.spec.eps}
        self.add(
            sum_qkv_rope_q8.KERNEL, Phase.QKV, w.name, params | self.heads(layer), w=w, g=g,
            x=self.slice_parts(x), sum=self.heads_parts(x), y=y, rope=self.rope(layer),
            k=self.cache("k", layer), v=self.cache("v", layer),
        )  # fmt: skip
        return y

    def attend(self, qkv: Buf, y: Buf, layer: int) -> None:
        """With the output projection."""
        self._qkv = qkv

    def gated(
        self, x: Buf, gain: str, names: Sequence[str], y: Buf, gate: str = "silu",
        bias: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """With the down projection."""
        self._gated = gain, names

    def project_add(self, x: Buf, name: str, y: Buf, phase: Phase, gain: str) -> None:
        """A part of the stream for every head, or for every slice."""
        ((w, _),) = self.weights.rows([name], [y.cols], x.cols)
        layer = int(name.split(".")[1])
        if phase is Phase.OUT:
            params = self.attention(layer) | {"rows": y.cols}
            self.add(
                attention_out_q8.KERNEL, Phase.ATTENTION, name, params, w=w, qkv=self._qkv,
                k=self.cache("k", layer), v=self.cache("v", layer), y=self.heads_parts(y),
            )  # fmt: skip
            return
        norm, names = self._gated
        ((both, _),) = self.weights.rows(names, self.gated_rows(names, x.cols), y.cols)
        self.add(
            sum_ffn_q8.KERNEL, phase, both.name, {"rows": x.cols, "eps": self.spec.eps}, w=both,
            d=w, g=self.weights.vector(norm, y.cols), x=self.heads_parts(y), y=self.slice_parts(y),
        )  # fmt: skip

    def head(self, x: Buf, gain: str, name: str, logits: Buf) -> None:
        """The sum of the last parts first."""
        self.add(
            sum_q8.KERNEL, Phase.HEAD, gain, {}, g=self.weights.vector(gain, x.cols),
            x=self.slice_parts(x), y=x, ssq=self.squares(x), **self.quantized(x, "yq", "ys"),
        )  # fmt: skip
        super().head(x, gain, name, logits)


def suits(
    container: Container, spec: ModelSpec, limits: Limits, caches: tuple[str, str]
) -> bool:
    """Whether single tokens of a model may take this form: plain layers of the llama kind, all of
    one size, narrow, in formats that the kernels have; float16 caches ("f16")."""
    first = spec.layers[0]
    plain = (
        spec.arch == "llama" and spec.ropes[0].mode == "interleaved" and len(spec.ropes) == 1
        and not any(".bias" in name for name in spec.tensors) and caches == ("f16", "f16")
        and all(s.cache == i for i, s in enumerate(spec.layers))
        and len({(s.n_head, s.n_head_kv, s.head_dim, s.n_ff) for s in spec.layers}) == 1
    )  # fmt: skip
    if not plain or spec.n_embd > WIDEST or spec.n_embd % 32 or first.n_ff % 32:
        return False
    parts = 1 + max(spec.n_head, narrow.slices(first.n_ff))
    fits = attention_out_q8.suits(first.head_dim, limits) and (
        parts * spec.n_embd * 4 <= MOST_BYTES
    )
    return fits and all(_alike(container, i) for i in range(spec.n_layer))


def _alike(container: Container, layer: int) -> bool:
    """Whether formats of a layer are such that each dispatch has one."""
    groups = ("attn_q", "attn_k", "attn_v", "attn_qkv"), ("attn_output",), (
        "ffn_gate", "ffn_up", "ffn_down")  # fmt: skip
    for group in groups:
        found = {
            t.format_name for part in group
            if (t := container.tensors.get(f"blk.{layer}.{part}.weight"))
        }  # fmt: skip
        if len(found) != 1 or not found <= set(narrow.FORMATS):
            return False
    return True
