"""Shapes of random models, and the GGUF headers that they become."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from gguf import ExpertGatingFuncType, GGMLQuantizationType, GGUFWriter

from .blocks import FORMATS
from .errors import UsageError

FALLBACK = "Q8_0"  # for rows that are no multiple of a format's block


@dataclass(frozen=True)
class Shape:
    """An architecture: llama, or deepseek2 with the fields after `rope_base`."""

    arch: str
    layers: int
    embd: int
    heads: int
    ff: int
    vocab: int
    format: str
    output_format: str
    heads_kv: int = 0
    head_dim: int = 0
    rope_base: float = 10000.0
    size_label: str = ""
    file_type: int = -1  # llama.cpp's number of the mix
    q_lora: int = 0
    kv_lora: int = 0
    nope: int = 0  # of a head, without rotation
    rope: int = 0  # of a head, rotated
    v_dim: int = 0
    experts: int = 0
    used: int = 0
    shared: int = 0
    ff_expert: int = 0
    dense: int = 0  # layers before the first with experts
    expert_scale: float = 1.0

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> Shape:
        """From a table. UsageError names an unknown, missing or wrong key."""
        known = {f.name: f for f in fields(cls)}
        for key, value in table.items():
            if key not in known:
                close = difflib.get_close_matches(key, known, 1, 0.5)
                raise UsageError(f"synthetic model {name}: unknown key '{key}'"
                                 + (f"; did you mean '{close[0]}'?" if close else ""))  # fmt: skip
            kind = {"str": str, "int": int, "float": (int, float)}[str(known[key].type)]
            if not isinstance(value, kind) or isinstance(value, bool):  # type: ignore[arg-type]
                raise UsageError(f"synthetic model {name}: {key} = {value!r} is no "
                                 f"{known[key].type}")  # fmt: skip
        missing = [k for k, f in known.items() if f.default is MISSING and k not in table]
        if missing:
            raise UsageError(f"synthetic model {name}: missing {', '.join(missing)}")
        shape = cls(**table)
        for fmt in (shape.format, shape.output_format):
            if fmt not in FORMATS:
                raise UsageError(f"synthetic model {name}: no format {fmt}; there are "
                                 f"{', '.join(FORMATS)}")  # fmt: skip
        if shape.arch not in ("llama", "deepseek2"):
            raise UsageError(f"synthetic model {name}: arch is llama or deepseek2")
        return shape


def tensors(s: Shape) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """(name, shape, format) of every tensor; F32 for vectors and routers."""
    yield "token_embd.weight", (s.vocab, s.embd), s.format
    for i in range(s.layers):
        parts = [*_latent(s)] if s.kv_lora else [*_heads(s)]
        parts += [*_experts(s)] if s.experts and i >= s.dense else [*_dense(s)]
        for name, shape, fmt in parts:
            yield f"blk.{i}.{name}", shape, fmt
    yield "output_norm.weight", (s.embd,), "F32"
    yield "output.weight", (s.vocab, s.embd), s.output_format


def _heads(s: Shape) -> Iterator[tuple[str, tuple[int, ...], str]]:
    q, kv = s.heads * s.head_dim, s.heads_kv * s.head_dim
    yield "attn_norm.weight", (s.embd,), "F32"
    for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
        yield f"{name}.weight", (rows, s.embd), s.format
    yield "attn_output.weight", (s.embd, q), s.format


def _latent(s: Shape) -> Iterator[tuple[str, tuple[int, ...], str]]:
    yield "attn_norm.weight", (s.embd,), "F32"
    yield "attn_q_a_norm.weight", (s.q_lora,), "F32"
    yield "attn_kv_a_norm.weight", (s.kv_lora,), "F32"
    for name, shape in (
        ("attn_q_a", (s.q_lora, s.embd)),
        ("attn_q_b", (s.heads * (s.nope + s.rope), s.q_lora)),
        ("attn_kv_a_mqa", (s.kv_lora + s.rope, s.embd)),
        ("attn_k_b", (s.heads, s.kv_lora, s.nope)),
        ("attn_v_b", (s.heads, s.v_dim, s.kv_lora)),
        ("attn_output", (s.embd, s.heads * s.v_dim)),
    ):
        yield f"{name}.weight", shape, s.format


def _dense(s: Shape) -> Iterator[tuple[str, tuple[int, ...], str]]:
    yield "ffn_norm.weight", (s.embd,), "F32"
    for name in ("ffn_gate", "ffn_up"):
        yield f"{name}.weight", (s.ff, s.embd), s.format
    yield "ffn_down.weight", (s.embd, s.ff), s.format


def _experts(s: Shape) -> Iterator[tuple[str, tuple[int, ...], str]]:
    yield "ffn_norm.weight", (s.embd,), "F32"
    yield "ffn_gate_inp.weight", (s.experts, s.embd), "F32"
    yield "exp_probs_b.bias", (s.experts,), "F32"
    wide = s.shared * s.ff_expert
    for name in ("ffn_gate", "ffn_up"):
        yield f"{name}_exps.weight", (s.experts, s.ff_expert, s.embd), s.format
        yield f"{name}_shexp.weight", (wide, s.embd), s.format
    yield "ffn_down_exps.weight", (s.experts, s.embd, s.ff_expert), s.format
    yield "ffn_down_shexp.weight", (s.embd, wide), s.format


def _metadata(w: GGUFWriter, name: str, s: Shape) -> None:
    """The keys of the architecture (docs/gguf.md)."""
    w.add_name(name)
    w.add_context_length(131072)
    w.add_embedding_length(s.embd)
    w.add_block_count(s.layers)
    w.add_feed_forward_length(s.ff)
    w.add_head_count(s.heads)
    w.add_head_count_kv(1 if s.kv_lora else s.heads_kv)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(s.rope_base)
    w.add_vocab_size(s.vocab)
    w.add_tokenizer_model("none")
    w.add_rope_dimension_count(s.rope or s.head_dim)
    w.add_key_length(s.kv_lora + s.rope if s.kv_lora else s.head_dim)
    w.add_value_length(s.kv_lora or s.head_dim)
    if s.size_label:
        w.add_size_label(s.size_label)
    if s.file_type >= 0:
        w.add_file_type(s.file_type)
    if s.kv_lora:
        w.add_q_lora_rank(s.q_lora)
        w.add_kv_lora_rank(s.kv_lora)
        w.add_key_length_mla(s.nope + s.rope)
        w.add_value_length_mla(s.v_dim)
    if s.experts:
        w.add_expert_count(s.experts)
        w.add_expert_used_count(s.used)
        w.add_expert_shared_count(s.shared)
        w.add_expert_feed_forward_length(s.ff_expert)
        w.add_leading_dense_block_count(s.dense)
        w.add_expert_weights_scale(s.expert_scale)
        w.add_expert_weights_norm(True)
        w.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)


def write_header(path: Path, name: str, s: Shape) -> None:
    """A GGUF file whose tensors are holes: their bytes read as zeros and take no room."""
    w = GGUFWriter(path, s.arch)
    _metadata(w, name, s)
    end = 0
    for tensor, shape, wanted in tensors(s):
        fmt = FORMATS[wanted]
        if shape[-1] % fmt.elems:
            fmt = FORMATS[FALLBACK]
        row = fmt.row_bytes(shape[-1])
        size = int(np.prod(shape[:-1], dtype=np.int64)) * row
        kind = GGMLQuantizationType(fmt.type_id) if fmt.type_id >= 0 else GGMLQuantizationType.I8
        if fmt.name == "F32":
            w.add_tensor_info(tensor, shape, np.dtype(np.float32), size)
        else:
            w.add_tensor_info(tensor, (*shape[:-1], row), np.dtype(np.uint8), size, kind)
        end += -(-size // 32) * 32
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    w.close()
    with path.open("r+b") as f:
        start = -(-f.seek(0, 2) // 32) * 32
        f.truncate(start + end)
