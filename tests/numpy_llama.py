"""A plain float64 llama in NumPy: an oracle that shares no code with the plan or the kernels.

It asks the container for tensors and the spec for sizes, so it checks loading, the spec and the
rope table; the arithmetic is the textbook one (RMSNorm, rope, causal attention, SwiGLU).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kompute_llm.engine.container import Container
from kompute_llm.engine.rope import rope_table
from kompute_llm.engine.spec import ModelSpec

Doubles = npt.NDArray[np.float64]


def logits(c: Container, s: ModelSpec, ids: Sequence[int]) -> Doubles:
    """Logits of every position of a prompt at positions 0…, float64 (n, n_vocab)."""

    def mat(name: str, rows: int, cols: int) -> Doubles:
        return c.matrix(name, rows, cols).dequantize().astype(np.float64)

    def norm(x: Doubles, name: str) -> Doubles:
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + s.eps)
        out: Doubles = x / scale * c.vector(name, s.n_embd)
        return out

    embd = mat("token_embd.weight", s.n_vocab, s.n_embd)
    x = embd[np.asarray(ids)]
    for i in range(s.n_layer):
        b = f"blk.{i}."
        h = norm(x, b + "attn_norm.weight")
        q = h @ mat(b + "attn_q.weight", s.q_dim, s.n_embd).T
        k = h @ mat(b + "attn_k.weight", s.kv_dim, s.n_embd).T
        v = h @ mat(b + "attn_v.weight", s.kv_dim, s.n_embd).T
        x = x + attention(s, q, k, v) @ mat(b + "attn_output.weight", s.n_embd, s.q_dim).T
        h = norm(x, b + "ffn_norm.weight")
        gate = h @ mat(b + "ffn_gate.weight", s.n_ff, s.n_embd).T
        up = h @ mat(b + "ffn_up.weight", s.n_ff, s.n_embd).T
        down = mat(b + "ffn_down.weight", s.n_embd, s.n_ff)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ down.T
    head = embd if s.tied else mat("output.weight", s.n_vocab, s.n_embd)
    out: Doubles = norm(x, "output_norm.weight") @ head.T
    return out


def attention(s: ModelSpec, q: Doubles, k: Doubles, v: Doubles) -> Doubles:
    """Causal grouped-query attention with rope; q (n, q_dim), k and v (n, kv_dim)."""
    n = len(q)
    table = rope_table(s.rope, n).astype(np.float64)[:, None]  # (n, 1, dims/2, 2)
    q = turn(q.reshape(n, s.n_head, s.head_dim), table)
    k = turn(k.reshape(n, s.n_head_kv, s.head_dim), table)
    k = k.repeat(s.n_head // s.n_head_kv, 1)
    v = v.reshape(n, s.n_head_kv, s.head_dim).repeat(s.n_head // s.n_head_kv, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(s.head_dim)
    ahead = np.arange(n)[None, :] - np.arange(n)[:, None]  # key position minus query position
    hidden = ahead > 0 if s.window is None else (ahead > 0) | (ahead <= -s.window)
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out: Doubles = np.einsum("hij,jhd->ihd", weights, v).reshape(n, s.q_dim)
    return out


def turn(x: Doubles, table: Doubles) -> Doubles:
    """Rotate interleaved pairs of the first dims values of each head; x (n, heads, head_dim)."""
    dims = 2 * table.shape[-2]
    cos, sin = table[..., 0], table[..., 1]
    a, b = x[..., 0:dims:2], x[..., 1:dims:2]
    out = x.copy()
    out[..., 0:dims:2] = a * cos - b * sin
    out[..., 1:dims:2] = a * sin + b * cos
    return out
