"""Llama: grouped-query attention with rotary positions, SwiGLU feed-forward, pre-norms.

Llama 1-3, Mistral, SmolLM (Touvron et al. 2023). One line is one kernel, or its batch form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..plan import Buf, Phase

if TYPE_CHECKING:
    from ..builder import Builder


def layers(b: Builder) -> Buf:
    """Embedding and all layers; returns the residual stream x (batch, n_embd)."""
    s = b.spec
    q, kv = s.n_head * s.head_dim, s.n_head_kv * s.head_dim
    x, qkv = b.buf("x", s.n_embd), b.buf("qkv", q + 2 * kv)
    att, ffn = b.buf("att", q), b.buf("ffn", s.n_ff)

    b.embed(x, "token_embd.weight", "blk.0.attn_norm.weight")
    for i in range(s.n_layer):
        w = f"blk.{i}."
        names = [w + "attn_q.weight", w + "attn_k.weight", w + "attn_v.weight"]
        after = f"blk.{i + 1}.attn_norm.weight" if i + 1 < s.n_layer else "output_norm.weight"
        b.qkv(x, w + "attn_norm.weight", names, [q, kv, kv], qkv, i)
        b.attend(qkv, att, i)
        b.project_add(att, w + "attn_output.weight", x, Phase.OUT, w + "ffn_norm.weight")
        b.gated(x, w + "ffn_norm.weight", w + "ffn_gate.weight", w + "ffn_up.weight", ffn)
        b.project_add(ffn, w + "ffn_down.weight", x, Phase.FFN, after)
    return x
