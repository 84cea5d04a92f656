"""GLM-4: norms before and behind both halves of a layer, gate and up stacked, half of each head
rotates by neighbouring pairs."""

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
    post_norms,
    pre_norms,
    stacked_ffn,
)
from ..spec_common import common_spec, refuse_experts
from ..spec_model import ModelSpec
from .family import Family, next_gain, qkv_bias, qkv_names

if TYPE_CHECKING:
    from ..builder import Builder


def spec(c: Container, k: Keys) -> ModelSpec:
    """Nothing but the common keys; rotation by image coordinates is refused."""
    refuse_experts(c, k)
    sections = k.get("rope.dimension_sections")
    if sections is not None and any(int(v) for v in sections):
        raise k.fail("rope.dimension_sections", "rotation by several coordinates is not supported")
    return common_spec(c, k, "interleaved")


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, pre_norms, attention, attention_bias, post_norms, stacked_ffn)


def layers(b: Builder) -> Buf:
    """Embedding and all layers."""
    s = b.spec
    x = b.buf("x", s.n_embd)
    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    for i in range(s.n_layer):
        w, att, ffn = f"blk.{i}.", b.heads_buf(i), b.ffn_buf(i)
        biased = HeadOps(bias=qkv_bias(s, i))
        out, down = w + "attn_output.weight", w + "ffn_down.weight"
        post_out, post_down = w + "post_attention_norm.weight", w + "post_ffw_norm.weight"
        heads = b.qkv(x, w + "attn_norm.weight", qkv_names(s, i), i, biased)
        b.attend(heads, att, i)
        b.project_norm_add(att, out, post_out, x, Phase.OUT, w + "ffn_norm.weight")
        b.gated(x, w + "ffn_norm.weight", [w + "ffn_up.weight"], ffn)
        b.project_norm_add(ffn, down, post_down, x, Phase.FFN, next_gain(s, i))
    return x


FAMILY = Family(spec, shapes, layers)
