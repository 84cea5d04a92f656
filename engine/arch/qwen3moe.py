"""Qwen3 with experts: heads as in qwen3.py, softmax over all experts, weights of the chosen ones
normalised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.routing import Gating
from ..container import Container
from ..heads import HeadOps
from ..keys import Keys
from ..plan import Buf
from ..shapes import Shapes, attention, attention_bias, head_norms, model_shapes, pre_norms
from ..spec_common import common_spec, layer_specs
from ..spec_model import ModelSpec
from ..spec_moe import idle_expert_bytes, moe_spec
from .expert_layers import ffn_shapes
from .expert_layers import layers as expert_layers
from .family import Family, qkv_bias

if TYPE_CHECKING:
    from ..builder import Builder


def spec(c: Container, k: Keys) -> ModelSpec:
    """Files without a width of the experts share feed_forward_length among the chosen ones."""
    layers = layer_specs(k)
    moe = moe_spec(k, Gating.SOFTMAX, normalise=True, n_ff=layers[0].n_ff)
    return common_spec(c, k, "halves", layers=layers, moe=moe).idle(idle_expert_bytes(c, moe))


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, pre_norms, attention, attention_bias, head_norms, ffn_shapes)


def layers(b: Builder) -> Buf:
    """Embedding and all layers."""

    def ops(w: str, i: int) -> HeadOps:
        return HeadOps(qkv_bias(b.spec, i), w + "attn_q_norm.weight", w + "attn_k_norm.weight")

    return expert_layers(b, "ffn_norm.weight", ops)


FAMILY = Family(spec, shapes, layers)
