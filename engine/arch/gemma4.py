"""Gemma 4: Gemma 3 with values normalised too, heads of two sizes, unscaled scores and a factor
behind each layer. The small ones (E2B, E4B) add a vector per layer and token, looked up and
projected before the first layer, and their last layers attend to caches of earlier ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..builder_inputs import InputNames
from ..container import Container
from ..heads import HeadOps
from ..keys import Keys
from ..plan import Buf, Phase
from ..rope import RopeSpec
from ..shapes import Shapes, gated_ffn, model_shapes, post_norms, pre_norms
from ..spec_common import (
    MAX_CTX,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_WIDTH,
    check_groups,
    common_spec,
    local_layers,
    refuse_experts,
)
from ..spec_model import LayerSpec, ModelSpec
from .family import Family, next_gain

if TYPE_CHECKING:
    from ..builder import Builder

LOCAL_BASE = 10000.0
TOKENS, PROJECTION = "per_layer_token_embd.weight", "per_layer_model_proj.weight"


def spec(c: Container, k: Keys) -> ModelSpec:
    """Local layers have their own head size and rope; the scale of scores is 1."""
    refuse_experts(c, k)
    s = common_spec(c, k, "halves", layers=layer_specs(k))
    dims = k.integer("rope.dimension_count_swa", 2, 1 << 16, s.rope.dims)
    base = k.real("rope.freq_base_swa", 1.0 + 1e-6, 1e15, LOCAL_BASE)
    local = RopeSpec(dims, base, orig_ctx=s.n_ctx_train, mode="halves")
    table = c.tensors.get(TOKENS)
    return replace(
        s,
        ropes=(s.rope, local),
        embed_scale=s.n_embd**0.5,
        attn_scale=1.0,
        logit_softcap=k.real("final_logit_softcapping", 0.0, 1e6, 30.0),
        n_embd_layer=k.integer("embedding_length_per_layer_input", 0, MAX_WIDTH, 0),
        idle_bytes=s.idle_bytes + (table.nbytes if table else 0),
    )


def layer_specs(k: Keys) -> tuple[LayerSpec, ...]:
    """The last `shared_kv_layers` layers attend to the last earlier layer of their kind, which
    stand side by side: the one before the first of them sees the whole context."""
    n = k.integer("block_count", 1, MAX_LAYERS)
    heads = k.per_layer("attention.head_count", n, 1, MAX_HEADS)
    heads_kv = k.per_layer("attention.head_count_kv", n, 1, MAX_HEADS)
    n_ff = k.per_layer("feed_forward_length", n, 1, MAX_WIDTH)
    window = k.integer("attention.sliding_window", 1, MAX_CTX)
    dim = k.integer("attention.key_length", 1, 1 << 16)
    dim_local = k.integer("attention.key_length_swa", 1, 1 << 16, dim)
    first = n - k.integer("attention.shared_kv_layers", 0, n, 0)
    if first < n and first < 2:
        raise k.fail("attention.shared_kv_layers", "leaves no layers with caches of both kinds")
    layers = []
    for i, local in enumerate(local_layers(k, n, 6)):
        check_groups(k, heads[i], heads_kv[i])
        cache = i if i < first else first - (2 if local else 1)
        size = (dim_local, n_ff[i], window, 1) if local else (dim, n_ff[i], 0, 0)
        layers.append(LayerSpec(cache, heads[i], heads_kv[i], *size))
    for i, layer in enumerate(layers):
        source = layers[layer.cache]
        if (layer.kv_dim, layer.window) != (source.kv_dim, source.window):
            raise k.fail("attention.shared_kv_layers", f"layer {i} finds no cache of its kind")
    return tuple(layers)


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan. Layers without a cache of their own need no keys and values, but
    may have them; values may be left out (see kv_names)."""
    found = model_shapes(s, pre_norms, post_norms, gated_ffn)
    for i, layer in enumerate(s.layers):
        w = f"blk.{i}."
        found[w + "attn_q.weight"] = (layer.q_dim, s.n_embd)
        found[w + "attn_q_norm.weight"] = (layer.head_dim,)
        found[w + "attn_output.weight"] = (s.n_embd, layer.q_dim)
        kv: Shapes = {
            w + "attn_k.weight": (layer.kv_dim, s.n_embd),
            w + "attn_k_norm.weight": (layer.head_dim,),
            w + "attn_v.weight": (layer.kv_dim, s.n_embd),
        }
        needed = list(kv)[:2] if layer.cache == i else []
        found |= {name: kv[name] for name in kv if name in needed or name in s.tensors}
        if "layer_output_scale.weight" in s.has:
            found[w + "layer_output_scale.weight"] = (1,)
        if s.n_embd_layer:
            found[w + "inp_gate.weight"] = (s.n_embd_layer, s.n_embd)
            found[w + "proj.weight"] = (s.n_embd, s.n_embd_layer)
            found[w + "post_norm.weight"] = (s.n_embd,)
    if s.n_embd_layer:
        width = len(s.layers) * s.n_embd_layer
        found[TOKENS] = (s.n_vocab, width)
        found[PROJECTION] = (width, s.n_embd)
        found["per_layer_proj_norm.weight"] = (s.n_embd_layer,)
    return found


def kv_names(b: Builder, layer: int) -> list[str]:
    """Keys and values; values are projected as keys are where a layer has no projection for them,
    and neither is made where it uses another layer's cache."""
    if b.layer(layer).cache != layer:
        return []
    w = f"blk.{layer}."
    value = w + "attn_v.weight"
    return [w + "attn_k.weight", value if value in b.spec.tensors else w + "attn_k.weight"]


def layer_inputs(b: Builder, x: Buf) -> Buf:
    """The vectors of all layers (batch, n_layer * n_embd_layer): looked up times sqrt(n_embd_layer)
    plus projected and normalised, over sqrt(2)."""
    s, width = b.spec, len(b.spec.layers) * b.spec.n_embd_layer
    e, made = b.buf("layer_inputs", width), b.buf("layer_projection", width)
    b.lookup(e, TOKENS, s.n_embd_layer**0.5)
    b.narrow(x, PROJECTION, width, s.n_embd, made, Phase.EMBED)
    # the projection is scaled by 1 / sqrt(n_embd), which a norm sees in its eps only
    b.norm_add_groups(made, "per_layer_proj_norm.weight", e, Phase.EMBED, s.n_embd_layer,
                      s.eps * s.n_embd, 0.5**0.5)  # fmt: skip
    return e


def layers(b: Builder) -> Buf:
    """Embedding and all layers."""
    s = b.spec
    x = b.buf("x", s.n_embd)
    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    inputs = layer_inputs(b, x) if s.n_embd_layer else None
    for i in range(s.n_layer):
        w, att, ffn = f"blk.{i}.", b.heads_buf(i), b.ffn_buf(i)
        own = s.layers[i].cache == i
        k_norm = w + "attn_k_norm.weight" if own else ""
        normed = HeadOps((), w + "attn_q_norm.weight", k_norm, v_norm=own)
        gate_up = [w + "ffn_gate.weight", w + "ffn_up.weight"]
        out, down = w + "attn_output.weight", w + "ffn_down.weight"
        post_out, post_down = w + "post_attention_norm.weight", w + "post_ffw_norm.weight"
        scale_name = w + "layer_output_scale.weight"
        scale = b.weights.scalar(scale_name) if scale_name in s.tensors else 1.0
        names = [w + "attn_q.weight", *kv_names(b, i)]
        heads = b.qkv(x, w + "attn_norm.weight", names, i, normed)
        b.attend(heads, att, i)
        b.project_norm_add(att, out, post_out, x, Phase.OUT, w + "ffn_norm.weight")
        b.gated(x, w + "ffn_norm.weight", gate_up, ffn, "gelu")
        if inputs is None:
            b.project_norm_add(ffn, down, post_down, x, Phase.FFN, next_gain(s, i), scale)
            continue
        last = [w + name for name in ("inp_gate.weight", "proj.weight", "post_norm.weight")]
        b.add_inputs(ffn, InputNames(down, post_down, *last), x, inputs, i, next_gain(s, i), scale)
    return x


FAMILY = Family(spec, shapes, layers)
