"""Gemma 3 (arXiv:2503.19786): Gemma 2 with norms of heads instead of soft bounds; five of six
layers see a window and have a rope of their own, without the scaling of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..container import Container
from ..heads import HeadOps
from ..keys import Keys
from ..plan import Buf, Phase
from ..rope import RopeSpec
from ..shapes import Shapes, attention, gated_ffn, head_norms, model_shapes, post_norms, pre_norms
from ..spec_common import common_spec, layer_specs, named_window, refuse_experts, with_windows
from ..spec_model import ModelSpec
from .family import Family, next_gain, qkv_names

if TYPE_CHECKING:
    from ..builder import Builder


LOCAL_BASE = 10000.0
LAYERS_27B = 62  # the model whose scores are scaled by its width per head


def spec(c: Container, k: Keys) -> ModelSpec:
    """Without a window all layers see the whole context, with the one rope."""
    refuse_experts(c, k)
    window, notes = named_window(k, 0)
    layers = layer_specs(k)
    if window:
        layers = with_windows(k, layers, 6, window, rope=1)
    s = common_spec(c, k, "halves", layers=layers, notes=notes)
    base = k.real("rope.freq_base_swa", 1.0 + 1e-6, 1e15, LOCAL_BASE)
    local = RopeSpec(s.rope.dims, base, orig_ctx=s.n_ctx_train, mode="halves")
    return replace(
        s,
        ropes=(*s.ropes, local) if window else s.ropes,
        embed_scale=s.n_embd**0.5,
        attn_scale=(s.n_embd / s.n_head) ** -0.5 if s.n_layer == LAYERS_27B else 0.0,
        logit_softcap=k.real("final_logit_softcapping", 0.0, 1e6, 0.0),
    )


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, pre_norms, attention, head_norms, post_norms, gated_ffn)


def layers(b: Builder) -> Buf:
    """Embedding and all layers."""
    s = b.spec
    x = b.buf("x", s.n_embd)
    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    for i in range(s.n_layer):
        w, att, ffn = f"blk.{i}.", b.heads_buf(i), b.ffn_buf(i)
        normed = HeadOps(q_norm=w + "attn_q_norm.weight", k_norm=w + "attn_k_norm.weight")
        gate_up = [w + "ffn_gate.weight", w + "ffn_up.weight"]
        out, down = w + "attn_output.weight", w + "ffn_down.weight"
        post_out, post_down = w + "post_attention_norm.weight", w + "post_ffw_norm.weight"
        heads = b.qkv(x, w + "attn_norm.weight", qkv_names(s, i), i, normed)
        b.attend(heads, att, i)
        b.project_norm_add(att, out, post_out, x, Phase.OUT, w + "ffn_norm.weight")
        b.gated(x, w + "ffn_norm.weight", gate_up, ffn, "gelu")
        b.project_norm_add(ffn, down, post_down, x, Phase.FFN, next_gain(s, i))
    return x


FAMILY = Family(spec, shapes, layers)
