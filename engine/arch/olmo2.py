"""OLMo 2 and 3 (arXiv:2501.00656): norms behind both halves of a layer and none before them;
queries and keys are normalised over all heads. In OLMo 3 three of four layers see a window."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..container import Container
from ..heads import HeadOps
from ..keys import Keys
from ..plan import Buf, Phase
from ..rope import RopeSpec
from ..shapes import Shapes, attention, gated_ffn, model_shapes, post_norms
from ..spec_common import MAX_CTX, common_spec, layer_specs, refuse_experts, with_windows
from ..spec_model import LayerSpec, ModelSpec
from .family import Family, qkv_names

if TYPE_CHECKING:
    from ..builder import Builder


def spec(c: Container, k: Keys) -> ModelSpec:
    """Local layers rotate without the scaling of the others."""
    refuse_experts(c, k)
    window = k.integer("attention.sliding_window", 0, MAX_CTX, 0)
    layers = layer_specs(k)
    if window:
        layers = with_windows(k, layers, 4, window, rope=1)
    s = common_spec(c, k, "halves", layers=layers)
    local = RopeSpec(s.rope.dims, s.rope.freq_base, orig_ctx=s.n_ctx_train, mode="halves")
    return replace(s, ropes=(*s.ropes, local) if window else s.ropes)


def wide_norms(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """Norms of all queries and of all keys of a token."""
    return {"attn_q_norm.weight": (layer.q_dim,), "attn_k_norm.weight": (layer.kv_dim,)}


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, attention, wide_norms, post_norms, gated_ffn)


def layers(b: Builder) -> Buf:
    """Embedding and all layers."""
    s = b.spec
    x = b.buf("x", s.n_embd)
    b.embed(x, "token_embd.weight", "")
    for i in range(s.n_layer):
        w, att, ffn = f"blk.{i}.", b.heads_buf(i), b.ffn_buf(i)
        normed = HeadOps((), w + "attn_q_norm.weight", w + "attn_k_norm.weight", over_all=True)
        out, down = w + "attn_output.weight", w + "ffn_down.weight"
        post_out, post_down = w + "post_attention_norm.weight", w + "post_ffw_norm.weight"
        after = "" if i + 1 < s.n_layer else "output_norm.weight"
        heads = b.qkv(x, "", qkv_names(s, i), i, normed)
        b.attend(heads, att, i)
        b.project_norm_add(att, out, post_out, x, Phase.OUT, "")
        b.gated(x, "", [w + "ffn_gate.weight", w + "ffn_up.weight"], ffn)
        b.project_norm_add(ffn, down, post_down, x, Phase.FFN, after)
    return x


FAMILY = Family(spec, shapes, layers)
