"""Layers of grouped-query attention and experts, as several families have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..heads import HeadOps
from ..plan import Buf, Phase
from ..shapes import Shapes, gated_ffn
from ..spec_model import LayerSpec, ModelSpec
from ..spec_moe import router_shapes
from .family import next_gain, qkv_names

if TYPE_CHECKING:
    from ..builder import Builder


def ffn_shapes(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """A dense network, or experts."""
    assert s.moe is not None
    return (router_shapes if s.moe.has_experts(layer.cache) else gated_ffn)(s, layer)


def wide_norms(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """Norms of all queries and of all keys of a token."""
    return {"attn_q_norm.weight": (layer.q_dim,), "attn_k_norm.weight": (layer.kv_dim,)}


def ffn(b: Builder, x: Buf, norm: str, layer: int) -> None:
    """x += a dense network or the chosen experts of rmsnorm(x) * norm."""
    s, w = b.spec, f"blk.{layer}."
    assert s.moe is not None
    if s.moe.has_experts(layer):
        b.experts(x, norm, layer, next_gain(s, layer))
        return
    inner = b.ffn_buf(layer)
    b.gated(x, norm, [w + "ffn_gate.weight", w + "ffn_up.weight"], inner)
    b.project_add(inner, w + "ffn_down.weight", x, Phase.FFN, next_gain(s, layer))


def layers(b: Builder, norm: str, ops: Callable[[str, int], HeadOps]) -> Buf:
    """Embedding and all layers. `norm`: name of the norm before the experts; `ops`: what happens to
    the heads of a layer, by its prefix and number."""
    s = b.spec
    x = b.buf("x", s.n_embd)
    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    for i in range(s.n_layer):
        w, att = f"blk.{i}.", b.heads_buf(i)
        heads = b.qkv(x, w + "attn_norm.weight", qkv_names(s, i), i, ops(w, i))
        b.attend(heads, att, i)
        b.project_add(att, w + "attn_output.weight", x, Phase.OUT, w + norm)
        ffn(b, x, w + norm, i)
    return x
