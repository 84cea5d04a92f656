"""GLM-4.5 and 4.6: biased queries, keys and values, norms of heads in the large ones, a few dense
layers, then sigmoid-gated experts with shared ones. The last layers predict further tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.routing import Gating
from ..container import Container
from ..heads import HeadOps
from ..keys import Keys
from ..plan import Buf
from ..shapes import Shapes, attention, attention_bias, head_norms, model_shapes
from ..spec_common import common_spec, layer_specs
from ..spec_model import LayerSpec, ModelSpec
from ..spec_moe import idle_expert_bytes, moe_spec
from .expert_layers import ffn_shapes
from .expert_layers import layers as expert_layers
from .family import Family, qkv_bias

if TYPE_CHECKING:
    from ..builder import Builder


def spec(c: Container, k: Keys) -> ModelSpec:
    """Layers behind the last one are known, but not run."""
    blocks = layer_specs(k)
    nextn = k.integer("nextn_predict_layers", 0, len(blocks) - 1, 0)
    moe = moe_spec(k, Gating.SIGMOID, shared=True)
    layers = blocks[: len(blocks) - nextn]
    made = common_spec(c, k, "halves", layers=layers, moe=moe, nextn=nextn)
    return made.idle(idle_expert_bytes(c, moe))


def norms(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """The norm before the experts has its name from behind the attention."""
    own: Shapes = {"attn_norm.weight": (s.n_embd,), "post_attention_norm.weight": (s.n_embd,)}
    return own | (head_norms(s, layer) if "attn_q_norm.weight" in s.has else {})


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, norms, attention, attention_bias, ffn_shapes)


def layers(b: Builder) -> Buf:
    """Embedding and all layers."""
    normed = "attn_q_norm.weight" in b.spec.has

    def ops(w: str, i: int) -> HeadOps:
        q, k = (w + name for name in ("attn_q_norm.weight", "attn_k_norm.weight"))
        return HeadOps(qkv_bias(b.spec, i), q if normed else "", k if normed else "")

    return expert_layers(b, "post_attention_norm.weight", ops)


FAMILY = Family(spec, shapes, layers)
