"""Gemma (arXiv:2403.08295): embeddings times sqrt(n_embd), GELU gates, tied head."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..container import Container
from ..keys import Keys
from ..plan import Buf, Phase
from ..shapes import Shapes, attention, gated_ffn, model_shapes, pre_norms
from ..spec_common import common_spec, refuse_experts
from ..spec_model import ModelSpec
from .family import Family, next_gain, qkv_names

if TYPE_CHECKING:
    from ..builder import Builder


def spec(c: Container, k: Keys) -> ModelSpec:
    """The width gives the scale of embeddings."""
    refuse_experts(c, k)
    s = common_spec(c, k, "halves")
    return replace(s, embed_scale=s.n_embd**0.5)


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, pre_norms, attention, gated_ffn)


def layers(b: Builder) -> Buf:
    """Embedding and all layers."""
    s = b.spec
    x = b.buf("x", s.n_embd)
    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    for i in range(s.n_layer):
        w, att, ffn = f"blk.{i}.", b.heads_buf(i), b.ffn_buf(i)
        gate_up = [w + "ffn_gate.weight", w + "ffn_up.weight"]
        heads = b.qkv(x, w + "attn_norm.weight", qkv_names(s, i), i)
        b.attend(heads, att, i)
        b.project_add(att, w + "attn_output.weight", x, Phase.OUT, w + "ffn_norm.weight")
        b.gated(x, w + "ffn_norm.weight", gate_up, ffn, "gelu")
        b.project_add(ffn, w + "ffn_down.weight", x, Phase.FFN, next_gain(s, i))
    return x


FAMILY = Family(spec, shapes, layers)
