"""A plain float64 llama with biases in NumPy, and what its relatives add to it.

Facts: biases follow their products (`nn.Linear` with a bias), before rotation, gate or residual
sum; Qwen3 normalises heads behind them; Granite's multipliers stand in front of the embedding, the
residual sums and the scores, its divisor behind the head. What a file lacks is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy_gpt_oss import Weights

from kompute_llm.engine.container import Container
from kompute_llm.engine.rope import RopeSpec, rope_table

Doubles = npt.NDArray[np.float64]


class Biased:
    """One model; `without`: a kind of bias ("ffn_up") that is left out."""

    def __init__(self, c: Container, rope: RopeSpec, without: str = "") -> None:
        self.w, self.c, self.rope, self.without = Weights(c), c, rope, without
        self.arch = str(c.metadata["general.architecture"])
        self.eps = self.key("attention.layer_norm_rms_epsilon", 1e-5)

    def key(self, name: str, default: float) -> Any:
        """A key of the architecture."""
        return self.c.metadata.get(f"{self.arch}.{name}", default)

    def linear(self, x: Doubles, name: str) -> Doubles:
        """x times a matrix, plus its bias if there is one."""
        out: Doubles = x @ self.w[name + ".weight"].T
        if f"{name}.bias" in self.c.tensors and name.rpartition(".")[2] != self.without:
            out = out + self.w[name + ".bias"]
        return out

    def norm(self, x: Doubles, name: str) -> Doubles:
        """RMSNorm, if the file has its gain."""
        if name not in self.c.tensors:
            return x
        out: Doubles = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]
        return out

    def logits(self, ids: Sequence[int]) -> Doubles:
        """Logits of every position, float64 (n, n_vocab)."""
        x = self.w["token_embd.weight"][np.asarray(ids)] * self.key("embedding_scale", 1.0)
        factor = self.key("residual_scale", 1.0)
        for i in range(int(self.key("block_count", 0))):
            b = f"blk.{i}."
            heads = self.attention(b, self.norm(x, b + "attn_norm.weight"))
            x = x + factor * self.linear(heads, b + "attn_output")
            inner = self.gate_up(b, self.norm(x, b + "ffn_norm.weight"))
            x = x + factor * self.linear(inner, b + "ffn_down")
        head = "output" if "output.weight" in self.c.tensors else "token_embd"
        out: Doubles = self.linear(self.norm(x, "output_norm.weight"), head)
        out /= self.key("logit_scale", 1.0)
        return out

    def gate_up(self, b: str, h: Doubles) -> Doubles:
        """silu(gate) * up, of one tensor or two."""
        up = self.linear(h, b + "ffn_up")
        if b + "ffn_gate.weight" in self.c.tensors:
            gate = self.linear(h, b + "ffn_gate")
        else:
            gate, up = np.split(up, 2, -1)
        out: Doubles = gate / (1 + np.exp(-gate)) * up
        return out

    def attention(self, b: str, h: Doubles) -> Doubles:
        """Causal grouped-query attention over the whole prompt."""
        heads, kv = (int(self.key(f"attention.head_count{s}", 0)) for s in ("", "_kv"))
        n, dim = len(h), int(self.key("attention.key_length", 0))
        if b + "attn_qkv.weight" in self.c.tensors:
            cuts = [heads * dim, (heads + kv) * dim]
            q, k, v = np.split(self.linear(h, b + "attn_qkv"), cuts, -1)
        else:
            q, k, v = (self.linear(h, f"{b}attn_{part}") for part in "qkv")
        q = self.turn(self.norm(q.reshape(n, heads, dim), b + "attn_q_norm.weight"))
        k = self.turn(self.norm(k.reshape(n, kv, dim), b + "attn_k_norm.weight"))
        k, v = k.repeat(heads // kv, 1), v.reshape(n, kv, dim).repeat(heads // kv, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) * self.key("attention.scale", dim**-0.5)
        scores = np.where(np.arange(n)[:, None] < np.arange(n)[None, :], -np.inf, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out: Doubles = np.einsum("hij,jhd->ihd", weights, v).reshape(n, -1)
        return out

    def turn(self, x: Doubles) -> Doubles:
        """Rotate neighbouring pairs, or pairs of halves, of the first values of each head."""
        table = rope_table(self.rope, len(x)).astype(np.float64)[:, None]
        cos, sin, pairs = table[..., 0], table[..., 1], table.shape[-2]
        halves = self.rope.mode == "halves"
        a = slice(0, pairs) if halves else slice(0, 2 * pairs, 2)
        c = slice(pairs, 2 * pairs) if halves else slice(1, 2 * pairs, 2)
        out = x.copy()
        out[..., a] = x[..., a] * cos - x[..., c] * sin
        out[..., c] = x[..., a] * sin + x[..., c] * cos
        return out
