"""From a container to plans: buffers, weights and the steps that all families share.

`arch/*.py` lists the dispatches of a layer with the verbs of `Builder` (project, attend, …).
Decode (one token) and prefill (a batch) are the same list: a verb picks the mat-vec or the matmul
form. Plans share buffers and weights, so both can be recorded over one allocation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from ..kernels import (
    attention,
    attention_combine,
    attention_prefill,
    attention_prefill_coop,
    attention_q8,
    embed,
    matmul,
    matmul_add,
    matmul_coop,
    matmul_coop_add,
    matmul_coop_swiglu,
    matmul_int8,
    matmul_int8_add,
    matvec_add,
    matvec_q8_add,
    norm_matvec,
    norm_matvec_q8,
    norm_matvec_q8_swiglu,
    norm_matvec_swiglu,
    q8,
    qkv_rope_q8,
    quantize_norm,
    quantize_q8,
    quantize_rows,
    quantize_swiglu,
    rmsnorm,
    rope_kv,
    rope_kv_halves,
    swiglu,
)
from ..kernels.kernel import Kernel
from ..kernels.quantize_layout import row_words
from . import step
from .arch import llama
from .blocks import FORMATS, Matrix
from .container import Container
from .errors import ModelError
from .plan import Buf, Dispatch, Operand, Phase, Plan, Role, Weight
from .spec import ModelSpec

CHUNK = 32  # columns that a kernel takes at a time: every row length is a multiple


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


@dataclass(frozen=True)
class BatchForm:
    """Kernels of batches whose activations are float16 or int8 rows instead of float32."""

    matmul: Kernel
    matmul_add: Kernel


FORMS = {
    "f16": BatchForm(matmul_coop.KERNEL, matmul_coop_add.KERNEL),
    "int8": BatchForm(matmul_int8.KERNEL, matmul_int8_add.KERNEL),
}


class Weights:
    """Weight operands by name, made once: stacks of equal formats, split where too large."""

    def __init__(self, container: Container, binding_bytes: int) -> None:
        self._container, self._limit = container, binding_bytes
        self._made: dict[str, Weight] = {}
        self._matrices: dict[str, Matrix] = {}

    def matrix(self, name: str, rows: int, cols: int) -> Matrix:
        """The named matrix; row lengths that the kernels cannot take are refused."""
        if name not in self._matrices:
            m = self._container.matrix(name, rows, cols)
            if cols % CHUNK:
                raise self._container.fail(name, f"has rows of {cols} values, which is no "
                                                 f"multiple of {CHUNK}")  # fmt: skip
            self._matrices[name] = m
        return self._matrices[name]

    def _weight(self, name: str, parts: tuple[Matrix, ...]) -> Weight:
        return self._made.setdefault(name, Weight(name, parts))

    def vector(self, name: str, n: int) -> Weight:
        """A norm's gain as one float32 row."""
        if name not in self._made:
            values = self._container.vector(name, n)
            self._weight(name, (Matrix.of(FORMATS["F32"], values.view(np.uint8), n),))
        return self._made[name]

    def fits(self, *parts: Matrix) -> bool:
        """Whether the parts can be one binding."""
        return sum(m.raw.nbytes for m in parts) <= self._limit

    def rows(self, names: Sequence[str], rows: Sequence[int], cols: int) -> Iterator[
        tuple[Weight, int]
    ]:
        """The named matrices as (weight, first output row): one stack per run of one format."""
        mats = [(n, self.matrix(n, r, cols)) for n, r in zip(names, rows, strict=True)]
        first = 0
        for _, run in groupby(mats, key=lambda item: item[1].fmt.name):
            group = list(run)
            if self.fits(*(m for _, m in group)):
                yield self._weight("|".join(n for n, _ in group), tuple(m for _, m in group)), first
            else:
                yield from self._split(group, first)
            first += sum(m.rows for _, m in group)

    def _split(self, group: list[tuple[str, Matrix]], first: int) -> Iterator[tuple[Weight, int]]:
        for name, m in group:
            most = max(1, self._limit // m.raw[:1].nbytes)
            for start in range(0, m.rows, most):
                raw = m.raw[start : start + most]
                part = Matrix(m.fmt, raw, len(raw), m.cols)
                yield self._weight(f"{name}[{start}:]", (part,)), first + start
            first += m.rows

    @property
    def all(self) -> tuple[Weight, ...]:
        """Every weight that the plans made so far use, once each."""
        return tuple(self._made.values())


@dataclass
class Builder:
    """Collects the dispatches of one plan. `rows` is the batch: 1 builds the decode form."""

    spec: ModelSpec
    opts: PlanOptions
    weights: Weights
    rows: int
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
        self, kernel: Kernel, phase: Phase, label: str, params: dict[str, int | float],
        **operands: Operand,
    ) -> None:
        """Append one dispatch; `step` is an operand of every kernel."""
        self.out.append(Dispatch(kernel, {**operands, "step": self.step}, params, phase, label))

    @property
    def q8(self) -> bool:
        """Whether this plan takes the int8 forms."""
        return self.opts.int8 and self.rows == 1

    def quantized(self, x: Buf) -> dict[str, Buf]:
        """The int8 form of a vector: quants and (scale, sum) per group of 16."""
        return {
            "q": Buf(f"{x.name}.q", (1, x.cols // 4), "U32"),
            "s": Buf(f"{x.name}.s", (1, x.cols // q8.GROUP, 2)),
        }

    def squares(self, x: Buf) -> Buf:
        """Sums of squares per group of 16, from which the norm follows."""
        return Buf(f"{x.name}.ssq", (1, x.cols // q8.GROUP))

    def embed(self, x: Buf, name: str, gain: str) -> None:
        """x = rows of the embedding matrix for the batch's tokens; `gain`: the first norm's."""
        s = self.spec
        for w, row0 in self.weights.rows([name], [s.n_vocab], s.n_embd):
            params: dict[str, int | float] = {"n_embd": s.n_embd, "row0": row0, "rows": w.rows}
            self.add(embed.KERNEL, Phase.EMBED, name, params, tokens=self.tokens, w=w, x=x)
        if self.q8:
            g, out = self.weights.vector(gain, x.cols), self.quantized(x)
            self.add(
                quantize_q8.KERNEL, Phase.EMBED, gain, {"cols": x.cols}, x=x, g=g,
                yq=out["q"], ys=out["s"], ssq=self.squares(x),
            )  # fmt: skip

    def norm(self, x: Buf, gain: str, y: Buf, phase: Phase) -> None:
        """y = rmsnorm(x) * gain."""
        g = self.weights.vector(gain, x.cols)
        params = {"n_embd": x.cols, "eps": self.spec.eps}
        self.add(rmsnorm.KERNEL, phase, gain, params, x=x, g=g, y=y)

    @property
    def form(self) -> BatchForm | None:
        """The kernels of this plan's batches, None for the float32 ones."""
        return FORMS.get(self.opts.products) if self.rows > 1 else None

    def factor(self, name: str, width: int) -> Buf:
        """Activations (batch, width) in the form that the batch's products read."""
        if self.form is None:
            return self.buf(name, width)
        if self.opts.products == "f16":
            return Buf(f"{name}.f16", (self.opts.batch, width), "F16")
        return Buf(f"{name}.int8", (self.opts.batch, row_words(width)), "U32")

    def normed(self, x: Buf, gain: str, phase: Phase) -> Buf:
        """rmsnorm(x) * gain in the form that the batch's products read."""
        y = self.factor("normed", x.cols)
        if self.form is None:
            self.norm(x, gain, y, phase)
            return y
        g = self.weights.vector(gain, x.cols)
        params = {"cols": x.cols, "y_stride": y.cols, "eps": self.spec.eps}
        self.add(quantize_norm.KERNEL, phase, gain, params, x=x, g=g, y=y)
        return y

    def norm_project(
        self, x: Buf, gain: str, names: Sequence[str], rows: Sequence[int], y: Buf, phase: Phase
    ) -> None:
        """y = [W1; W2; …] (rmsnorm(x) * gain): fused for one token, through `normed` for more."""
        if self.rows > 1:
            normed = self.normed(x, gain, phase)
            self.project(normed, names, rows, x.cols, y, phase)
            return
        self.norm_project_last(x, gain, names, rows, y, phase)

    def norm_project_last(
        self, x: Buf, gain: str, names: Sequence[str], rows: Sequence[int], y: Buf, phase: Phase
    ) -> None:
        """The fused form for the last token of the batch; y row 0."""
        g = self.weights.vector(gain, x.cols)
        for w, first in self.weights.rows(names, rows, x.cols):
            params = self._product(w, x.cols, y, first) | {"eps": self.spec.eps}
            self.add(norm_matvec.KERNEL, phase, w.name, params, x=x, g=g, w=w, y=y)

    def project(
        self, x: Buf, names: Sequence[str], rows: Sequence[int], cols: int, y: Buf, phase: Phase
    ) -> None:
        """y = [W1; W2; …] x for a batch; x in the form of `factor`, `cols` values a row."""
        kernel = self.form.matmul if self.form else matmul.KERNEL
        for w, first in self.weights.rows(names, rows, cols):
            params = self._product(w, cols, y, first) | {"x_stride": x.cols}
            self.add(kernel, phase, w.name, params, x=x, w=w, y=y)

    def project_add(self, x: Buf, name: str, y: Buf, phase: Phase, gain: str) -> None:
        """y += W x, the residual connection; `gain`: of the norm that reads y next."""
        if self.q8:
            ((w, _),) = self.weights.rows([name], [y.cols], x.cols)
            a, out, g = self.quantized(x), self.quantized(y), self.weights.vector(gain, y.cols)
            params: dict[str, int | float] = {"cols": x.cols, "rows": w.rows}
            self.add(
                matvec_q8_add.KERNEL, phase, name, params, w=w, xq=a["q"], xs=a["s"], g=g, y=y,
                yq=out["q"], ys=out["s"], ssq=self.squares(y),
            )  # fmt: skip
            return
        if self.rows == 1:
            for w, first in self.weights.rows([name], [y.cols], x.cols):
                params = self._product(w, x.cols, y, first)
                self.add(matvec_add.KERNEL, phase, w.name, params, x=x, w=w, y=y)
            return
        kernel = self.form.matmul_add if self.form else matmul_add.KERNEL
        factor = self.factor(x.name, x.cols)
        for w, first in self.weights.rows([name], [y.cols], x.cols):
            params = self._product(w, x.cols, y, first) | {"x_stride": factor.cols}
            self.add(kernel, phase, w.name, params, x=factor, w=w, y=y)

    def qkv(
        self, x: Buf, gain: str, names: Sequence[str], rows: Sequence[int], y: Buf, layer: int
    ) -> None:
        """y = [Q; K; V] (rmsnorm(x) * gain), q and k rotated, k and v written into the cache."""
        if not self.q8:
            self.norm_project(x, gain, names, rows, y, Phase.QKV)
            self.rope_and_store(y, layer)
            return
        fused = self.spec.rope.mode == "interleaved"
        for w, first in self.weights.rows(names, rows, x.cols):
            params = {"cols": x.cols, "rows": w.rows, "y_off": first, "eps": self.spec.eps}
            a = self.quantized(x)
            operands: dict[str, Operand] = {
                "w": w, "xq": a["q"], "xs": a["s"], "ssq": self.squares(x), "y": y,
            }  # fmt: skip
            if not fused:
                self.add(norm_matvec_q8.KERNEL, Phase.QKV, w.name, params, **operands)
                continue
            self.add(
                qkv_rope_q8.KERNEL, Phase.QKV, w.name, params | self._heads(), **operands,
                rope=self.rope, k=self.cache("k", layer), v=self.cache("v", layer),
            )  # fmt: skip
        if not fused:
            self.rope_and_store(y, layer)

    def _heads(self) -> dict[str, int | float]:
        s = self.spec
        return {
            "n_head": s.n_head, "n_head_kv": s.n_head_kv, "head_dim": s.head_dim,
            "n_rot": s.rope.dims,
        }  # fmt: skip

    def _product(self, w: Weight, cols: int, y: Buf, first: int) -> dict[str, int | float]:
        return {"cols": cols, "rows": w.rows, "y_stride": y.cols, "y_off": first}

    def rope_and_store(self, qkv: Buf, layer: int) -> None:
        """Rotate q and k, write k and v into the layer's cache."""
        kernel = rope_kv if self.spec.rope.mode == "interleaved" else rope_kv_halves
        self.add(
            kernel.KERNEL, Phase.QKV, f"blk.{layer}.rope", self._heads(), qkv=qkv, rope=self.rope,
            k=self.cache("k", layer), v=self.cache("v", layer),
        )  # fmt: skip

    def attend(self, qkv: Buf, y: Buf, layer: int) -> None:
        """y = softmax(q k^T / sqrt(head_dim)) v over the cache, causal."""
        s = self.spec
        params: dict[str, int | float] = {
            "n_head": s.n_head, "n_head_kv": s.n_head_kv, "head_dim": s.head_dim,
            "scale": s.head_dim**-0.5, "window": s.window or 0,
        }  # fmt: skip
        label, phase = f"blk.{layer}.attention", Phase.ATTENTION
        k, v = self.cache("k", layer), self.cache("v", layer)
        if self.rows > 1:
            self._attend_batch(params, label, qkv, k, v, y)
            return
        splits = self.opts.splits
        part = Buf("part", (s.n_head, splits, s.head_dim + 2))
        split = params | {"splits": splits}
        if self.q8:
            a, n_kv = self.quantized(y), s.n_head_kv
            self.add(
                attention_q8.KERNEL, phase, label, split, qkv=qkv, k=k, v=v, part=part,
                arrived=Buf("arrived", (n_kv,), "U32", Role.STATE), yq=a["q"], ys=a["s"],
            )  # fmt: skip
            return
        self.add(attention.KERNEL, phase, label, split, qkv=qkv, k=k, v=v, part=part)
        join: dict[str, int | float] = {
            "n_head": s.n_head, "head_dim": s.head_dim, "splits": splits,
        }  # fmt: skip
        self.add(attention_combine.KERNEL, phase, label, join, part=part, y=y)

    def _attend_batch(
        self, params: dict[str, int | float], label: str, qkv: Buf, k: Buf, v: Buf, y: Buf
    ) -> None:
        phase, out = Phase.ATTENTION, self.factor(y.name, y.cols)
        if self.opts.coop_attention:
            direct = out if out.dtype == "F16" else y
            kernel = attention_prefill_coop.KERNEL
            self.add(kernel, phase, label, params, qkv=qkv, k=k, v=v, y=direct)
            if direct is out:
                return
        else:
            self.add(attention_prefill.KERNEL, phase, label, params, qkv=qkv, k=k, v=v, y=y)
        if self.form:
            rows: dict[str, int | float] = {
                "cols": y.cols, "x_stride": y.cols, "y_stride": out.cols,
            }  # fmt: skip
            self.add(quantize_rows.KERNEL, phase, label, rows, x=y, y=out)

    def gated(self, x: Buf, gain: str, gate: str, up: str, y: Buf) -> None:
        """y = silu(G xn) * (U xn) with xn = rmsnorm(x) * gain."""
        n_ff, phase = y.cols, Phase.FFN
        mats = [self.weights.matrix(n, n_ff, x.cols) for n in (gate, up)]
        stacks = mats[0].fmt is mats[1].fmt and self.weights.fits(*mats)
        if self.q8:
            ((w, _),) = self.weights.rows([gate, up], [n_ff, n_ff], x.cols)
            xq, yq = self.quantized(x), self.quantized(y)
            self.add(
                norm_matvec_q8_swiglu.KERNEL, phase, w.name,
                {"cols": x.cols, "rows": n_ff, "eps": self.spec.eps},
                w=w, xq=xq["q"], xs=xq["s"], ssq=self.squares(x), yq=yq["q"], ys=yq["s"],
            )  # fmt: skip
            return
        if self.rows == 1 and stacks:
            ((w, _),) = self.weights.rows([gate, up], [n_ff, n_ff], x.cols)
            g = self.weights.vector(gain, x.cols)
            params = self._product(w, x.cols, y, 0) | {"rows": n_ff, "eps": self.spec.eps}
            self.add(norm_matvec_swiglu.KERNEL, phase, w.name, params, x=x, g=g, w=w, y=y)
            return
        if self.form and self.opts.products == "f16" and stacks:
            normed, out = self.normed(x, gain, phase), self.factor(y.name, n_ff)
            ((w, _),) = self.weights.rows([gate, up], [n_ff, n_ff], x.cols)
            params = self._product(w, x.cols, out, 0) | {"rows": n_ff, "x_stride": normed.cols}
            self.add(matmul_coop_swiglu.KERNEL, phase, w.name, params, x=normed, w=w, y=out)
            return
        both, label = self.buf("gate_up", 2 * n_ff), f"{gate}|{up}"
        self.norm_project(x, gain, [gate, up], [n_ff, n_ff], both, phase)
        if self.form:
            out = self.factor(y.name, n_ff)
            params = {"cols": n_ff, "y_stride": out.cols}
            self.add(quantize_swiglu.KERNEL, phase, label, params, gu=both, y=out)
            return
        self.add(swiglu.KERNEL, phase, label, {"n_ff": n_ff}, gu=both, y=y)


FAMILIES: dict[str, Callable[[Builder], Buf]] = {"llama": llama.layers}


class Forward:
    """The plans of one model for one executor, over shared buffers and weights."""

    def __init__(self, container: Container, spec: ModelSpec, opts: PlanOptions) -> None:
        if spec.head_dim % 4:
            raise ModelError(container.path, f"head size {spec.head_dim} is no multiple of 4")
        self.spec, self.opts = spec, opts
        self.weights = Weights(container, opts.binding_bytes)
        self._output = "token_embd.weight" if spec.tied else "output.weight"

    @property
    def step(self) -> Buf:
        """The step words."""
        return Builder(self.spec, self.opts, self.weights, 1).step

    @property
    def tokens(self) -> Buf:
        """Token ids of the batch."""
        return Builder(self.spec, self.opts, self.weights, 1).tokens

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

    def _builder(self, rows: int) -> tuple[Builder, Buf]:
        b = Builder(self.spec, self.opts, self.weights, rows)
        return b, FAMILIES[self.spec.arch](b)

    def decode(self, sampling: Sequence[Dispatch] = ()) -> Plan:
        """One token: embedding, layers, head, then the sampling dispatches over `logits`."""
        b, x = self._builder(1)
        self._head(b, x)
        return Plan(1, (*b.out, *sampling), "decode")

    def prefill(self, rows: int, tail: Sequence[Dispatch] = (), head: bool = False) -> Plan:
        """A batch of up to `rows` tokens; `head` also computes the last token's logits."""
        b, x = self._builder(rows)
        if head:
            self._head(b, x)
        return Plan(rows, (*b.out, *tail), f"prefill {rows}")

    def score(self) -> Plan:
        """A batch of up to `all_logits.rows` tokens with the logits of every one."""
        b, x = self._builder(max(self.all_logits.rows, 2))
        normed = b.normed(x, "output_norm.weight", Phase.HEAD)
        names, rows = [self._output], [self.spec.n_vocab]
        b.project(normed, names, rows, x.cols, self.all_logits, Phase.HEAD)
        return Plan(self.all_logits.rows, tuple(b.out), "score")

    def _head(self, b: Builder, x: Buf) -> None:
        names, rows = [self._output], [self.spec.n_vocab]
        stacks = list(self.weights.rows(names, rows, x.cols))
        if b.q8 and all(w.fmt.name in q8.FORMATS for w, _ in stacks):
            a = b.quantized(x)
            for w, first in stacks:
                params = {"cols": x.cols, "rows": w.rows, "y_off": first, "eps": self.spec.eps}
                b.add(
                    norm_matvec_q8.KERNEL, Phase.HEAD, w.name, params, w=w, xq=a["q"], xs=a["s"],
                    ssq=b.squares(x), y=self.logits,
                )  # fmt: skip
            return
        b.norm_project_last(x, "output_norm.weight", names, rows, self.logits, Phase.HEAD)


def int8_obstacle(container: Container, spec: ModelSpec, binding_bytes: int) -> str:
    """Why single tokens cannot take the int8 forms: "", or what is in the way.

    They need weights of at most 8 bits in the layers, each product in one binding, and gate and
    up of one format.
    """
    if spec.head_dim % q8.GROUP:
        return f"head size {spec.head_dim} is no multiple of {q8.GROUP}"
    for name, t in container.tensors.items():
        if not name.startswith("blk.") or len(t.shape) < 2:
            continue
        if t.format_name not in q8.FORMATS:
            return f"tensor '{name}' is {t.format_name}"
        if 2 * t.nbytes > binding_bytes:
            return f"tensor '{name}' is too large for one binding"
        other = container.tensors.get(name.replace("ffn_gate", "ffn_up"))
        if other and other.type_id != t.type_id:
            return f"tensor '{name}' and '{other.name}' differ in format"
    return ""
