"""Tiny random models of the families without golden files, made from fixed seeds.

Sizes are such that every difference of a family shows: windows shorter than the prompt, soft bounds
that bend, partial rotation, factors of long contexts, heads of two sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from fixtures import Floats, Model, Tensors, vocabulary

N_VOCAB, N_EMBD, N_FF, N_LAYER = 288, 64, 96, 4
PROMPT = 40
POSITIONS = (0, 1, 6, 7, 8, 20, 33, 39)  # of which logits are kept


class Maker:
    """Collects the tensors of one model."""

    def __init__(self, arch: str, seed: int, n_head: int, n_head_kv: int, dim: int) -> None:
        self.arch, self.rng = arch, np.random.default_rng(seed)
        self.q, self.kv, self.tensors = n_head * dim, n_head_kv * dim, Tensors()
        self.keys: dict[str, Any] = {
            "block_count": N_LAYER, "context_length": 128, "embedding_length": N_EMBD,
            "feed_forward_length": N_FF, "attention.head_count": n_head,
            "attention.head_count_kv": n_head_kv, "attention.key_length": dim,
            "attention.value_length": dim, "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.freq_base": 10000.0, "rope.dimension_count": dim,
        }  # fmt: skip
        self.matrix("token_embd", N_VOCAB, N_EMBD)
        self.gain("output_norm", N_EMBD)

    def matrix(self, name: str, rows: int, cols: int, size: float = 1.5) -> None:
        """A weight whose product has the size of its input, about."""
        x = self.rng.standard_normal((rows, cols), np.float32) * np.float32(size / np.sqrt(cols))
        self.tensors[f"{name}.weight"] = x

    def gain(self, name: str, n: int) -> None:
        """The gain of a norm."""
        self.tensors[f"{name}.weight"] = 1 + 0.2 * self.rng.standard_normal(n, np.float32)

    def bias(self, name: str, n: int) -> None:
        """A bias."""
        self.tensors[f"{name}.bias"] = 0.5 * self.rng.standard_normal(n, np.float32)

    def layers(self, part: Callable[[str], None]) -> None:
        """Call `part` with the prefix of every layer."""
        for i in range(N_LAYER):
            part(f"blk.{i}.")

    def attention(self, w: str) -> None:
        """Projections in three tensors, and the output's."""
        for name, rows in (("q", self.q), ("k", self.kv), ("v", self.kv)):
            self.matrix(f"{w}attn_{name}", rows, N_EMBD)
        self.matrix(w + "attn_output", N_EMBD, self.q)

    def ffn(self, w: str) -> None:
        """Gate, up and down."""
        for name in ("gate", "up"):
            self.matrix(f"{w}ffn_{name}", N_FF, N_EMBD)
        self.matrix(w + "ffn_down", N_EMBD, N_FF)

    def norms(self, w: str, *names: str) -> None:
        """Norms of the residual stream's width."""
        for name in names:
            self.gain(w + name, N_EMBD)

    def model(self, keys: Mapping[str, Any]) -> Model:
        """The file, weights in Q8_0."""
        own = {f"{self.arch}.{k}": v for k, v in (self.keys | dict(keys)).items()}
        top = {"general.architecture": self.arch, "general.name": f"tiny {self.arch}"}
        text = vocabulary(N_VOCAB)
        text["tokenizer.ggml.tokens"][-1] = "<|endoftext|>"  # llama.cpp wants it in a phi3
        return Model(top | own | text, self.tensors, "Q8_0")


def qwen2() -> Model:
    """Biases, YaRN."""
    m = Maker("qwen2", 1, 2, 1, 32)

    def layer(w: str) -> None:
        m.norms(w, "attn_norm", "ffn_norm")
        m.attention(w)
        for name, n in (("q", m.q), ("k", m.kv), ("v", m.kv)):
            m.bias(f"{w}attn_{name}", n)
        m.ffn(w)

    m.layers(layer)
    m.matrix("output", N_VOCAB, N_EMBD)
    return m.model({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                    "rope.scaling.original_context_length": 32})  # fmt: skip


def gemma() -> Model:
    """Scaled embeddings, GELU, heads wider than n_embd / n_head."""
    m = Maker("gemma", 2, 2, 1, 64)

    def layer(w: str) -> None:
        m.norms(w, "attn_norm", "ffn_norm")
        m.attention(w)
        m.ffn(w)

    m.layers(layer)
    return m.model({})


def gemma2() -> Model:
    """Soft bounds, a window of 8 in every second layer, norms behind."""
    m = Maker("gemma2", 3, 4, 2, 32)

    def layer(w: str) -> None:
        m.norms(w, "attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")
        m.attention(w)
        m.ffn(w)

    m.layers(layer)
    return m.model({"attention.sliding_window": 8, "attn_logit_softcapping": 2.0,
                    "final_logit_softcapping": 3.0})  # fmt: skip


def phi3() -> Model:
    """Stacked projections, half of each head rotates, factors for short and long contexts."""
    m = Maker("phi3", 4, 2, 1, 32)
    for name, low, high in (("short", 1.0, 1.5), ("long", 1.0, 6.0)):
        m.tensors[f"rope_factors_{name}.weight"] = np.linspace(low, high, 8).astype(np.float32)

    def layer(w: str) -> None:
        m.norms(w, "attn_norm", "ffn_norm")
        m.matrix(w + "attn_qkv", m.q + 2 * m.kv, N_EMBD)
        m.matrix(w + "attn_output", N_EMBD, m.q)
        m.matrix(w + "ffn_up", 2 * N_FF, N_EMBD)
        m.matrix(w + "ffn_down", N_EMBD, N_FF)

    m.layers(layer)
    m.matrix("output", N_VOCAB, N_EMBD)
    return m.model({"rope.dimension_count": 16, "rope.scaling.attn_factor": 1.19,
                    "rope.scaling.original_context_length": 256})  # fmt: skip


def granite() -> Model:
    """Multipliers of embeddings, residuals, scores and logits."""
    m = Maker("granite", 5, 4, 2, 32)

    def layer(w: str) -> None:
        m.norms(w, "attn_norm", "ffn_norm")
        m.attention(w)
        m.ffn(w)

    m.layers(layer)
    return m.model({"logit_scale": 4.0, "residual_scale": 0.22, "embedding_scale": 12.0,
                    "attention.scale": 0.1})  # fmt: skip


def olmo2(window: int = 0) -> Model:
    """Norms of all heads and behind; with a window OLMo 3, YaRN in layers without."""
    m = Maker("olmo2", 6, 2, 2, 32)

    def layer(w: str) -> None:
        m.attention(w)
        m.gain(w + "attn_q_norm", m.q)
        m.gain(w + "attn_k_norm", m.kv)
        m.norms(w, "post_attention_norm", "post_ffw_norm")
        m.ffn(w)

    m.layers(layer)
    m.matrix("output", N_VOCAB, N_EMBD)
    yarn = {"attention.sliding_window": window, "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32}  # fmt: skip
    return m.model(yarn if window else {})


def olmo3() -> Model:
    """OLMo 2 with a window of 8."""
    return olmo2(8)


def glm4() -> Model:
    """16 heads on one, half of each rotates in neighbouring pairs, biases, norms behind."""
    m = Maker("glm4", 7, 16, 1, 32)

    def layer(w: str) -> None:
        m.norms(w, "attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")
        m.attention(w)
        for name, n in (("q", m.q), ("k", m.kv), ("v", m.kv)):
            m.bias(f"{w}attn_{name}", n)
        m.matrix(w + "ffn_up", 2 * N_FF, N_EMBD)
        m.matrix(w + "ffn_down", N_EMBD, N_FF)

    m.layers(layer)
    m.matrix("output", N_VOCAB, N_EMBD)
    return m.model({"rope.dimension_count": 16})


def gemma4() -> Model:
    """The dense kind: two sizes of heads, and of key/value heads; global layers without values."""
    m = Maker("gemma4", 8, 4, 2, 64)
    local = (True, True, False, True)
    m.tensors["rope_freqs.weight"] = np.where(np.arange(32) < 8, 1, 1e30).astype(np.float32)

    def layer(w: str) -> None:
        is_local = local[int(w.split(".")[1])]
        dim, kv = (32, 64) if is_local else (64, 64)
        m.norms(w, "attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")
        m.matrix(w + "attn_q", 4 * dim, N_EMBD)
        m.matrix(w + "attn_k", kv, N_EMBD)
        if is_local:
            m.matrix(w + "attn_v", kv, N_EMBD)
        m.matrix(w + "attn_output", N_EMBD, 4 * dim)
        for name in ("attn_q_norm", "attn_k_norm"):  # small, because scores are not scaled
            m.gain(w + name, dim)
            m.tensors[f"{w}{name}.weight"] *= np.float32(0.4)
        m.tensors[w + "layer_output_scale.weight"] = np.array([0.7], np.float32)
        m.ffn(w)

    m.layers(layer)
    return m.model({
        "attention.head_count_kv": np.array([2, 2, 1, 2], np.int32),
        "attention.sliding_window_pattern": list(local), "attention.sliding_window": 8,
        "attention.key_length_swa": 32, "attention.value_length_swa": 32,
        "rope.dimension_count_swa": 32, "embedding_length_per_layer_input": 0,
        "final_logit_softcapping": 20.0,
    })  # fmt: skip


MODELS: dict[str, tuple[Callable[[], Model], int]] = {
    "qwen2": (qwen2, 128), "gemma": (gemma, 128), "gemma2": (gemma2, 128),
    "phi3-short": (phi3, 256), "phi3-long": (phi3, 512), "granite": (granite, 128),
    "olmo2": (olmo2, 128), "olmo3": (olmo3, 128), "glm4": (glm4, 128),
    "gemma4-dense": (gemma4, 128),
}  # fmt: skip
"""By name: the model and the context that it is run with (llama.cpp rounds it up to 256s)."""


def prompt(name: str) -> list[int]:
    """Random ids."""
    rng = np.random.default_rng(sum(map(ord, name)))
    return [int(i) for i in rng.integers(3, N_VOCAB, PROMPT)]


def widened(m: Model) -> Model:
    """The same values in float32: what a reference without rounding of activations runs."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    kind = GGMLQuantizationType.Q8_0

    def same(x: Floats) -> Floats:
        return dequantize(quantize(x, kind), kind) if x.ndim > 1 else x

    return Model(m.metadata, {name: same(x) for name, x in m.tensors.items()}, "F32")
