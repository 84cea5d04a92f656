"""Qwen3: a llama whose queries and keys are normalised head by head; pairs rotate by halves."""

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
    head_norms,
    model_shapes,
    other_bias,
    pre_norms,
)
from ..spec_common import common_spec, refuse_experts
from ..spec_model import ModelSpec
from .family import Family, biased_add, inner_bias, next_gain, qkv_bias, qkv_names

if TYPE_CHECKING:
    from ..builder import Builder


def spec(c: Container, k: Keys) -> ModelSpec:
    """Nothing but the common keys."""
    refuse_experts(c, k)
    return common_spec(c, k, "halves")


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(
        s, pre_norms, attention, attention_bias, head_norms, gated_ffn, other_bias
    )


def layers(b: Builder) -> Buf:
    """Embedding and all layers."""
    s = b.spec
    x = b.buf("x", s.n_embd)
    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    for i in range(s.n_layer):
        w, att, ffn = f"blk.{i}.", b.heads_buf(i), b.ffn_buf(i)
        normed = HeadOps(qkv_bias(s, i), w + "attn_q_norm.weight", w + "attn_k_norm.weight")
        heads = b.qkv(x, w + "attn_norm.weight", qkv_names(s, i), i, normed)
        b.attend(heads, att, i)
        biased_add(b, att, w + "attn_output", x, Phase.OUT, w + "ffn_norm.weight")
        gate_up = [w + "ffn_gate.weight", w + "ffn_up.weight"]
        b.gated(x, w + "ffn_norm.weight", gate_up, ffn, bias=inner_bias(s, i))
        biased_add(b, ffn, w + "ffn_down", x, Phase.FFN, next_gain(s, i))
    return x


FAMILY = Family(spec, shapes, layers)
