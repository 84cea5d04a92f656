"""DeepSeek V2 and V3, and what shares their shape (GLM-4.7-Flash, Kimi K2): latent attention, a few
dense layers, then layers of experts with shared ones (arXiv 2405.04434, 2412.19437).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.routing import Gating
from ..container import Container
from ..keys import Keys
from ..plan import Buf, Phase
from ..shapes import Shapes, model_shapes, pre_norms
from ..spec_common import MAX_CTX, MAX_LAYERS, MAX_WIDTH, common_spec, vocabulary
from ..spec_mla import latent_rope, latent_shapes, mla_spec
from ..spec_model import LayerSpec, ModelSpec
from ..spec_moe import idle_expert_bytes, moe_spec
from .expert_layers import ffn, ffn_shapes
from .family import Family

if TYPE_CHECKING:
    from ..builder import Builder

FLASH_LAYERS, FLASH_VOCAB = (47, 48), 154880  # GLM-4.7-Flash names no gating and means sigmoid


def spec(c: Container, k: Keys) -> ModelSpec:
    """Files that name no gating mean softmax, but for one model."""
    blocks = k.integer("block_count", 1, MAX_LAYERS)
    flash = blocks in FLASH_LAYERS and vocabulary(c)[0] == FLASH_VOCAB
    return _spec(c, k, Gating.SIGMOID if flash else Gating.SOFTMAX)


def sigmoid_spec(c: Container, k: Keys) -> ModelSpec:
    """Of the models after V3."""
    return _spec(c, k, Gating.SIGMOID)


def _spec(c: Container, k: Keys, gating: Gating) -> ModelSpec:
    """YaRN's magnitude is part of the scale of scores."""
    blocks = k.integer("block_count", 1, MAX_LAYERS)
    n_layer = blocks - k.integer("nextn_predict_layers", 0, blocks - 1, 0)
    mla = mla_spec(c, k, blocks)
    n_ctx = k.integer("context_length", 1, MAX_CTX)
    log_scale = k.real("rope.scaling.yarn_log_multiplier", 0.0, 1e6, 0.0)
    rope, scale, notes = latent_rope(c, k, n_ctx, mla.head, log_scale)
    moe = moe_spec(k, gating, shared=True)
    n_ff = k.uniform("feed_forward_length", blocks, 1, MAX_WIDTH)
    layers = tuple(LayerSpec(i, mla.heads, 1, mla.head, n_ff) for i in range(n_layer))
    made = common_spec(
        c, k, "interleaved", layers=layers, ropes=(rope,), notes=notes, attn_scale=scale, mla=mla,
        moe=moe, nextn=blocks - n_layer,
    )  # fmt: skip
    return made.idle(idle_expert_bytes(c, moe))


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, pre_norms, latent_shapes, ffn_shapes)


def layers(b: Builder) -> Buf:
    """Embedding and all layers; returns the residual stream x (batch, n_embd)."""
    s = b.spec
    assert s.mla is not None
    x, att = b.buf("x", s.n_embd), b.buf("att", s.mla.heads * s.mla.value)
    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    for i in range(s.n_layer):
        w = f"blk.{i}."
        b.latent(x, w + "attn_norm.weight", att, i)
        b.project_add(att, w + "attn_output.weight", x, Phase.OUT, w + "ffn_norm.weight")
        ffn(b, x, w + "ffn_norm.weight", i)
    return x


FAMILY = Family(spec, shapes, layers)
