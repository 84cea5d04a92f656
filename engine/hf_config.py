"""config.json of a Hugging Face model as GGUF metadata keys.

Key names follow ggml/docs/gguf.md, meanings llama.cpp's convert_hf_to_gguf.py. A value that is
there and cannot be represented is refused, never dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .json_file import Config

Keys = dict[str, Any]


def head_dim(c: Config) -> int:
    """head_dim, or hidden_size / num_attention_heads."""
    heads = max(c.integer("num_attention_heads"), 1)
    return c.integer("head_dim", c.integer("hidden_size") // heads)


# --- keys ------------------------------------------------------------------------------------


def _common(c: Config, arch: str) -> Keys:
    heads = c.integer("num_attention_heads")
    keys: Keys = {
        "general.architecture": arch,
        "general.name": str(c.get("_name_or_path") or c.path.parent.name or arch),
        f"{arch}.block_count": c.integer("num_hidden_layers"),
        f"{arch}.context_length": c.integer("max_position_embeddings"),
        f"{arch}.embedding_length": c.integer("hidden_size"),
        f"{arch}.feed_forward_length": c.integer("intermediate_size"),
        f"{arch}.attention.head_count": heads,
        f"{arch}.attention.head_count_kv": c.integer("num_key_value_heads", heads),
        f"{arch}.attention.layer_norm_rms_epsilon": c.real("rms_norm_eps"),
        f"{arch}.vocab_size": c.integer("vocab_size"),
    }
    act = c.get("hidden_act")
    if act not in (None, "silu", "swish"):
        raise c.fail("hidden_act", f"activation {act!r:.40} is not supported; supported: silu")
    window = c.get("sliding_window")
    if window is not None and c.flag("use_sliding_window", True):
        keys[f"{arch}.attention.sliding_window"] = c.integer("sliding_window")
    return keys | _rope(c, arch)


def _rope(c: Config, arch: str) -> Keys:
    """Frequency base and scaling; both spellings of transformers (rope_parameters is the newer)."""
    new, old = c.object("rope_parameters"), c.object("rope_scaling")
    base = (new or c).real("rope_theta", c.real("rope_theta", 10000.0))
    keys: Keys = {f"{arch}.rope.freq_base": base}
    s = new or old
    kind = s and (s.get("rope_type") or s.get("type"))
    if s is None or kind in (None, "default", "llama3"):  # llama3: a tensor, see hf_names
        return keys
    if kind not in ("linear", "yarn"):
        raise s.fail("rope_scaling", f"type {kind!r:.40} is not supported; supported: linear, "
                                     "yarn, llama3")  # fmt: skip
    scaling = f"{arch}.rope.scaling."
    keys |= {scaling + "type": kind, scaling + "factor": s.real("factor")}
    if kind == "yarn":
        trained = c.integer("max_position_embeddings")
        keys[scaling + "original_context_length"] = s.integer(
            "original_max_position_embeddings", trained
        )
        for ours, theirs in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
            if s.get(theirs) is not None:
                keys[scaling + ours] = s.real(theirs)
        if s.get("mscale_all_dim"):
            keys[scaling + "yarn_log_multiplier"] = 0.1 * s.real("mscale_all_dim")
        elif s.get("attention_factor") is not None:
            raise s.fail("attention_factor", "is not supported")
    return keys


def _llama(c: Config) -> Keys:
    keys, dim = _common(c, "llama"), head_dim(c)
    if c.integer("num_local_experts", 0):
        raise c.fail("num_local_experts", "a llama mixture of experts is not supported")
    return keys | {
        "llama.rope.dimension_count": dim,
        "llama.attention.key_length": dim,
        "llama.attention.value_length": dim,
    }


def _qwen(arch: str) -> Callable[[Config], Keys]:
    def keys(c: Config) -> Keys:
        found, dim = _common(c, arch), head_dim(c)
        if not c.flag("use_sliding_window", False):
            found.pop(f"{arch}.attention.sliding_window", None)
        found |= {f"{arch}.attention.key_length": dim, f"{arch}.attention.value_length": dim}
        return found

    return keys


def _qwen3moe(c: Config) -> Keys:
    keys = _qwen("qwen3moe")(c)
    if not c.flag("norm_topk_prob", True):
        raise c.fail("norm_topk_prob", "is false: qwen3moe normalises the experts' weights")
    if c.get("mlp_only_layers") or c.integer("decoder_sparse_step", 1) != 1:
        raise c.fail("mlp_only_layers", "dense layers among the experts are not supported")
    return keys | _experts(c, "qwen3moe", c.integer("num_experts"))


def _experts(c: Config, arch: str, count: int) -> Keys:
    return {
        f"{arch}.expert_count": count,
        f"{arch}.expert_used_count": c.integer("num_experts_per_tok"),
        f"{arch}.expert_feed_forward_length": c.integer("moe_intermediate_size"),
    }


def _mla(arch: str) -> Callable[[Config], Keys]:
    """Multi-head latent attention with DeepSeek's experts (deepseek2; glm-dsa adds an indexer)."""

    def keys(c: Config) -> Keys:
        rope, nope = c.integer("qk_rope_head_dim"), c.integer("qk_nope_head_dim")
        lora, value = c.integer("kv_lora_rank"), c.integer("v_head_dim")
        scoring = c.get("scoring_func") or ("softmax" if arch == "deepseek2" else "sigmoid")
        if scoring not in ("softmax", "sigmoid"):
            raise c.fail("scoring_func", f"{scoring!r:.40} is not known; known: softmax, sigmoid")
        found = _common(c, arch) | _experts(c, arch, c.integer("n_routed_experts")) | {
            f"{arch}.attention.head_count_kv": 1,
            f"{arch}.attention.kv_lora_rank": lora,
            f"{arch}.attention.key_length": lora + rope,
            f"{arch}.attention.value_length": lora,
            f"{arch}.attention.key_length_mla": nope + rope,
            f"{arch}.attention.value_length_mla": value,
            f"{arch}.rope.dimension_count": rope,
            f"{arch}.leading_dense_block_count": c.integer("first_k_dense_replace", 0),
            f"{arch}.expert_shared_count": c.integer("n_shared_experts", 0),
            f"{arch}.expert_weights_scale": c.real("routed_scaling_factor", 1.0),
            f"{arch}.expert_weights_norm": c.flag("norm_topk_prob", False),
            f"{arch}.expert_gating_func": 2 if scoring == "sigmoid" else 1,
        }
        if c.get("q_lora_rank") is not None:
            found[f"{arch}.attention.q_lora_rank"] = c.integer("q_lora_rank")
        for ours, theirs in (("expert_group_count", "n_group"),
                             ("expert_group_used_count", "topk_group")):  # fmt: skip
            if c.get(theirs) is not None:
                found[f"{arch}.{ours}"] = c.integer(theirs)
        return found

    return keys


def _glm_dsa(c: Config) -> Keys:
    keys = _mla("glm-dsa")(c)
    for ours, theirs in (("head_count", "index_n_heads"), ("key_length", "index_head_dim"),
                         ("top_k", "index_topk")):  # fmt: skip
        if c.get(theirs) is not None:
            keys[f"glm-dsa.attention.indexer.{ours}"] = c.integer(theirs)
    return keys


# model_type -> its keys
MODELS: dict[str, Callable[[Config], Keys]] = {
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _qwen("qwen2"),
    "qwen3": _qwen("qwen3"),
    "qwen3_moe": _qwen3moe,
    "deepseek_v2": _mla("deepseek2"),
    "deepseek_v3": _mla("deepseek2"),
    "glm_moe_dsa": _glm_dsa,
}


def config_keys(c: Config) -> Keys:
    """GGUF keys of a config.json. Raises ModelError for unknown families and values."""
    kind = c.get("model_type")
    if kind not in MODELS:
        raise c.fail("model_type", f"model type {kind!r:.60} is not supported; supported: "
                                   f"{', '.join(MODELS)}")  # fmt: skip
    return MODELS[kind](c)
