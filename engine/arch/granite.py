"""Granite 3: a llama with multipliers of embeddings, residuals, scores and logits.

x + r f(norm(x)) is r times (u + f(norm(u))) with u = x / r, and norms do not see a factor but for
their eps. So the residual multiplier r goes into the scale of embeddings (1 / r) and into eps
(eps / r^2), the logit multiplier into the gain of the last norm: a layer is a llama's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..container import Container
from ..heads import HeadOps
from ..keys import Keys
from ..plan import Buf, Phase
from ..shapes import Shapes, attention, attention_bias, gated_ffn, model_shapes, pre_norms
from ..spec_common import common_spec, refuse_experts
from ..spec_model import ModelSpec
from .family import Family, next_gain, qkv_bias, qkv_names

if TYPE_CHECKING:
    from ..builder import Builder


def spec(c: Container, k: Keys) -> ModelSpec:
    """Multipliers that are absent, or 0, are 1; that of scores is 1 / sqrt(head_dim)."""
    refuse_experts(c, k)
    if k.get("rope.scaling.finetuned") is not None and not k.get("rope.scaling.finetuned"):
        raise k.fail("rope.scaling.finetuned", "is false: models without rope are not supported")
    s = common_spec(c, k, "interleaved")
    residual = k.real("residual_scale", 0.0, 1e6, 0.0) or 1.0
    return replace(
        s,
        eps=s.eps / residual**2,
        embed_scale=(k.real("embedding_scale", 0.0, 1e6, 0.0) or 1.0) / residual,
        attn_scale=k.real("attention.scale", 0.0, 1e6, 0.0),
        logit_scale=1.0 / k.real("logit_scale", 1e-6, 1e6),
    )


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, pre_norms, attention, attention_bias, gated_ffn)


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
        b.project_add(att, w + "attn_output.weight", x, Phase.OUT, w + "ffn_norm.weight")
        b.gated(x, w + "ffn_norm.weight", [w + "ffn_gate.weight", w + "ffn_up.weight"], ffn)
        b.project_add(ffn, w + "ffn_down.weight", x, Phase.FFN, next_gain(s, i))
    return x


FAMILY = Family(spec, shapes, layers)
