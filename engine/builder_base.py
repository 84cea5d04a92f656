"""What every plan is made of: options, buffers by name, and the list of dispatches."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..kernels.kernel import Kernel
from ..kernels.mla_parts import WHOLE, Parts
from . import step
from .plan import Buf, Dispatch, Operand, Phase, Role
from .rope import rope_name
from .spec_model import LayerSpec, ModelSpec
from .weights import Weights

Push = dict[str, int | float]
SHORT = 512  # positions up to which single tokens attend one head a workgroup
# … up to which a workgroup does all that a head of latent attention does, and up to which that is
# left to plain arithmetic where few heads would fill matrix cores badly: by measurements on an H200
SHORT_LATENT, PLAIN_LATENT, FEW_HEADS = 256, 2048, 32


@dataclass(frozen=True)
class PlanOptions:
    """What an executor decides about its plans. `binding_bytes`: most bytes of one weight.

    `int8`: single tokens go through products with activations in int8 (kernels/q8.py).
    `products`: factors of batches: "f32", "f16" (matrix cores) or "int8" (packed dot products).
    `coop_attention`: batches attend on matrix cores too. `tiles`: single tokens attend a
    tile at a time where the caches' types allow it (attention_tiles_q8, mla_attention_coop).
    `reaches`: positions up to which there are plans of their own for single tokens, ascending.
    `short_attention`: plans for short contexts attend without splits (attention_short_q8). `few`:
    batches of at most so many tokens go through products in int8 that read weights once, as
    mat-vecs do (matvec_int8).
    `ring`: caches of layers with a window keep what such layers can still see, else all
    positions. `latent`: what of latent attention a token takes in one dispatch in short contexts:
    "head" (from the compressed query to the heads' values), "parts" (the same in two dispatches,
    with `latent_parts` workgroups per head), "core" (from plain queries on), "" (each stage for
    itself). `choosers`: lanes of the subgroups that choose experts where gates and
    ups are multiplied (experts_q8_choose_swiglu), 0: the router chooses. `prefetch`: weights are
    read ahead beside short attention (prefetching.py). `narrow`: layers are three dispatches in
    short contexts (builder_narrow.py).
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
    tiles: bool = False
    reaches: tuple[int, ...] = ()
    short_attention: bool = False
    few: int = 0
    ring: bool = True
    latent: str = ""
    latent_parts: Parts = WHOLE
    choosers: int = 0
    prefetch: bool = False
    narrow: bool = False


@dataclass
class PlanBase:
    """Collects the dispatches of one plan."""

    spec: ModelSpec
    opts: PlanOptions
    weights: Weights
    reach: int = 0  # positions that a plan of single tokens is made for; 0: any number
    out: list[Dispatch] = field(default_factory=list)

    @property
    def short(self) -> bool:
        """Whether the plan is for contexts of at most SHORT positions."""
        return 0 < self.reach <= SHORT

    def buf(self, name: str, width: int) -> Buf:
        """An activation of (batch, width) float32, shared by all plans."""
        return Buf(name, (self.opts.batch, width))

    def qkv_buf(self, layer: int) -> Buf:
        """Queries, keys and values of a layer; layers of one size share it."""
        width = self.layer(layer).qkv_dim
        return self.buf(f"qkv.{width}", width)

    def heads_buf(self, layer: int) -> Buf:
        """What the heads of a layer make of the values they see."""
        width = self.layer(layer).q_dim
        return self.buf(f"att.{width}", width)

    def ffn_buf(self, layer: int) -> Buf:
        """What is between the projections of a feed-forward network."""
        width = self.layer(layer).n_ff
        return self.buf(f"ffn.{width}", width)

    def layer(self, layer: int) -> LayerSpec:
        """The sizes of a layer."""
        return self.spec.layers[layer]

    @property
    def step(self) -> Buf:
        """The step words."""
        return Buf("step", (step.WORDS,), "U32", Role.STATE)

    @property
    def tokens(self) -> Buf:
        """Token ids of the batch."""
        return Buf("tokens", (self.opts.batch,), "U32", Role.STATE)

    def rope(self, layer: int) -> Buf:
        """Cosines and sines (n_ctx, pairs, 2) of a layer's rotation."""
        index = self.layer(layer).rope
        shape = (self.opts.n_ctx, self.spec.ropes[index].dims // 2, 2)
        return Buf(rope_name(index), shape, role=Role.CONSTANT)

    def cache_rows(self, layer: int) -> int:
        """Rows of the caches that a layer attends to."""
        n_ctx = self.opts.n_ctx
        return self.spec.cache_rows(layer, n_ctx, self.opts.batch) if self.opts.ring else n_ctx

    def ring(self, layer: int) -> int:
        """Rows of a layer's caches where they are rings, else 0."""
        rows = self.cache_rows(layer)
        return rows if rows < self.opts.n_ctx else 0

    def cache(self, which: str, layer: int) -> Buf:
        """Keys ("k") or values ("v") that a layer attends to (cache_rows, n_head_kv * head_dim)."""
        dtype = self.opts.cache_k if which == "k" else self.opts.cache_v
        shape = (self.cache_rows(layer), self.layer(layer).kv_dim)
        return Buf(f"{which}.{self.layer(layer).cache}", shape, dtype, Role.CACHE)

    def add(
        self, kernel: Kernel, phase: Phase, label: str, params: Push,
        **operands: Operand,
    ) -> None:
        """Append one dispatch; `step` is an operand of every kernel."""
        self.out.append(Dispatch(kernel, {**operands, "step": self.step}, params, phase, label))
