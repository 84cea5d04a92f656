"""gpt-oss (OpenAI, 2025): every other layer sees a window, heads have sinks, all projections have
biases, gates of experts are limited; weights are the softmax over the chosen experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.routing import Gating
from ..container import Container
from ..heads import HeadOps
from ..keys import Keys
from ..plan import Buf, Phase
from ..shapes import Shapes, attention, attention_bias, model_shapes
from ..spec_common import MAX_CTX, common_spec, layer_specs, with_windows
from ..spec_model import LayerSpec, ModelSpec
from ..spec_moe import idle_expert_bytes, moe_spec
from .expert_layers import ffn, ffn_shapes
from .family import Family, biased_add, qkv_bias, qkv_names

if TYPE_CHECKING:
    from ..builder import Builder


def spec(c: Container, k: Keys) -> ModelSpec:
    """Windows in the layers 0, 2, 4, …."""
    window = k.integer("attention.sliding_window", 1, MAX_CTX)
    plain = layer_specs(k)
    moe = moe_spec(k, Gating.CHOSEN, n_ff=plain[0].n_ff)
    layers = with_windows(k, plain, 2, window)
    return common_spec(c, k, "halves", layers=layers, moe=moe).idle(idle_expert_bytes(c, moe))


def own_shapes(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """Norms, sinks and the bias of the output projection."""
    return {
        "attn_norm.weight": (s.n_embd,), "post_attention_norm.weight": (s.n_embd,),
        "attn_sinks.weight": (layer.n_head,), "attn_output.bias": (s.n_embd,),
    }  # fmt: skip


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, own_shapes, attention, attention_bias, ffn_shapes)


def layers(b: Builder) -> Buf:
    """Embedding and all layers."""
    s = b.spec
    x = b.buf("x", s.n_embd)
    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    for i in range(s.n_layer):
        w, att = f"blk.{i}.", b.heads_buf(i)
        norm = w + "post_attention_norm.weight"
        heads = b.qkv(x, w + "attn_norm.weight", qkv_names(s, i), i, HeadOps(qkv_bias(s, i)))
        b.attend(heads, att, i)
        biased_add(b, att, w + "attn_output", x, Phase.OUT, norm)
        ffn(b, x, norm, i)
    return x


FAMILY = Family(spec, shapes, layers)
