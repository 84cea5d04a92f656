"""Folders of safetensors as containers: names, shapes, packed tensors, what is missing."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import tiny
from helpers import golden
from hf_folder import arrays, hf_tensors, llama_config, write_folder
from safetensors_bytes import write, write_header

from kompute_llm.engine import int_codec
from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.errors import ModelError
from kompute_llm.engine.int_container import IntContainer
from kompute_llm.engine.int_formats import NAMES, IntKind
from kompute_llm.engine.spec import model_spec

SMALL: dict[str, Any] = {"n_embd": 128, "n_head": 4, "n_head_kv": 2, "n_ff": 192, "n_ctx": 512}
INT4 = IntKind("int4-grouped", "4", 64)


@pytest.fixture
def small(tmp_path: Path) -> Container:
    """A llama of 2 layers in F16."""
    return open_model(tiny(**SMALL).write(tmp_path / "small.gguf"))


def folder(c: Container, path: Path, shards: int = 1, **changes: Any) -> Path:
    """The Hugging Face form of a llama."""
    config = llama_config(c) | changes
    return write_folder(path, hf_tensors(arrays(c), heads=(4, 2)), config, shards)


def same(a: Container, b: Container) -> None:
    """Both hold the same tensors, byte by byte."""
    assert set(a.tensors) == set(b.tensors)
    for name, t in a.tensors.items():
        u = b.tensors[name]
        assert (t.shape, t.type_id) == (u.shape, u.type_id), name
        assert np.array_equal(a.raw(t), b.raw(u)), name


def test_llama_becomes_the_same_model(small: Container, tmp_path: Path) -> None:
    c = open_model(folder(small, tmp_path / "hf", shards=3))
    assert isinstance(c, IntContainer) and len(c.paths) == 3
    same(small, c)
    a, b = model_spec(small), model_spec(c)
    assert (a.n_layer, a.n_embd, a.n_head_kv, a.n_ff, a.n_ctx_train, a.eps) == (
        b.n_layer, b.n_embd, b.n_head_kv, b.n_ff, b.n_ctx_train, b.eps)  # fmt: skip
    q = "blk.1.attn_q.weight"
    assert np.array_equal(small.matrix(q, 128, 128).dequantize(3, 70),
                          c.matrix(q, 128, 128).dequantize(3, 70))  # fmt: skip
    one = open_model(tmp_path / "hf" / "model-00002-of-00003.safetensors")
    assert set(one.tensors) == set(c.tensors)


@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2-v3", "glm-dsa"])
def test_families_with_experts(name: str, tmp_path: Path) -> None:
    data = golden()
    if data is None:
        pytest.skip("needs ../shared/golden")
    gguf = open_model(data / "models" / f"{name}.F16.gguf")
    found = {n: x for n, x in arrays(gguf).items()}
    c = open_model(write_folder(tmp_path / "hf", hf_tensors(found), moe_config(gguf), 2))
    same(gguf, c)
    keys = set(gguf.metadata) - {"general.type", "general.quantization_version",
                                 "general.file_type", "general.name"}  # fmt: skip
    for key in keys:
        if not key.startswith("tokenizer."):
            assert c.metadata[key] == pytest.approx(gguf.metadata[key]), key


def moe_config(c: Container) -> dict[str, Any]:
    """config.json of the golden models with experts."""
    arch = c.metadata["general.architecture"]
    k = {key.removeprefix(arch + "."): value for key, value in c.metadata.items()}
    draft = k.get("nextn_predict_layers", 0)
    config: dict[str, Any] = {
        "model_type": {"qwen3moe": "qwen3_moe", "deepseek2": "deepseek_v3",
                       "glm-dsa": "glm_moe_dsa"}[arch],
        "hidden_size": k["embedding_length"], "intermediate_size": k["feed_forward_length"],
        "num_hidden_layers": k["block_count"] - draft, "num_nextn_predict_layers": draft,
        "num_attention_heads": k["attention.head_count"],
        "num_key_value_heads": k["attention.head_count_kv"],
        "max_position_embeddings": k["context_length"], "vocab_size": k["vocab_size"],
        "rms_norm_eps": k["attention.layer_norm_rms_epsilon"], "rope_theta": k["rope.freq_base"],
        "num_experts_per_tok": k["expert_used_count"],
        "moe_intermediate_size": k["expert_feed_forward_length"], "norm_topk_prob": True,
    }  # fmt: skip
    if arch == "qwen3moe":
        return config | {"num_experts": k["expert_count"], "head_dim": k["attention.key_length"]}
    rope = k["rope.dimension_count"]
    config |= {
        "n_routed_experts": k["expert_count"], "n_shared_experts": k["expert_shared_count"],
        "first_k_dense_replace": k["leading_dense_block_count"], "qk_rope_head_dim": rope,
        "qk_nope_head_dim": k["attention.key_length_mla"] - rope,
        "v_head_dim": k["attention.value_length_mla"], "q_lora_rank": k["attention.q_lora_rank"],
        "kv_lora_rank": k["attention.kv_lora_rank"], "scoring_func": "sigmoid",
        "routed_scaling_factor": k["expert_weights_scale"], "n_group": k["expert_group_count"],
        "topk_group": k["expert_group_used_count"],
    }  # fmt: skip
    if arch == "glm-dsa":
        return config | {
            "index_n_heads": k["attention.indexer.head_count"],
            "index_head_dim": k["attention.indexer.key_length"],
            "index_topk": k["attention.indexer.top_k"],
        }
    return config | {"rope_scaling": {
        "type": "yarn", "factor": k["rope.scaling.factor"],
        "original_max_position_embeddings": k["rope.scaling.original_context_length"],
        "mscale_all_dim": k["rope.scaling.yarn_log_multiplier"] / 0.1,
    }}  # fmt: skip


# --- packed tensors --------------------------------------------------------------------------


def pack_all(tensors: dict[str, Any], kind: IntKind) -> dict[str, Any]:
    """Matrices of the layers packed, with their scales; flat, as other writers store them."""
    out: dict[str, Any] = {}
    for name, x in tensors.items():
        if not name.endswith("_proj.weight"):
            out[name] = x
            continue
        packed, scales = int_codec.quantize(kind, x.astype(np.float32))
        out |= {name: packed.reshape(-1), name + ".qs": scales.reshape(-1)}
    return out


@pytest.mark.parametrize("kind", [NAMES["int8-row"], NAMES["int2-row"], INT4, NAMES["int3-g64"]],
                         ids=lambda k: k.label)  # fmt: skip
def test_packed_matrices_decode_under_gguf_names(
    small: Container, tmp_path: Path, kind: IntKind
) -> None:
    tensors = pack_all(hf_tensors(arrays(small), heads=(4, 2)), kind)
    c = open_model(write_folder(tmp_path / "hf", tensors, llama_config(small), 2))
    assert isinstance(c, IntContainer)
    for name in ("blk.0.attn_q.weight", "blk.1.ffn_down.weight", "blk.1.attn_v.weight"):
        x = small.matrix(name, *small.tensors[name].shape).dequantize()
        packed, scales = int_codec.quantize(kind, x)
        expected = int_codec.dequantize(kind, packed, scales, x.shape[1])
        assert np.array_equal(c.rows[name].values(), expected), name
        got = c.matrix(name, *x.shape).dequantize()
        assert np.abs(got - expected).max() <= np.abs(expected).max() * 2.0**-10, name
    model_spec(c)


def test_float8_blocks(small: Container, tmp_path: Path) -> None:
    tensors = hf_tensors(arrays(small), heads=(4, 2))
    name = "model.layers.0.mlp.down_proj.weight"
    codes = np.random.default_rng(0).integers(0, 0x7F, (128, 192), dtype=np.uint8)
    scales = np.array([[0.5, 0.25]], np.float32)
    tensors[name] = ("F8_E4M3", codes)  # type: ignore[assignment]
    tensors[name + "_scale_inv"] = scales
    c = open_model(write_folder(tmp_path / "hf", tensors, llama_config(small)))
    got = c.matrix("blk.0.ffn_down.weight", 128, 192).dequantize()
    assert np.array_equal(got[:, :128], int_codec.e4m3(codes[:, :128]) * np.float32(0.5))
    assert np.array_equal(got[:, 128:], int_codec.e4m3(codes[:, 128:]) * np.float32(0.25))


def test_ambiguous_and_impossible_tensors_are_refused(small: Container, tmp_path: Path) -> None:
    tensors = pack_all(hf_tensors(arrays(small), heads=(4, 2)), INT4)
    name = "model.layers.0.self_attn.v_proj.weight"
    tensors[name] = np.zeros(64 * 65, np.uint8)
    path = write_folder(tmp_path / "hf", tensors, llama_config(small))
    with pytest.raises(ModelError, match=r"v_proj.weight': O = 64 rows of I = 128 .* 4160 bytes"):
        open_model(path)
    del tensors[name + ".qs"]
    with pytest.raises(ModelError, match=r"v_proj.weight.qs is missing"):
        open_model(write_folder(tmp_path / "hf", tensors, llama_config(small)))


def test_stamps_must_agree(small: Container, tmp_path: Path) -> None:
    tensors = pack_all(hf_tensors(arrays(small), heads=(4, 2)), INT4)
    path = write_folder(tmp_path / "hf", tensors, llama_config(small))
    name = "model.layers.0.self_attn.v_proj.weight"
    extra = path / "extra.safetensors"
    write(extra, {}, colibri__fmt={name: "int8-row"})
    with pytest.raises(ModelError, match="is stamped int8-row, but O = 64"):
        open_model(path)
    write(extra, {}, colibri__fmt={name: "int4-grouped"})
    open_model(path)
    write(path / "other.safetensors", {}, colibri__fmt={name: "int8-row"})
    with pytest.raises(ModelError, match="stamped both"):
        open_model(path)


# --- missing parts ---------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [1, 3, 5])
def test_absent_shards_are_named_with_what_they_held(
    small: Container, tmp_path: Path, gone: int
) -> None:
    path = folder(small, tmp_path / "hf", shards=5)
    name = f"model-{gone:05d}-of-00005.safetensors"
    (path / name).unlink()
    with pytest.raises(ModelError) as e:
        open_model(path)
    assert f"shards missing in the folder: {name}" in str(e.value)
    assert "of the 21 tensors of this model are missing" in str(e.value)
    held = {1: "token_embd.weight", 3: "layer", 5: "output.weight"}[gone]
    assert held in str(e.value) and "truncated" not in str(e.value)


def test_shards_numbered_from_zero(small: Container, tmp_path: Path) -> None:
    path = folder(small, tmp_path / "hf", shards=3)
    for p in sorted(path.glob("*.safetensors")):
        p.rename(path / f"out-{int(p.name[6:11]) - 1:05d}.safetensors")
    open_model(path)
    (path / "out-00000.safetensors").unlink()
    with pytest.raises(ModelError, match=r"token_embd.weight.*missing in the folder: out-00000"):
        open_model(path)


def test_a_config_with_more_layers_lists_them(small: Container, tmp_path: Path) -> None:
    path = folder(small, tmp_path / "hf", num_hidden_layers=5)
    with pytest.raises(ModelError, match=r"27 of the 48 tensors.*layers 2-4: attn_k.weight"):
        open_model(path)


def test_missing_experts_are_named(tmp_path: Path) -> None:
    data = golden()
    if data is None:
        pytest.skip("needs ../shared/golden")
    gguf = open_model(data / "models" / "qwen3moe.F16.gguf")
    tensors = hf_tensors(arrays(gguf))
    del tensors["model.layers.1.mlp.experts.5.up_proj.weight"]
    with pytest.raises(ModelError, match=r"layer 1: ffn_up_exps.weight \(of experts 5\)"):
        open_model(write_folder(tmp_path / "hf", tensors, moe_config(gguf)))


def test_folders_of_two_models_or_of_none(small: Container, tmp_path: Path) -> None:
    path = folder(small, tmp_path / "hf")
    tiny(**SMALL).write(path / "other.gguf")
    with pytest.raises(ModelError, match=r"holds safetensors and other\.gguf"):
        open_model(path)
    (path / "config.json").unlink()
    assert len(open_model(path).paths) == 1  # what opens is the GGUF file
    with pytest.raises(ModelError, match=r"neither config\.json nor metadata\.gguf"):
        open_model(path / "model-00001-of-00001.safetensors")


def test_unknown_families_and_tensors(small: Container, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="model type 'bert' is not supported"):
        open_model(folder(small, tmp_path / "a", model_type="bert"))
    tensors = hf_tensors(arrays(small), heads=(4, 2))
    tensors["model.vision.weight"] = np.zeros((2, 2), np.float32)
    with pytest.raises(ModelError, match=r"'model\.vision\.weight': the tensor has no place"):
        open_model(write_folder(tmp_path / "b", tensors, llama_config(small)))


# --- damaged headers -------------------------------------------------------------------------

ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (b"[]", "not a safetensors file"),
        (b"{", "the header is damaged"),
        (b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}", "header"),
        (json.dumps({"a": 1}).encode(), "'a': its header entry is not an object"),
        (json.dumps({"a": ENTRY | {"dtype": "Q9"}}).encode(), "dtype 'Q9' is not known"),
        (json.dumps({"a": ENTRY | {"shape": [-2]}}).encode(), "is not a list of sizes"),
        (json.dumps({"a": ENTRY | {"shape": [3]}}).encode(), "takes 12 bytes, data_offsets give 8"),
        (json.dumps({"a": ENTRY | {"data_offsets": [8, 0]}}).encode(), "are not \\[begin, end\\]"),
        (json.dumps({"a": ENTRY | {"data_offsets": [64, 72]}}).encode(), "truncated: it ends at"),
        (json.dumps({"a": ENTRY, "b": ENTRY}).encode(), "overlaps tensor 'a'"),
        (b'{"a":%s,"a":%s}' % ((json.dumps(ENTRY).encode(),) * 2), "'a' is given twice"),
        (b'{"a":{"dtype":"F32","shape":[1' + b"0" * 5000 + b"]}}", "header is damaged"),
        (b'{"__metadata__":{"a":1}}', "expected strings"),
        (b'{"\xff":1}', "header is damaged"),
    ],
)
def test_damaged_headers(tmp_path: Path, header: bytes, problem: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    write_header(tmp_path / "m.safetensors", header, bytes(8))
    with pytest.raises(ModelError, match=problem):
        open_model(tmp_path)


@pytest.mark.parametrize("length", [1 << 20, 1 << 40, (1 << 64) - 1])
def test_header_lengths_beyond_the_file(tmp_path: Path, length: int) -> None:
    (tmp_path / "config.json").write_text("{}")
    write_header(tmp_path / "m.safetensors", b"{}", length=length)
    with pytest.raises(ModelError, match=r"truncated|not a safetensors file"):
        open_model(tmp_path)


def test_random_damage_never_ends_in_anything_but_a_message(
    small: Container, tmp_path: Path
) -> None:
    path = folder(small, tmp_path / "hf")
    file = path / "model-00001-of-00001.safetensors"
    good, rng = file.read_bytes(), np.random.default_rng(4)
    for _ in range(60):
        bad = bytearray(good[: int(rng.integers(0, 4000))] if rng.random() < 0.3 else good)
        for at in rng.integers(0, min(len(bad), 3000) + 1, 4):
            if at < len(bad):
                bad[at] = rng.integers(0, 256)
        file.write_bytes(bad)
        with contextlib.suppress(ModelError):
            model_spec(open_model(path))
