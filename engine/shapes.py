"""Shapes of tensors by name: the pieces that the layers of families are made of."""

from __future__ import annotations

from collections.abc import Callable

from .spec_model import LayerSpec, ModelSpec

Shapes = dict[str, tuple[int, ...]]
Part = Callable[[ModelSpec, LayerSpec], Shapes]


def model_shapes(s: ModelSpec, *parts: Part) -> Shapes:
    """Name -> shape (NumPy order) of embedding, head and the parts of every layer."""
    shapes: Shapes = {
        "token_embd.weight": (s.n_vocab, s.n_embd),
        "output_norm.weight": (s.n_embd,),
    }
    if not s.tied:
        shapes["output.weight"] = (s.n_vocab, s.n_embd)
    if "output.bias" in s.tensors:
        shapes["output.bias"] = (s.n_vocab,)
    for i, layer in enumerate(s.layers):
        for part in parts:
            shapes |= {f"blk.{i}.{name}": shape for name, shape in part(s, layer).items()}
    return shapes


def pre_norms(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """Norms before attention and feed-forward network."""
    return {"attn_norm.weight": (s.n_embd,), "ffn_norm.weight": (s.n_embd,)}


def attention(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """Projections into and out of the heads, queries, keys and values in one tensor or three."""
    if s.fused_qkv:
        qkv: Shapes = {"attn_qkv.weight": (layer.qkv_dim, s.n_embd)}
    else:
        qkv = {
            "attn_q.weight": (layer.q_dim, s.n_embd),
            "attn_k.weight": (layer.kv_dim, s.n_embd),
            "attn_v.weight": (layer.kv_dim, s.n_embd),
        }
    return qkv | {"attn_output.weight": (s.n_embd, layer.q_dim)}


def attention_bias(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """Biases of queries, keys and values, where the model has some."""
    sizes = {
        "attn_qkv.bias": layer.qkv_dim, "attn_q.bias": layer.q_dim,
        "attn_k.bias": layer.kv_dim, "attn_v.bias": layer.kv_dim,
    }  # fmt: skip
    return {name: (size,) for name, size in sizes.items() if name in s.has}


def other_bias(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """Biases of the output projection and of the feed-forward network, where the model has
    some; a tensor of gate and up has one for both."""
    stacked = "ffn_gate.weight" not in s.has
    sizes = {
        "attn_output.bias": s.n_embd, "ffn_down.bias": s.n_embd,
        "ffn_up.bias": layer.n_ff * (2 if stacked else 1),
    } | ({} if stacked else {"ffn_gate.bias": layer.n_ff})  # fmt: skip
    return {name: (size,) for name, size in sizes.items() if name in s.has}


def head_norms(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """Norms of queries and keys, head by head."""
    return {"attn_q_norm.weight": (layer.head_dim,), "attn_k_norm.weight": (layer.head_dim,)}


def post_norms(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """Norms behind attention and feed-forward network."""
    return {"post_attention_norm.weight": (s.n_embd,), "post_ffw_norm.weight": (s.n_embd,)}


def stacked_ffn(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """Gate and up in one tensor, and down."""
    return {"ffn_up.weight": (2 * layer.n_ff, s.n_embd), "ffn_down.weight": (s.n_embd, layer.n_ff)}


def gated_ffn(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """Gate, up and down of a dense layer."""
    return {
        "ffn_gate.weight": (layer.n_ff, s.n_embd),
        "ffn_up.weight": (layer.n_ff, s.n_embd),
        "ffn_down.weight": (s.n_embd, layer.n_ff),
    }
