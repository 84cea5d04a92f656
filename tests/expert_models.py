"""Tiny models with experts, random weights, for tests that need no files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fixtures
import numpy as np

VOCAB = 288


class Maker:
    """Random tensors of a model, about 1 / sqrt(columns) in size."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: fixtures.Tensors = {}

    def matrix(self, name: str, *shape: int, size: float = 1.0) -> None:
        """Weights of deviation size / sqrt(columns)."""
        values = self.rng.standard_normal(shape) * size / np.sqrt(shape[-1])
        self.tensors[f"{name}.weight"] = values.astype(np.float32)

    def gain(self, name: str, n: int) -> None:
        """A norm's gains, around one."""
        self.tensors[f"{name}.weight"] = self.rng.uniform(0.8, 1.2, n).astype(np.float32)

    def experts(self, blk: str, n: int, f: int, count: int, shared: int) -> None:
        """Router, stacks and shared experts of one layer."""
        self.matrix(blk + "ffn_gate_inp", count, n, size=3.0)
        for kind, shape in (("gate", (f, n)), ("up", (f, n)), ("down", (n, f))):
            self.matrix(f"{blk}ffn_{kind}_exps", count, *shape)
        if shared:
            self.matrix(blk + "ffn_gate_shexp", shared * f, n)
            self.matrix(blk + "ffn_up_shexp", shared * f, n)
            self.matrix(blk + "ffn_down_shexp", n, shared * f)

    def ends(self, n: int) -> None:
        """Embedding and head."""
        self.matrix("token_embd", VOCAB, n, size=np.sqrt(n))
        self.gain("output_norm", n)
        self.matrix("output", VOCAB, n)


def keys(arch: str, **values: Any) -> dict[str, Any]:
    """Metadata with a vocabulary; keys of the architecture with _ for dots where doubled."""
    own = {f"{arch}.{name.replace('__', '.')}": value for name, value in values.items()}
    return {"general.architecture": arch, **own, **fixtures.vocabulary(VOCAB)}


def deepseek2(
    quant: str = "Q4_K", *, shared: int = 1, q_rank: int = 256,
    formats: dict[str, str] | None = None,
    seed: int = 3,
) -> fixtures.Model:
    """Three layers, the first dense: 256 wide, 4 heads of 64 + 32, latents of 256 values, 6 experts
    of which 2 work, `shared` shared ones."""
    m, n, heads, rank, nope, rot, value, f = Maker(seed), 256, 4, 256, 64, 32, 64, 256
    metadata = keys(
        "deepseek2", block_count=3, context_length=4096, embedding_length=n,
        feed_forward_length=512, attention__head_count=heads, attention__head_count_kv=1,
        attention__layer_norm_rms_epsilon=1e-6, rope__freq_base=10000.0,
        rope__dimension_count=rot, attention__kv_lora_rank=rank, attention__q_lora_rank=q_rank,
        attention__key_length=rank + rot, attention__value_length=rank,
        attention__key_length_mla=nope + rot, attention__value_length_mla=value,
        expert_count=6, expert_used_count=2, expert_shared_count=shared,
        expert_feed_forward_length=f, leading_dense_block_count=1, expert_gating_func=2,
        expert_weights_norm=True, expert_weights_scale=1.8,
    )  # fmt: skip
    m.ends(n)
    for i in range(3):
        blk = f"blk.{i}."
        m.gain(blk + "attn_norm", n)
        m.gain(blk + "ffn_norm", n)
        if q_rank:
            m.matrix(blk + "attn_q_a", q_rank, n)
            m.gain(blk + "attn_q_a_norm", q_rank)
            m.matrix(blk + "attn_q_b", heads * (nope + rot), q_rank)
        else:
            m.matrix(blk + "attn_q", heads * (nope + rot), n)
        m.matrix(blk + "attn_kv_a_mqa", rank + rot, n)
        m.gain(blk + "attn_kv_a_norm", rank)
        m.matrix(blk + "attn_k_b", heads, rank, nope)
        m.matrix(blk + "attn_v_b", heads, value, rank)
        m.matrix(blk + "attn_output", n, heads * value)
        if i:
            m.experts(blk, n, f, 6, shared)
            m.tensors[blk + "exp_probs_b.bias"] = m.rng.uniform(0, 0.2, 6).astype(np.float32)
        else:
            m.matrix(blk + "ffn_gate", 512, n)
            m.matrix(blk + "ffn_up", 512, n)
            m.matrix(blk + "ffn_down", n, 512)
    small = "Q8_0" if "K" in quant else quant  # rows of 64 values
    fmt = {name: small for name in m.tensors if "attn_k_b" in name}
    fmt |= {name: "F32" for name in m.tensors if "ffn_gate_inp" in name}
    return fixtures.Model(metadata, m.tensors, quant, fmt | (formats or {}))


def olmoe(quant: str = "F16", *, seed: int = 5) -> fixtures.Model:
    """Two layers, 128 wide, 4 heads of 32 on 4, 8 experts of which 3 work."""
    m, n, heads, f = Maker(seed), 128, 4, 64
    metadata = keys(
        "olmoe", block_count=2, context_length=4096, embedding_length=n, feed_forward_length=f,
        attention__head_count=heads, attention__head_count_kv=heads,
        attention__layer_norm_rms_epsilon=1e-5, rope__freq_base=10000.0, rope__dimension_count=32,
        expert_count=8, expert_used_count=3,
    )  # fmt: skip
    m.ends(n)
    for i in range(2):
        blk = f"blk.{i}."
        for norm in ("attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"):
            m.gain(blk + norm, n)
        for part in ("q", "k", "v", "output"):
            m.matrix(f"{blk}attn_{part}", n, n)
        m.experts(blk, n, f, 8, 0)
    fmt = {name: "F32" for name in m.tensors if "ffn_gate_inp" in name}
    return fixtures.Model(metadata, m.tensors, quant, fmt)


def deepseek32(quant: str = "F16", *, most: int = 8, seed: int = 9) -> fixtures.Model:
    """deepseek2's layers with an indexer of 4 heads of 64 values that chooses `most` positions."""
    made, rng = deepseek2(quant, seed=seed), np.random.default_rng(seed)
    own = {name.replace("deepseek2.", "deepseek32."): v for name, v in made.metadata.items()}
    indexer = {"head_count": 4, "key_length": 64, "top_k": most}
    own |= {f"deepseek32.attention.indexer.{name}": v for name, v in indexer.items()}
    own["general.architecture"] = "deepseek32"
    for i in range(3):
        at = f"blk.{i}.indexer."
        for name, shape in (("attn_q_b", (256, 256)), ("attn_k", (64, 256)), ("proj", (4, 256))):
            values = rng.standard_normal(shape) / 16
            made.tensors[f"{at}{name}.weight"] = values.astype(np.float32)
        made.tensors[at + "k_norm.weight"] = rng.uniform(0.8, 1.2, 64).astype(np.float32)
        made.tensors[at + "k_norm.bias"] = rng.uniform(-0.1, 0.1, 64).astype(np.float32)
    return fixtures.Model(own, made.tensors, quant, made.formats)


REFERENCE: dict[str, Callable[[], fixtures.Model]] = {
    "olmoe": lambda: olmoe("F32"),
    "deepseek32": lambda: deepseek32("F32"),
    "deepseek2-two-shared": lambda: deepseek2("F32", shared=2),
    "deepseek2-plain-queries": lambda: deepseek2("F32", q_rank=0),
}
"""Models whose logits of llama.cpp (b11434, F32 cache) lie in data/expert_logits.npz: after the
fifth and after the last of its ids, fed in one batch."""
