"""Llama: grouped-query attention with rotary positions, SwiGLU feed-forward, pre-norms.

Llama 1-3, Mistral, SmolLM (Touvron et al. 2023). One line is one kernel, or its batch form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..container import Container
from ..keys import Keys
from ..plan import Buf, Phase
from ..shapes import Shapes, attention, gated_ffn, model_shapes, pre_norms
from ..spec_common import MAX_CTX, common_spec, layer_specs, refuse_experts
from ..spec_model import ModelSpec
from .family import Family, next_gain, qkv_names

if TYPE_CHECKING:
    from ..builder import Builder


def spec(c: Container, k: Keys) -> ModelSpec:
    """All layers see a sliding window where the file names one (Mistral)."""
    refuse_experts(c, k)
    window = k.integer("attention.sliding_window", 0, MAX_CTX, 0)
    return common_spec(c, k, "interleaved", layers=layer_specs(k, window))


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, pre_norms, attention, gated_ffn)


def layers(b: Builder) -> Buf:
    """Embedding and all layers; returns the residual stream x (batch, n_embd)."""
    s = b.spec
    x = b.buf("x", s.n_embd)
    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    for i in range(s.n_layer):
        w, att, ffn = f"blk.{i}.", b.heads_buf(i), b.ffn_buf(i)
        qkv = b.qkv(x, w + "attn_norm.weight", qkv_names(s, i), i)
        b.attend(qkv, att, i)
        b.project_add(att, w + "attn_output.weight", x, Phase.OUT, w + "ffn_norm.weight")
        b.gated(x, w + "ffn_norm.weight", [w + "ffn_gate.weight", w + "ffn_up.weight"], ffn)
        b.project_add(ffn, w + "ffn_down.weight", x, Phase.FFN, next_gain(s, i))
    return x


FAMILY = Family(spec, shapes, layers)
