"""Granite 3: a llama with multipliers of embeddings, residuals, scores and logits.

x + r f(norm(x)) is r times (u + f(norm(u))) with u = x / r, and norms do not see a factor but for
their eps. So the residual multiplier r goes into the scale of embeddings (1 / r) and into eps
(eps / r^2), the logit multiplier into the gain of the last norm: a layer is a llama's, whose
biases, where a file has them, need no factor.
"""

from __future__ import annotations

from dataclasses import replace

from ..container import Container
from ..keys import Keys
from ..spec_common import common_spec, refuse_experts
from ..spec_model import ModelSpec
from . import llama
from .family import Family


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


FAMILY = Family(spec, llama.FAMILY.shapes, llama.FAMILY.layers)
