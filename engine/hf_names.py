"""Names and shapes of Hugging Face tensors, and the GGUF tensors that they become.

gguf-py's table gives the names. Four things are not one to one: experts are single tensors there
and one here; llama's q and k rows are in halves there and interleaved here, as rope pairs them;
kv_b is split into k_b (transposed per head) and v_b; llama3's rope scaling becomes rope_freqs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from gguf.constants import MODEL_ARCH, MODEL_ARCH_NAMES
from gguf.tensor_mapping import TensorNameMap, get_tensor_name_map

from .errors import ModelError
from .hf_config import head_dim
from .int_rows import Computed, Gathered, Index, Joined, Plain, Rows
from .json_file import Config

EXPERT = re.compile(r"(.+\.mlp\.experts)\.(\d+)\.(.+)")
LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_TURNED = re.compile(r"\.attn_[qk]\.(weight|bias)$")
IGNORED = re.compile(r".*(?:rotary_emb\.inv_freq|\.attn\.(?:masked_)?bias)")
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@dataclass(frozen=True)
class Names:
    """The family of a config: GGUF names of its tensors, and their logical shapes (O, I)."""

    config: Config
    arch: str

    @cached_property
    def table(self) -> TensorNameMap:
        """gguf-py's names; one layer more than the model has, for the draft head."""
        number = next(a for a, name in MODEL_ARCH_NAMES.items() if name == self.arch)
        layers = self.config.integer("num_hidden_layers")
        extra = self.config.integer("num_nextn_predict_layers", 0)
        return get_tensor_name_map(MODEL_ARCH(number), layers + extra + 1)

    # --- shapes ------------------------------------------------------------------------------

    def shape(self, name: str) -> tuple[int, int] | None:
        """(O, I) of a matrix from the config, or None for a name that it does not settle."""
        m = LAYER.fullmatch(name)
        c, wide = self.config, self.config.integer("hidden_size")
        if m is None:
            table = (c.integer("vocab_size"), wide)
            return table if name in ("model.embed_tokens.weight", "lm_head.weight") else None
        part = m[2].removesuffix(".weight")
        expert = EXPERT.fullmatch(f"x.{part}")
        if expert or part.startswith(("mlp.experts.", "mlp.shared_expert")):
            count = c.integer("n_shared_experts", 1) if "shared" in part else 1
            inner = c.integer("moe_intermediate_size") * count
            return (wide, inner) if part.endswith("down_proj") else (inner, wide)
        return self._attention(part) or self._feed_forward(part)

    def _feed_forward(self, part: str) -> tuple[int, int] | None:
        c, wide = self.config, self.config.integer("hidden_size")
        inner = c.integer("intermediate_size")
        if part in ("mlp.gate_proj", "mlp.up_proj"):
            return inner, wide
        if part == "mlp.down_proj":
            return wide, inner
        if part == "mlp.gate":
            return c.integer("n_routed_experts", c.integer("num_experts", 0)), wide
        return (wide, 2 * wide) if part == "eh_proj" else None

    def _attention(self, part: str) -> tuple[int, int] | None:
        c, wide = self.config, self.config.integer("hidden_size")
        heads = c.integer("num_attention_heads")
        if c.get("kv_lora_rank") is not None:
            return self._latent(part, heads, wide)
        dim, kv = head_dim(c), c.integer("num_key_value_heads", heads)
        return {
            "self_attn.q_proj": (heads * dim, wide),
            "self_attn.k_proj": (kv * dim, wide),
            "self_attn.v_proj": (kv * dim, wide),
            "self_attn.o_proj": (wide, heads * dim),
        }.get(part)

    def _latent(self, part: str, heads: int, wide: int) -> tuple[int, int] | None:
        c = self.config
        rope, nope = c.integer("qk_rope_head_dim"), c.integer("qk_nope_head_dim")
        lora, value, q_lora = (c.integer(k, 0) for k in ("kv_lora_rank", "v_head_dim",
                                                         "q_lora_rank"))  # fmt: skip
        index = c.integer("index_n_heads", 0), c.integer("index_head_dim", 0)
        return {
            "self_attn.q_proj": (heads * (nope + rope), wide),
            "self_attn.q_a_proj": (q_lora, wide),
            "self_attn.q_b_proj": (heads * (nope + rope), q_lora),
            "self_attn.kv_a_proj_with_mqa": (lora + rope, wide),
            "self_attn.kv_b_proj": (heads * (nope + value), lora),
            "self_attn.o_proj": (wide, heads * value),
            "self_attn.indexer.wq_b": (index[0] * index[1], q_lora),
            "self_attn.indexer.wk": (index[1], wide),
            "self_attn.indexer.weights_proj": (index[0], wide),
        }.get(part)

    # --- what must be there ------------------------------------------------------------------

    def expected(self) -> list[str]:
        """Names of all tensors that a complete model has; tied embeddings need no lm_head."""
        c = self.config
        names = ["model.embed_tokens.weight", "model.norm.weight"]
        if not c.flag("tie_word_embeddings", False):
            names.append("lm_head.weight")
        dense = c.integer("first_k_dense_replace", 0)
        experts = c.integer("n_routed_experts", c.integer("num_experts", 0))
        shared = c.integer("n_shared_experts", 0)
        for i in range(c.integer("num_hidden_layers")):
            parts = self._attention_parts()
            parts += _gated("mlp") if not experts or i < dense else _routed(experts, shared)
            names += [f"model.layers.{i}.{part}.weight" for part in parts]
        return names

    def _attention_parts(self) -> list[str]:
        own = ["input_layernorm", "post_attention_layernorm", "self_attn.o_proj"]
        if self.config.get("kv_lora_rank") is not None:
            q = ["q_proj"] if self.config.get("q_lora_rank") is None else [
                "q_a_proj", "q_a_layernorm", "q_b_proj"]  # fmt: skip
            rest = [*q, "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj"]
        else:
            rest = ["q_proj", "k_proj", "v_proj"]
            if self.arch.startswith("qwen3"):
                rest += ["q_norm", "k_norm"]
        return own + [f"self_attn.{name}" for name in rest]

    # --- GGUF names --------------------------------------------------------------------------

    def target(self, name: str) -> str | None:
        """The GGUF name of a tensor, experts without their number; None if there is none."""
        name = name.replace(".e_score_correction_bias", ".e_score_correction.bias")
        found: str | None = self.table.get_name(name, try_suffixes=(".weight", ".bias"))
        return found


def _gated(stem: str) -> list[str]:
    return [f"{stem}.{name}_proj" for name in ("gate", "up", "down")]


def _routed(experts: int, shared: int) -> list[str]:
    parts = ["mlp.gate", *(_gated("mlp.shared_experts") if shared else [])]
    for e in range(experts):
        parts += _gated(f"mlp.experts.{e}")
    return parts


# --- tensors under their GGUF names ------------------------------------------------------------


def gguf_rows(names: Names, found: Mapping[str, Rows]) -> dict[str, tuple[Rows, tuple[int, ...]]]:
    """GGUF name -> (rows, shape in NumPy order) of Hugging Face tensors by name."""
    table, out = names.table, dict[str, tuple[Rows, tuple[int, ...]]]()
    experts: dict[str, dict[int, Rows]] = {}
    for name, rows in found.items():
        m = EXPERT.fullmatch(name)
        plain = f"{m[1]}.{m[3]}" if m else name
        plain = plain.replace(".e_score_correction_bias", ".e_score_correction.bias")
        target = table.get_name(plain, try_suffixes=(".weight", ".bias"))
        if target is None:
            if IGNORED.fullmatch(name):
                continue
            raise ModelError(names.config.path.parent, f"the tensor has no place in architecture "
                             f"{names.arch!r}", f"tensor {name!r}")  # fmt: skip
        if m:
            experts.setdefault(target, {})[int(m[2])] = rows
        elif target.endswith("attn_kv_b.weight"):
            out |= _split_kv_b(names.config, target, rows)
        else:
            out[target] = _placed(names, target, rows)
    for target, parts in experts.items():
        one = parts[min(parts)]
        joined = Joined([parts[e] for e in sorted(parts)])
        out[target] = joined, (len(parts), one.rows, one.cols)
    return out | _rope_freqs(names)


def _placed(names: Names, target: str, rows: Rows) -> tuple[Rows, tuple[int, ...]]:
    """A tensor that keeps its values; llama's q and k, and their biases, in interleaved order."""
    c = names.config
    vector = isinstance(rows, Plain) and len(rows.stored.shape) < 2
    if names.arch == "llama" and _TURNED.search(target):
        kind = "num_attention_heads" if "attn_q" in target else "num_key_value_heads"
        heads = c.integer(kind, c.integer("num_attention_heads"))
        n = rows.cols if vector else rows.rows
        if not heads or n % (2 * heads):
            raise c.fail(kind, f"is {heads}, which does not divide the {n} rows of {target}")
        order = interleaved(n, heads)
        if vector:
            return Computed(1, n, lambda i: rows.values(0, 1)[i][:, order]), (n,)
        return Gathered(rows, order), (n, rows.cols)
    return rows, (rows.cols,) if vector else (rows.rows, rows.cols)


def interleaved(rows: int, heads: int) -> Index:
    """Order of rows that turns pairs (i, i + dim/2) of every head into neighbours."""
    order = np.arange(rows).reshape(heads, 2, rows // heads // 2)
    return order.swapaxes(1, 2).reshape(-1)


def _split_kv_b(c: Config, target: str, kv_b: Rows) -> dict[str, tuple[Rows, tuple[int, ...]]]:
    """k_b (heads, lora, nope) and v_b (heads, value, lora) out of kv_b."""
    heads, nope = c.integer("num_attention_heads"), c.integer("qk_nope_head_dim")
    value, lora = c.integer("v_head_dim"), c.integer("kv_lora_rank")
    both = nope + value
    if kv_b.rows != heads * both:
        raise c.fail("num_attention_heads", f"{heads} heads of {nope} + {value} rows expected, "
                                            f"kv_b_proj has {kv_b.rows} rows")  # fmt: skip

    def transposed(index: Index) -> Floats:
        out = np.empty((len(index), nope), np.float32)
        for h in np.unique(index // lora):
            block = kv_b.values(h * both, h * both + nope)
            mine = index // lora == h
            out[mine] = block.T[index[mine] % lora]
        return out

    order = np.arange(heads * both).reshape(heads, both)[:, nope:].reshape(-1)
    kind = "F32" if set(kv_b.kinds) <= {"F32", "F64"} else "BF16" if kv_b.kinds == (
        "BF16",) else "F16"  # fmt: skip
    return {
        target.replace("kv_b", "k_b"): (
            Computed(heads * lora, nope, transposed, kind), (heads, lora, nope)
        ),
        target.replace("kv_b", "v_b"): (Gathered(kv_b, order), (heads, value, lora)),
    }  # fmt: skip


def _rope_freqs(names: Names) -> dict[str, tuple[Rows, tuple[int, ...]]]:
    """rope_freqs.weight of rope type llama3: what every frequency is divided by."""
    c = names.config
    s = c.object("rope_parameters") or c.object("rope_scaling")
    if s is None or (s.get("rope_type") or s.get("type")) != "llama3":
        return {}
    factor, low, high = (s.real(k) for k in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = s.integer("original_max_position_embeddings")
    base = s.real("rope_theta", c.real("rope_theta", 10000.0))
    dim = head_dim(c)
    wave = 2 * math.pi * base ** (np.arange(0, dim, 2, dtype=np.float64) / dim)
    smooth = np.clip((trained / wave - low) / (high - low), 0.0, 1.0)
    values = (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)[None]
    return {"rope_freqs.weight": (Computed(1, dim // 2, lambda i: values[i]), (dim // 2,))}
