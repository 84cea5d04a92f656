"""The verbs in which families are written, and what every form of a plan shares.

`arch/*.py` lists a layer with embed, qkv, attend, project_add and gated. A form gives the verbs
their kernels: single tokens in float32 (builder_token.py) or int8 (builder_int8.py), and batches
(builder_batch.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..kernels import embed, norm_matvec, rope_kv, rope_kv_halves
from ..kernels.kernel import Kernel
from . import step
from .plan import Buf, Dispatch, Operand, Phase, Role, Weight
from .spec import ModelSpec
from .weights import Weights

Push = dict[str, int | float]


@dataclass(frozen=True)
class PlanOptions:
    """What an executor decides about its plans. `binding_bytes`: most bytes of one weight.

    `int8`: single tokens go through products with activations in int8 (kernels/q8.py).
    `products`: factors of batches: "f32", "f16" (matrix cores) or "int8" (packed dot products).
    `coop_attention`: batches attend on matrix cores too (float16 caches only).
    """

    n_ctx: int
    batch: int = 512
    cache_k: str = "F16"
    cache_v: str = "F16"
    splits: int = 1
    binding_bytes: int = 1 << 62
    int8: bool = False
    products: str = "f32"
    coop_attention: bool = False


@dataclass
class Builder(ABC):
    """Collects the dispatches of one plan."""

    spec: ModelSpec
    opts: PlanOptions
    weights: Weights
    out: list[Dispatch] = field(default_factory=list)

    def buf(self, name: str, width: int) -> Buf:
        """An activation of (batch, width) float32, shared by all plans."""
        return Buf(name, (self.opts.batch, width))

    @property
    def step(self) -> Buf:
        """The step words."""
        return Buf("step", (step.WORDS,), "U32", Role.STATE)

    @property
    def tokens(self) -> Buf:
        """Token ids of the batch."""
        return Buf("tokens", (self.opts.batch,), "U32", Role.STATE)

    @property
    def rope(self) -> Buf:
        """Cosines and sines (n_ctx, pairs, 2)."""
        return Buf("rope", (self.opts.n_ctx, self.spec.rope.dims // 2, 2), role=Role.CONSTANT)

    def cache(self, which: str, layer: int) -> Buf:
        """Keys ("k") or values ("v") of one layer: (n_ctx, n_head_kv * head_dim)."""
        dtype = self.opts.cache_k if which == "k" else self.opts.cache_v
        shape = (self.opts.n_ctx, self.spec.n_head_kv * self.spec.head_dim)
        return Buf(f"{which}.{layer}", shape, dtype, Role.CACHE)

    def add(
        self, kernel: Kernel, phase: Phase, label: str, params: Push,
        **operands: Operand,
    ) -> None:
        """Append one dispatch; `step` is an operand of every kernel."""
        self.out.append(Dispatch(kernel, {**operands, "step": self.step}, params, phase, label))

    # --- the verbs -----------------------------------------------------------------------------

    def embed(self, x: Buf, name: str, gain: str) -> None:
        """x = rows of the embedding matrix for the tokens; `gain`: of the norm that reads x."""
        s = self.spec
        for w, row0 in self.weights.rows([name], [s.n_vocab], s.n_embd):
            params: Push = {"n_embd": s.n_embd, "row0": row0, "rows": w.rows}
            self.add(embed.KERNEL, Phase.EMBED, name, params, tokens=self.tokens, w=w, x=x)

    @abstractmethod
    def qkv(
        self, x: Buf, gain: str, names: Sequence[str], rows: Sequence[int], y: Buf, layer: int
    ) -> None:
        """y = [Q; K; V] (rmsnorm(x) * gain), q and k rotated, k and v written into the cache."""

    @abstractmethod
    def attend(self, qkv: Buf, y: Buf, layer: int) -> None:
        """y = softmax(q k^T / sqrt(head_dim)) v over the cache, causal."""

    @abstractmethod
    def project_add(self, x: Buf, name: str, y: Buf, phase: Phase, gain: str) -> None:
        """y += W x, the residual connection; `gain`: of the norm that reads y next."""

    @abstractmethod
    def gated(self, x: Buf, gain: str, gate: str, up: str, y: Buf) -> None:
        """y = silu(G xn) * (U xn) with xn = rmsnorm(x) * gain."""

    def head(self, x: Buf, gain: str, name: str, logits: Buf) -> None:
        """logits = W (rmsnorm(x) * gain) for the last token."""
        self.norm_project_last(x, gain, [name], [self.spec.n_vocab], logits, Phase.HEAD)

    # --- shared steps --------------------------------------------------------------------------

    def norm_project_last(
        self, x: Buf, gain: str, names: Sequence[str], rows: Sequence[int], y: Buf, phase: Phase
    ) -> None:
        """y = [W1; W2; …] (rmsnorm(x) * gain) for the last token, in float32; y row 0."""
        g = self.weights.vector(gain, x.cols)
        for w, first in self.weights.rows(names, rows, x.cols):
            params = self.product(w, x.cols, y, first) | {"eps": self.spec.eps}
            self.add(norm_matvec.KERNEL, phase, w.name, params, x=x, g=g, w=w, y=y)

    def rope_and_store(self, qkv: Buf, layer: int) -> None:
        """Rotate q and k, write k and v into the layer's cache."""
        kernel = rope_kv if self.spec.rope.mode == "interleaved" else rope_kv_halves
        self.add(
            kernel.KERNEL, Phase.QKV, f"blk.{layer}.rope", self.heads(), qkv=qkv, rope=self.rope,
            k=self.cache("k", layer), v=self.cache("v", layer),
        )  # fmt: skip

    def heads(self) -> Push:
        """Push words that describe the heads and their rotation."""
        s = self.spec
        return {
            "n_head": s.n_head, "n_head_kv": s.n_head_kv, "head_dim": s.head_dim,
            "n_rot": s.rope.dims,
        }  # fmt: skip

    def attention(self) -> Push:
        """Push words of every attention kernel."""
        s = self.spec
        return {
            "n_head": s.n_head, "n_head_kv": s.n_head_kv, "head_dim": s.head_dim,
            "scale": s.head_dim**-0.5, "window": s.window or 0,
        }  # fmt: skip

    def part(self) -> Buf:
        """What the splits of a decode attention leave: sums, maximum, sum of exponentials."""
        s = self.spec
        return Buf("part", (s.n_head, self.opts.splits, s.head_dim + 2))

    def stacks(self, gate: str, up: str, n_ff: int, cols: int) -> bool:
        """Whether gate and up can be one stacked weight."""
        a, b = (self.weights.matrix(n, n_ff, cols) for n in (gate, up))
        return a.fmt is b.fmt and self.weights.fits(a, b)

    def product(self, w: Weight, cols: int, y: Buf, first: int) -> Push:
        """Push words of a product that fills the columns of y from `first` on."""
        return {"cols": cols, "rows": w.rows, "y_stride": y.cols, "y_off": first}
