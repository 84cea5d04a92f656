"""A plain float64 gpt-oss in NumPy: the golden model whose rope is YaRN, an oracle for rope tables.

Facts from llama.cpp's graph of that architecture: attention sinks (one logit per head that takes
weight and gives nothing), a window on even layers, biases everywhere, the two best experts with a
softmax over their logits, SwiGLU with alpha 1.702 and values clamped at 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from kompute_llm.engine.container import Container
from kompute_llm.engine.rope import RopeSpec, rope_table

Doubles = npt.NDArray[np.float64]
HEADS, KV_HEADS, DIM, WINDOW, USED, ALPHA, LIMIT = 4, 2, 32, 12, 2, 1.702, 7.0


class Weights:
    """Tensors by name, decoded to float64 in the file's shape."""

    def __init__(self, c: Container) -> None:
        self.c = c
        self.decoded: dict[str, Doubles] = {}

    def __getitem__(self, name: str) -> Doubles:
        if name not in self.decoded:
            t = self.c.tensors[name]
            rows = self.c.raw(t).reshape(t.elems // t.cols, -1)
            values = dequantize(rows, GGMLQuantizationType(t.type_id))
            self.decoded[name] = np.asarray(values, np.float64).reshape(t.shape)
        return self.decoded[name]

    def linear(self, x: Doubles, name: str) -> Doubles:
        """x times the matrix, plus its bias."""
        out: Doubles = x @ self[name + ".weight"].T + self[name + ".bias"]
        return out

    def norm(self, x: Doubles, name: str) -> Doubles:
        """RMSNorm with eps 1e-5."""
        out: Doubles = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * self[name]
        return out


def logits(c: Container, rope: RopeSpec, ids: Sequence[int]) -> Doubles:
    """Logits of every position, float64 (n, n_vocab)."""
    w = Weights(c)
    x = w["token_embd.weight"][np.asarray(ids)]
    for i in range(int(c.metadata["gpt-oss.block_count"])):
        b = f"blk.{i}."
        h = w.norm(x, b + "attn_norm.weight")
        x = x + w.linear(
            attention(w, b, h, rope, WINDOW if i % 2 == 0 else len(x)), b + "attn_output"
        )
        h = w.norm(x, b + "post_attention_norm.weight")
        x = x + np.stack([experts(w, b, row) for row in h])
    out: Doubles = w.norm(x, "output_norm.weight") @ w["output.weight"].T
    return out


def attention(w: Weights, b: str, h: Doubles, rope: RopeSpec, window: int) -> Doubles:
    """Causal attention with sinks; rope turns value i with value i + dims/2."""
    n, group = len(h), HEADS // KV_HEADS
    table = rope_table(rope, n).astype(np.float64)[:, None]
    cos, sin = table[..., 0], table[..., 1]

    def turn(x: Doubles) -> Doubles:
        low, high = np.split(x, 2, -1)
        return np.concatenate([low * cos - high * sin, low * sin + high * cos], -1)

    q = turn(w.linear(h, b + "attn_q").reshape(n, HEADS, DIM))
    k = turn(w.linear(h, b + "attn_k").reshape(n, KV_HEADS, DIM)).repeat(group, 1)
    v = w.linear(h, b + "attn_v").reshape(n, KV_HEADS, DIM).repeat(group, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(DIM)
    behind = np.arange(n)[:, None] - np.arange(n)[None, :]
    scores = np.where((behind < 0) | (behind >= window), -np.inf, scores)
    sinks = np.broadcast_to(w[b + "attn_sinks.weight"][:, None, None], (HEADS, n, 1))
    weights: Any = np.exp(np.concatenate([scores, sinks], -1))
    weights /= weights.sum(-1, keepdims=True)
    out: Doubles = np.einsum("hij,jhd->ihd", weights[..., :-1], v).reshape(n, -1)
    return out


def experts(w: Weights, b: str, x: Doubles) -> Doubles:
    """The feed-forward part for one token, x (n_embd,)."""
    scores = w.linear(x, b + "ffn_gate_inp")
    best = np.argsort(-scores)[:USED]
    share = np.exp(scores[best] - scores[best].max())
    out = np.zeros_like(x)
    for e, s in zip(best, share / share.sum(), strict=True):
        gate, up = (
            w[f"{b}ffn_{m}_exps.weight"][e] @ x + w[f"{b}ffn_{m}_exps.bias"][e]
            for m in ("gate", "up")
        )
        gate, up = np.minimum(gate, LIMIT), np.clip(up, -LIMIT, LIMIT)
        hidden = gate / (1 + np.exp(-ALPHA * gate)) * (up + 1)
        out += s * (w[b + "ffn_down_exps.weight"][e] @ hidden + w[b + "ffn_down_exps.bias"][e])
    return out
