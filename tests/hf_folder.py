"""Hugging Face folders for tests, made from GGUF models: the way back of engine/hf_names.py."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors_bytes import write

from kompute_llm.engine.container import Container

Array = npt.NDArray[Any]
Tensors = dict[str, Array]

_PARTS = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm", "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate", "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj", "ffn_down_shexp": "mlp.shared_experts.down_proj",
    "indexer.k_norm": "self_attn.indexer.k_norm", "indexer.proj": "self_attn.indexer.weights_proj",
    "indexer.attn_k": "self_attn.indexer.wk", "indexer.attn_q_b": "self_attn.indexer.wq_b",
    "nextn.eh_proj": "eh_proj", "nextn.enorm": "enorm", "nextn.hnorm": "hnorm",
    "nextn.shared_head_norm": "shared_head.norm",
}  # fmt: skip
_TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight"}  # fmt: skip


def arrays(c: Container) -> Tensors:
    """The F32 and F16 tensors of a GGUF model as arrays of their shape."""
    dtypes = {"F32": np.float32, "F16": np.float16}
    return {
        name: c.raw(t).view(dtypes[t.format_name]).reshape(t.shape)
        for name, t in c.tensors.items()
    }


def hf_tensors(found: Mapping[str, Array], *, heads: tuple[int, int] | None = None) -> Tensors:
    """Tensors under Hugging Face names. `heads`: q and k heads of a llama, whose rows move."""
    out: Tensors = {}
    for name, x in found.items():
        m = re.fullmatch(r"blk\.(\d+)\.(.+)\.(weight|bias)", name)
        if m is None:
            out[_TOP[name]] = x
            continue
        layer, part = f"model.layers.{m[1]}.", m[2]
        if part.endswith("_exps"):
            kind = part.removeprefix("ffn_").removesuffix("_exps")
            for e, one in enumerate(x):
                out[f"{layer}mlp.experts.{e}.{kind}_proj.weight"] = one
        elif part == "exp_probs_b":
            out[f"{layer}mlp.gate.e_score_correction_bias"] = x
        elif part == "attn_k_b":
            v_b = found[name.replace("k_b", "v_b")]
            both = np.concatenate([x.swapaxes(1, 2), v_b], axis=1)
            out[f"{layer}self_attn.kv_b_proj.weight"] = both.reshape(-1, x.shape[1])
        elif part != "attn_v_b":
            if heads and part in ("attn_q", "attn_k"):
                count = heads[part == "attn_k"]
                x = x.reshape(count, -1, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
            out[f"{layer}{_PARTS[part]}.{m[3]}"] = x
    return out


def write_folder(
    folder: Path, tensors: Mapping[str, Any], config: Mapping[str, Any], shards: int = 1
) -> Path:
    """config.json and numbered shards, tensors dealt out in order."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    names = list(tensors)
    each = -(-len(names) // shards)
    for i in range(shards):
        part = {n: tensors[n] for n in names[i * each : (i + 1) * each]}
        write(folder / f"model-{i + 1:05d}-of-{shards:05d}.safetensors", part)
    return folder


def llama_config(c: Container) -> dict[str, Any]:
    """config.json of a GGUF llama."""
    k = c.metadata
    return {
        "model_type": "llama",
        "hidden_size": k["llama.embedding_length"],
        "intermediate_size": k["llama.feed_forward_length"],
        "num_hidden_layers": k["llama.block_count"],
        "num_attention_heads": k["llama.attention.head_count"],
        "num_key_value_heads": k["llama.attention.head_count_kv"],
        "max_position_embeddings": k["llama.context_length"],
        "rms_norm_eps": k["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": k.get("llama.rope.freq_base", 10000.0),
        "vocab_size": c.tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in c.tensors,
        "hidden_act": "silu",
    }
