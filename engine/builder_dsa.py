"""The choice of positions for sparse latent attention, in float32 products in every form.

Where the context holds no more positions than may be chosen, nothing is computed for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..kernels import dsa_keys, dsa_scores, dsa_select, matmul, matvec, norm_slice, rmsnorm
from .container import Container
from .mla_weights import MlaWeights
from .plan import Buf, Phase, Role, Weight
from .spec_dsa import DsaSpec

if TYPE_CHECKING:
    from .builder import Builder, Push

EPS = 1e-6  # of the layer norm of keys (DeepSeek V3.2)


def chooses(b: Builder) -> DsaSpec | None:
    """The indexer, if the context is long enough for it to matter."""
    d = b.spec.dsa
    return d if d is not None and b.opts.n_ctx > d.most else None


def chosen_buf(b: Builder, d: DsaSpec) -> Buf:
    """Positions that the tokens of a batch see (batch, most)."""
    return Buf("dsa.chosen", (b.opts.batch, d.most), "U32")


class Indexer:
    """Dispatches of one layer; `single`: the plan is of one token."""

    def __init__(self, b: Builder, d: DsaSpec, layer: int, single: bool) -> None:
        assert b.spec.mla is not None
        self.b, self.d, self.layer, self.single = b, d, layer, single
        self.w = MlaWeights(b.spec.mla, b.weights, layer)
        self.label = f"blk.{layer}.indexer."

    def choose(self, x: Buf, gain: str, a: Buf) -> None:
        """Positions from the layer's input x and from the compressed queries that a begins with."""
        own = self.keys_and_weights(x, gain)
        q = self.queries(a)
        b, d, positions = self.b, self.d, self.b.opts.n_ctx
        score = Buf("dsa.score", (b.opts.batch, positions))
        turn = self.turn()
        params: Push = turn | {
            "heads": d.heads, "w_stride": own.cols, "w_off": d.dim, "most": d.most,
            "positions": positions, "scale": (d.heads * d.dim) ** -0.5,
        }  # fmt: skip
        b.add(dsa_scores.KERNEL, Phase.CORE, self.label + "scores", params, q=q, w=own,
              k=self.cache(), rope=b.rope(self.layer), score=score)  # fmt: skip
        b.add(dsa_select.KERNEL, Phase.CORE, self.label + "choice",
              {"most": d.most, "positions": positions}, score=score,
              chosen=chosen_buf(b, d))  # fmt: skip

    def turn(self) -> Push:
        """How values are turned."""
        n_rot = self.w.m.n_rot
        return {"n_rot": n_rot, "apart": n_rot // 2 if self.d.halves else 1}

    def cache(self) -> Buf:
        """Keys of all positions (n_ctx, dim)."""
        shape = (self.b.opts.n_ctx, self.d.dim)
        return Buf(f"i.{self.layer}", shape, self.b.opts.cache_k, Role.CACHE)

    def product(self, x: Buf, w: Weight, y: Buf, first: int) -> None:
        """Columns of y from x in float32."""
        params = self.b.product(w, w.cols, y, first)
        kernel = matvec.KERNEL
        if not self.single:
            kernel, params = matmul.KERNEL, params | {"x_stride": x.cols}
        self.b.add(kernel, Phase.Q_PREP, w.name, params, x=x, w=w, y=y)

    def keys_and_weights(self, x: Buf, gain: str) -> Buf:
        """Keys (written into the cache) and the heads' weights (batch, dim + heads)."""
        b, d = self.b, self.d
        normed, own = b.buf("normed", x.cols), b.buf("dsa.own", d.dim + d.heads)
        g = b.weights.vector(gain, x.cols)
        norm: Push = {"n_embd": x.cols, "eps": b.spec.eps}
        b.add(rmsnorm.KERNEL, Phase.Q_PREP, gain, norm, x=x, g=g, y=normed)
        names = [self.label + "attn_k.weight", self.label + "proj.weight"]
        for w, first in b.weights.rows(names, [d.dim, d.heads], x.cols):
            self.product(normed, w, own, first)

        def gains(c: Container) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
            return np.stack([c.vector(f"{self.label}k_norm.{p}", d.dim)
                             for p in ("weight", "bias")])  # fmt: skip

        params: Push = self.turn() | {"x_stride": own.cols, "x_off": 0, "eps": EPS}
        b.add(dsa_keys.KERNEL, Phase.Q_PREP, self.label + "k_norm", params, x=own,
              h=b.weights.table(self.label + "k_norm", gains), rope=b.rope(self.layer),
              k=self.cache())  # fmt: skip
        return own

    def queries(self, a: Buf) -> Buf:
        """The indexer's queries (batch, heads * dim)."""
        b, d, m = self.b, self.d, self.w.m
        normed = b.buf(f"dsa.normed.{self.w.q_cols}", self.w.q_cols)
        norm: Push = {
            "cols": self.w.q_cols, "width": m.q_rank, "x_stride": a.cols, "x_off": 0,
            "y_stride": normed.cols, "eps": b.spec.eps,
        }  # fmt: skip
        gain = f"blk.{self.layer}.attn_q_a_norm.weight"
        g = b.weights.vector(gain, m.q_rank)
        b.add(norm_slice.KERNEL, Phase.Q_PREP, gain, norm, x=a, g=g, y=normed)
        q = b.buf("dsa.q", d.heads * d.dim)
        w = b.weights.padded(self.label + "attn_q_b.weight", d.heads * d.dim, m.q_rank)
        self.product(normed, w, q, 0)
        return q


def choose_positions(b: Builder, x: Buf, gain: str, a: Buf, layer: int, single: bool) -> None:
    """The layer's choice, if it makes one of its own."""
    d = chooses(b)
    if d is not None and d.full[layer]:
        Indexer(b, d, layer, single).choose(x, gain, a)
