"""Gemma 2 (arXiv:2408.00118): norms before and behind both halves of a layer, scores and logits
within soft bounds, every second layer sees a window."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..container import Container
from ..keys import Keys
from ..plan import Buf, Phase
from ..shapes import Shapes, attention, gated_ffn, model_shapes, post_norms, pre_norms
from ..spec_common import common_spec, layer_specs, named_window, refuse_experts, with_windows
from ..spec_model import ModelSpec
from .family import Family, next_gain, qkv_names

if TYPE_CHECKING:
    from ..builder import Builder


WINDOW = 4096
LAYERS_27B = 46  # the model whose scores are scaled by its width per head


def spec(c: Container, k: Keys) -> ModelSpec:
    """Defaults are llama.cpp's: windows of 4096, caps of 50 and 30."""
    refuse_experts(c, k)
    window, notes = named_window(k, WINDOW)
    layers = with_windows(k, layer_specs(k), 2, window)
    s = common_spec(c, k, "halves", layers=layers, notes=notes)
    return replace(
        s,
        embed_scale=s.n_embd**0.5,
        attn_scale=(s.n_embd / s.n_head) ** -0.5 if s.n_layer == LAYERS_27B else 0.0,
        attn_softcap=k.real("attn_logit_softcapping", 0.0, 1e6, 50.0),
        logit_softcap=k.real("final_logit_softcapping", 0.0, 1e6, 30.0),
    )


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, pre_norms, attention, post_norms, gated_ffn)


def layers(b: Builder) -> Buf:
    """Embedding and all layers."""
    s = b.spec
    x = b.buf("x", s.n_embd)
    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    for i in range(s.n_layer):
        w, att, ffn = f"blk.{i}.", b.heads_buf(i), b.ffn_buf(i)
        gate_up = [w + "ffn_gate.weight", w + "ffn_up.weight"]
        out, down = w + "attn_output.weight", w + "ffn_down.weight"
        post_out, post_down = w + "post_attention_norm.weight", w + "post_ffw_norm.weight"
        heads = b.qkv(x, w + "attn_norm.weight", qkv_names(s, i), i)
        b.attend(heads, att, i)
        b.project_norm_add(att, out, post_out, x, Phase.OUT, w + "ffn_norm.weight")
        b.gated(x, w + "ffn_norm.weight", gate_up, ffn, "gelu")
        b.project_norm_add(ffn, down, post_down, x, Phase.FFN, next_gain(s, i))
    return x


FAMILY = Family(spec, shapes, layers)
