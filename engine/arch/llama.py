"""Llama: grouped-query attention with rotary positions, SwiGLU feed-forward, pre-norms.

Llama 1-3, Mistral, SmolLM (Touvron et al. 2023). One line is one kernel, or its batch form. Granite
Code, Bielik 3 and InternLM, which are files of this architecture, have biases as well.
"""

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
    gated_ffn,
    model_shapes,
    other_bias,
    pre_norms,
)
from ..spec_common import MAX_CTX, common_spec, layer_specs, refuse_experts
from ..spec_model import ModelSpec
from .family import Family, biased_add, inner_bias, next_gain, qkv_bias, qkv_names

if TYPE_CHECKING:
    from ..builder import Builder


def spec(c: Container, k: Keys) -> ModelSpec:
    """All layers see a sliding window where the file names one (Mistral)."""
    refuse_experts(c, k)
    window = k.integer("attention.sliding_window", 0, MAX_CTX, 0)
    return common_spec(c, k, "interleaved", layers=layer_specs(k, window))


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, pre_norms, attention, attention_bias, gated_ffn, other_bias)


def layers(b: Builder) -> Buf:
    """Embedding and all layers; returns the residual stream x (batch, n_embd)."""
    s = b.spec
    x = b.buf("x", s.n_embd)
    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    for i in range(s.n_layer):
        w, att, ffn = f"blk.{i}.", b.heads_buf(i), b.ffn_buf(i)
        heads = HeadOps(bias=qkv_bias(s, i))
        qkv = b.qkv(x, w + "attn_norm.weight", qkv_names(s, i), i, heads)
        b.attend(qkv, att, i)
        biased_add(b, att, w + "attn_output", x, Phase.OUT, w + "ffn_norm.weight")
        gate_up = [w + "ffn_gate.weight", w + "ffn_up.weight"]
        b.gated(x, w + "ffn_norm.weight", gate_up, ffn, bias=inner_bias(s, i))
        biased_add(b, ffn, w + "ffn_down", x, Phase.FFN, next_gain(s, i))
    return x


FAMILY = Family(spec, shapes, layers)
