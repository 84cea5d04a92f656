"""The verbs in which families are written, and what every form of a plan shares.

`arch/*.py` lists a layer with embed, qkv, attend, latent, project_add, gated and experts. A form
gives the verbs their kernels: single tokens in float32 (builder_token.py) or int8
(builder_int8.py), and batches (builder_batch.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ..kernels import (
    bias_add,
    embed,
    gelu_mul,
    matvec,
    norm_add,
    norm_matvec,
    norm_rope_kv,
    rope_kv,
    rope_kv_halves,
    softcap,
)
from ..kernels.matvec_launch import ALL_FORMATS
from .builder_base import SHORT, PlanBase, PlanOptions, Push
from .builder_inputs import InputNames, inputs_apart
from .heads import PLAIN, HeadOps
from .plan import Buf, Phase, Weight

__all__ = ["SHORT", "Builder", "PlanOptions", "Push"]


class Builder(PlanBase, ABC):
    """The verbs, each of which appends dispatches."""

    def embed(self, x: Buf, name: str, gain: str) -> None:
        """x = rows of the embedding matrix for the tokens; `gain`: of the norm that reads x."""
        self.lookup(x, name, self.spec.embed_scale)

    def lookup(self, x: Buf, name: str, scale: float) -> None:
        """x = scale * the row of each token in a matrix with a row per token of the vocabulary."""
        for w, row0 in self.weights.rows([name], [self.spec.n_vocab], x.cols):
            params: Push = {"n_embd": x.cols, "row0": row0, "rows": w.rows, "scale": scale}
            self.add(embed.KERNEL, Phase.EMBED, name, params, tokens=self.tokens, w=w, x=x)

    @abstractmethod
    def qkv(
        self, x: Buf, gain: str, names: Sequence[str], layer: int, ops: HeadOps = PLAIN
    ) -> Buf:
        """[Q; K; V] (rmsnorm(x) * gain), q and k rotated, k and v written into the cache.

        `names`: one tensor of all three, or one for each; only q where the layer uses another's
        cache. Without a gain x is not normalised. Returns the buffer with q.
        """

    @abstractmethod
    def attend(self, qkv: Buf, y: Buf, layer: int) -> None:
        """y = softmax(q k^T / sqrt(head_dim)) v over the cache, causal."""

    @abstractmethod
    def project_add(self, x: Buf, name: str, y: Buf, phase: Phase, gain: str) -> None:
        """y += W x, the residual connection; `gain`: of the norm that reads y next."""

    @abstractmethod
    def project_norm_add(
        self, x: Buf, name: str, norm: str, y: Buf, phase: Phase, gain: str, scale: float = 1.0
    ) -> None:
        """y = (y + rmsnorm(W x) * norm) * scale; `gain`: of the norm that reads y next, or ""."""

    def norm_add(
        self, x: Buf, norm: str, y: Buf, phase: Phase, gain: str, scale: float = 1.0
    ) -> None:
        """y = (y + rmsnorm(x) * norm) * scale; `gain`: of the norm that reads y next."""
        self.norm_add_groups(x, norm, y, phase, x.cols, self.spec.eps, scale)

    def add_inputs(
        self, x: Buf, names: InputNames, y: Buf, inputs: Buf, layer: int, gain: str, scale: float
    ) -> None:
        """What a layer makes of x, and of its part of `inputs`, added to y; see
        builder_inputs.py. `gain`: of the norm that reads y next."""
        inputs_apart(self, x, names, y, inputs, layer, gain, scale)

    @abstractmethod
    def gated(
        self, x: Buf, gain: str, names: Sequence[str], y: Buf, gate: str = "silu",
        bias: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """y = silu(G xn) * (U xn), or with gelu, and xn = rmsnorm(x) * gain (x without a gain).

        `names`: gate and up, or one tensor that holds the rows of both. `bias`: of G xn and U xn,
        "" for none, or one of both; with any, products and gate are dispatches of their own.
        """

    @abstractmethod
    def latent(self, x: Buf, gain: str, y: Buf, layer: int) -> None:
        """y = latent attention of rmsnorm(x) * gain, the layer's cache row written."""

    @abstractmethod
    def experts(self, x: Buf, gain: str, layer: int, after: str) -> None:
        """x += the weighted sum of the experts that the layer's router chooses, shared ones too.

        `gain`: of the norm before them; `after`: of the norm that reads x next.
        """

    @abstractmethod
    def narrow(self, x: Buf, name: str, rows: int, cols: int, y: Buf, phase: Phase) -> None:
        """y = W x for a matrix of few rows or columns, factors in float32 where possible."""

    def gelu_mul(self, y: Buf, e: Buf, cols: int, part: int, phase: Phase) -> None:
        """y = gelu(y) * e, the `cols` columns number `part` of e."""
        params: Push = {
            "cols": cols, "y_stride": y.cols, "e_stride": e.cols, "e_off": part * cols,
        }  # fmt: skip
        self.add(gelu_mul.KERNEL, phase, f"{y.name}.{part}", params, y=y, e=e)

    def softcap(self, logits: Buf) -> None:
        """Logits of all rows within the spec's bound, if it has one."""
        if self.spec.logit_softcap:
            params: Push = {"cols": logits.cols, "rows": logits.rows,
                            "cap": self.spec.logit_softcap}  # fmt: skip
            self.add(softcap.KERNEL, Phase.HEAD, "softcap", params, y=logits)

    def head(self, x: Buf, gain: str, name: str, logits: Buf) -> None:
        """logits = W (rmsnorm(x) * gain) for the last token."""
        self.norm_project_last(x, gain, [name], [self.spec.n_vocab], logits, Phase.HEAD)

    def add_bias(self, x: Buf, names: Sequence[str], phase: Phase) -> None:
        """x += a bias, or several of equal size side by side ("": none), for every token; nothing
        without names. A sum that follows quantizes the result anew."""
        if names:
            n, w = x.cols // len(names), self.weights
            b = w.vector(names[0], n) if len(names) == 1 else w.vectors(names, [n] * len(names))
            self.add(bias_add.KERNEL, phase, b.name, {"cols": x.cols, "rows": x.rows}, y=x, b=b)

    # --- shared steps --------------------------------------------------------------------------

    def norm_project_last(
        self, x: Buf, gain: str, names: Sequence[str], rows: Sequence[int], y: Buf, phase: Phase
    ) -> None:
        """y = [W1; W2; …] (rmsnorm(x) * gain) for the last token, in float32; y row 0."""
        g = self.weights.vector(gain, x.cols)
        for w, first in self.weights.rows(names, rows, x.cols):
            params = self.product(w, x.cols, y, first) | {"eps": self.spec.eps}
            self.add(norm_matvec.KERNEL, phase, w.name, params, x=x, g=g, w=w, y=y)

    def project_last(
        self, x: Buf, names: Sequence[str], rows: Sequence[int], y: Buf, phase: Phase
    ) -> None:
        """y = [W1; W2; …] x for the only token of a plan, in float32."""
        for w, first in self.weights.rows(names, rows, x.cols):
            self.add(matvec.KERNEL, phase, w.name, self.product(w, x.cols, y, first), x=x, w=w, y=y)

    def narrow_last(
        self, x: Buf, name: str, rows: int, cols: int, y: Buf, phase: Phase
    ) -> None:
        """y = W x for the only token of a plan; both buffers are wide enough for padding."""
        w = self.weights.padded(name, rows, cols)
        self.add(matvec.KERNEL, phase, name, self.product(w, w.cols, y, 0), x=x, w=w, y=y)

    def norm_add_groups(
        self, x: Buf, norm: str, y: Buf, phase: Phase, cols: int, eps: float, scale: float
    ) -> None:
        """y = (y + rmsnorm(x) * norm) * scale for every `cols` values of a row."""
        params: Push = {"cols": cols, "groups": x.cols // cols, "eps": eps, "scale": scale}
        g = self.weights.vector(norm, cols)
        self.add(norm_add.KERNEL, phase, norm, params, x=x, g=g, y=y)

    def finish_heads(self, qkv: Buf, layer: int, ops: HeadOps) -> Buf:
        """Biases, norms and rotation of heads, and the cache write; the buffer that then has q."""
        s, own = self.layer(layer), self.layer(layer).cache == layer
        if ops == PLAIN and own:
            self.rope_and_store(qkv, layer)
            return qkv
        y = self.buf(f"heads.{s.qkv_dim}", s.qkv_dim)
        q_group = (s.q_dim if ops.over_all else s.head_dim) if ops.q_norm else 0
        k_group = (s.kv_dim if ops.over_all else s.head_dim) if ops.k_norm else 0
        whole = len(ops.bias) == 1
        sizes = [s.qkv_dim] if whole else [s.q_dim, s.kv_dim, s.kv_dim]
        rope = self.spec.ropes[s.rope]
        params = self.heads(layer) | {
            "apart": 1 if rope.mode == "interleaved" else rope.dims // 2,
            "q_group": q_group, "k_group": k_group, "v_group": s.head_dim if ops.v_norm else 0,
            "eps": self.spec.eps, "writes": int(own),
        }  # fmt: skip
        self.add(
            norm_rope_kv.KERNEL, Phase.QKV, f"blk.{layer}.heads", params, qkv=qkv,
            rope=self.rope(layer), bias=self.weights.vectors(ops.bias or ("", "", ""), sizes),
            g=self.weights.vectors((ops.q_norm, ops.k_norm), (q_group or 1, k_group)), y=y,
            k=self.cache("k", layer), v=self.cache("v", layer),
        )  # fmt: skip
        return y

    def rope_and_store(self, qkv: Buf, layer: int) -> None:
        """Rotate q and k, write k and v into the layer's cache."""
        halves = self.spec.ropes[self.layer(layer).rope].mode == "halves"
        self.add(
            (rope_kv_halves if halves else rope_kv).KERNEL, Phase.QKV, f"blk.{layer}.rope",
            self.heads(layer), qkv=qkv, rope=self.rope(layer),
            k=self.cache("k", layer), v=self.cache("v", layer),
        )  # fmt: skip

    def heads(self, layer: int) -> Push:
        """What describes a layer's heads, their rotation and the caches that they go into."""
        s = self.layer(layer)
        return {
            "n_head": s.n_head, "n_head_kv": s.n_head_kv, "head_dim": s.head_dim,
            "n_rot": self.spec.ropes[s.rope].dims, "ring": self.ring(layer),
        }  # fmt: skip

    def attention(self, layer: int) -> Push:
        """Parameters of every attention kernel."""
        s = self.layer(layer)
        return {
            "n_head": s.n_head, "n_head_kv": s.n_head_kv, "head_dim": s.head_dim,
            "scale": self.spec.attn_scale or s.head_dim**-0.5, "window": s.window,
            "softcap": self.spec.attn_softcap, "ring": self.ring(layer),
        }  # fmt: skip

    def part(self, layer: int) -> Buf:
        """What the splits of a decode attention leave: sums, maximum, sum of exponentials."""
        s = self.layer(layer)
        shape = (s.n_head, self.opts.splits, s.head_dim + 2)
        return Buf(f"part.{s.n_head}.{s.head_dim}", shape)

    def qkv_rows(self, names: Sequence[str], layer: int) -> list[int]:
        """Rows of each of the projections that make q, k and v."""
        s = self.layer(layer)
        if s.cache != layer:
            return [s.q_dim]
        return [s.qkv_dim] if len(names) == 1 else [s.q_dim, s.kv_dim, s.kv_dim]

    def gated_rows(self, names: Sequence[str], n_ff: int) -> list[int]:
        """Rows of gate and up, or of the one tensor that holds both."""
        return [2 * n_ff // len(names)] * len(names)

    def stacks(self, names: Sequence[str], n_ff: int, cols: int) -> bool:
        """Whether gate and up can be one weight of a gated kernel."""
        rows = self.gated_rows(names, n_ff)
        parts = [self.weights.matrix(n, r, cols) for n, r in zip(names, rows, strict=True)]
        alike = all(p.fmt is parts[0].fmt for p in parts)
        return alike and parts[0].fmt.name in ALL_FORMATS and self.weights.fits(*parts)

    def product(self, w: Weight, cols: int, y: Buf, first: int) -> Push:
        """Push words of a product that fills the columns of y from `first` on."""
        return {"cols": cols, "rows": w.rows, "y_stride": y.cols, "y_off": first}
