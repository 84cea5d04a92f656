"""Phi-3, Phi-3.5, Phi-4: a llama with stacked projections, rotation of a part of each head, and
LongRoPE factors for long contexts (arXiv:2404.14219)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..container import Container
from ..heads import HeadOps
from ..keys import Keys
from ..plan import Buf, Phase
from ..shapes import (
    Shapes,
    attention,
    attention_bias,
    model_shapes,
    other_bias,
    pre_norms,
    stacked_ffn,
)
from ..spec_common import MAX_CTX, common_spec, layer_specs, refuse_experts
from ..spec_model import ModelSpec
from .family import Family, biased_add, inner_bias, next_gain, qkv_bias, qkv_names

if TYPE_CHECKING:
    from ..builder import Builder


def spec(c: Container, k: Keys) -> ModelSpec:
    """All layers see a window where the file names one (0: none, as in Phi-4)."""
    refuse_experts(c, k)
    window = k.integer("attention.sliding_window", 0, MAX_CTX, 0)
    return common_spec(c, k, "halves", layers=layer_specs(k, window))


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, pre_norms, attention, attention_bias, stacked_ffn, other_bias)


def layers(b: Builder) -> Buf:
    """Embedding and all layers."""
    s = b.spec
    x = b.buf("x", s.n_embd)
    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    for i in range(s.n_layer):
        w, att, ffn = f"blk.{i}.", b.heads_buf(i), b.ffn_buf(i)
        biased = HeadOps(bias=qkv_bias(s, i))
        heads = b.qkv(x, w + "attn_norm.weight", qkv_names(s, i), i, biased)
        b.attend(heads, att, i)
        biased_add(b, att, w + "attn_output", x, Phase.OUT, w + "ffn_norm.weight")
        gate_up = [w + "ffn_up.weight"]
        b.gated(x, w + "ffn_norm.weight", gate_up, ffn, bias=inner_bias(s, i))
        biased_add(b, ffn, w + "ffn_down", x, Phase.FFN, next_gain(s, i))
    return x


FAMILY = Family(spec, shapes, layers)
