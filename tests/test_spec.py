"""ModelSpec from metadata: defaults, refusals by key name, missing and unknown tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import Model, cycle, tiny, token_ids
from helpers import golden
from numpy_llama import logits

from kompute_llm.engine.checks import by_layer
from kompute_llm.engine.container import open_model
from kompute_llm.engine.errors import ModelError
from kompute_llm.engine.spec import ModelSpec, model_spec

FORMATS = (
    "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K_S",
    "IQ4_NL", "IQ4_XS", "MXFP4",
)  # fmt: skip


def small(metadata: dict[str, Any] | None = None, **how: Any) -> Model:
    return tiny(**({"n_embd": 32, "n_ff": 64, "n_layer": 2, "metadata": metadata} | how))


def spec_of(tmp_path: Path, m: Model) -> ModelSpec:
    with open_model(m.write(tmp_path / "m.gguf")) as c:
        return model_spec(c)


def refused(tmp_path: Path, m: Model, *words: str) -> str:
    with pytest.raises(ModelError) as e:
        spec_of(tmp_path, m)
    message = str(e.value)
    assert str(tmp_path) in message and "\n" not in message
    for word in words:
        assert word in message, message
    return message


def nmse(want: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> float:
    return float(((want - got) ** 2).sum() / (want.astype(np.float64) ** 2).sum())


def test_tiny(tmp_path: Path) -> None:
    s = spec_of(tmp_path, tiny(quant="Q8_0"))
    assert (s.arch, s.name, s.n_layer, s.n_embd, s.n_ff) == ("llama", "tiny", 2, 512, 512)
    assert (s.n_head, s.n_head_kv, s.head_dim, s.q_dim, s.kv_dim) == (4, 2, 128, 512, 256)
    assert (s.n_vocab, s.n_ctx_train, s.tied, s.window) == (288, 131072, False, None)
    assert s.eps == pytest.approx(1e-5) and s.rope.dims == 128 and s.notes == ()
    matrices = 2 * 288 * 512 + 2 * (2 * 512 * 512 + 2 * 256 * 512 + 3 * 512 * 512)
    assert s.n_params == matrices + 5 * 512
    assert s.weight_bytes == matrices // 32 * 34 + 5 * 512 * 4
    assert s.kv_bytes_per_token("F16") == 2 * 2 * 256 * 2 == s.kv_bytes_per_token("F32") // 2
    idle = 288 * 512 // 32 * 34  # the embedding table, of which a step reads one row
    assert s.decode_bytes(10, "F32") == s.weight_bytes - idle + 10 * 2 * 2 * 256 * 4


@pytest.mark.parametrize("quant", ["F16", "Q8_0", "Q6_K"])
def test_tied_embeddings(tmp_path: Path, quant: str) -> None:
    m = tiny(quant=quant, n_embd=256, n_ff=256, n_layer=1)
    m.tensors["output.weight"] = m.tensors["token_embd.weight"]
    results = []
    for _ in range(2):
        with open_model(m.write(tmp_path / "m.gguf")) as c:
            s = model_spec(c)
            results.append((s, logits(c, s, [1, 5, 9])))
        m.tensors.pop("output.weight", None)
    (own, a), (tied, b) = results
    assert np.array_equal(a, b)
    assert not own.tied and tied.tied and any("tied" in n for n in tied.notes)
    assert own.weight_bytes - tied.weight_bytes == own.idle_bytes > 0 == tied.idle_bytes
    assert own.decode_bytes(0) == tied.decode_bytes(0), "both read one such matrix per token"


def test_optional_keys(tmp_path: Path) -> None:
    absent = ("attention.head_count_kv", "rope.freq_base", "rope.dimension_count")
    m = small({f"llama.{k}": None for k in absent} | {"general.name": None}, n_head_kv=4)
    s = spec_of(tmp_path, m)
    assert (s.n_head_kv, s.rope.freq_base, s.rope.dims, s.name) == (4, 10000.0, 8, "m")
    assert any("rope.freq_base" in n and "10000" in n for n in s.notes)
    s = spec_of(tmp_path, small({"llama.attention.sliding_window": 8}))
    assert s.window == 8
    assert spec_of(tmp_path, small({"llama.attention.sliding_window": 0})).window is None


def test_head_dim_from_keys(tmp_path: Path) -> None:
    keys = {"llama.attention.key_length": 16, "llama.attention.value_length": 16,
            "llama.rope.dimension_count": 16, "llama.embedding_length": 24}  # fmt: skip
    m = small(keys, n_embd=64, n_head=4)  # heads of 16 on 24 wide residuals, 4 x 16 = 64 queries
    for name, x in m.tensors.items():
        if "attn_output" in name or "ffn_down" in name or x.ndim == 1:
            m.tensors[name] = x[:24]
        else:
            m.tensors[name] = x[:, :24]
    s = spec_of(tmp_path, m)
    assert (s.n_embd, s.head_dim, s.q_dim) == (24, 16, 64)


def test_per_layer_arrays(tmp_path: Path) -> None:
    same = {"llama.attention.head_count": np.array([4, 4], np.int32),
            "llama.feed_forward_length": np.array([64, 64], np.uint32)}  # fmt: skip
    s = spec_of(tmp_path, small(same))
    assert (s.n_head, s.n_ff) == (4, 64)
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        refused(tmp_path, small({f"llama.{key}": np.array([4, 2])}), key, "layers differ", "4, 2")
        refused(tmp_path, small({f"llama.{key}": np.array([4] * 3)}), key, "expected 2", "got 3")
        refused(tmp_path, small({f"llama.{key}": ["4", "4"]}), key)
        refused(tmp_path, small({f"llama.{key}": np.array([4.0, 4.0], np.float32)}), key)


BAD_INTEGERS: tuple[Any, ...] = (0, -1, (1 << 32) - 1, 1 << 60, 4.0, "4", True)


@pytest.mark.parametrize("value", [None, *BAD_INTEGERS])
@pytest.mark.parametrize(
    "key",
    ["block_count", "context_length", "embedding_length", "feed_forward_length",
     "attention.head_count"],
)  # fmt: skip
def test_required_integers(tmp_path: Path, key: str, value: Any) -> None:
    word = "missing" if value is None else str(value)
    refused(tmp_path, small({f"llama.{key}": value}), f"'llama.{key}'", word, "expected an integer")


@pytest.mark.parametrize("value", BAD_INTEGERS)
@pytest.mark.parametrize(
    "key",
    ["attention.head_count_kv", "attention.key_length", "attention.value_length",
     "rope.dimension_count"],
)  # fmt: skip
def test_optional_integers(tmp_path: Path, key: str, value: Any) -> None:
    refused(tmp_path, small({f"llama.{key}": value}), f"'llama.{key}'", str(value))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"attention.head_count": 6}, ("head_count", "6", "32")),
        ({"attention.head_count_kv": 3}, ("head_count_kv", "3", "4 heads")),
        ({"attention.value_length": 16}, ("value_length", "16", "8")),
        ({"rope.dimension_count": 7}, ("rope.dimension_count", "7")),
        ({"rope.dimension_count": 10}, ("rope.dimension_count", "10", "8")),
        ({"attention.layer_norm_rms_epsilon": None}, ("layer_norm_rms_epsilon", "missing")),
        ({"attention.layer_norm_rms_epsilon": 0.0}, ("layer_norm_rms_epsilon", "0")),
        ({"attention.layer_norm_rms_epsilon": float("nan")}, ("layer_norm_rms_epsilon", "nan")),
        ({"attention.layer_norm_rms_epsilon": "x"}, ("layer_norm_rms_epsilon", "a number")),
        ({"rope.freq_base": float("nan")}, ("rope.freq_base", "nan")),
        ({"rope.freq_base": float("inf")}, ("rope.freq_base", "inf")),
        ({"rope.freq_base": -10000.0}, ("rope.freq_base", "-10000")),
        ({"rope.freq_base": 0.0}, ("rope.freq_base", "0")),
        ({"rope.scaling.type": "bogus"}, ("rope.scaling.type", "bogus", "none, linear, yarn")),
        ({"rope.scaling.type": 1}, ("rope.scaling.type",)),
        ({"rope.scaling.factor": -2.0}, ("rope.scaling.factor", "-2")),
        ({"rope.scaling.factor": float("inf")}, ("rope.scaling.factor", "inf")),
        ({"expert_count": 8}, ("expert_count", "8", "mixture of experts", "not supported")),
        ({"embedding_length": 64}, ("tensor", "expected shape", "64", "32")),
        ({"feed_forward_length": 32}, ("ffn_gate", "(32, 32)", "(64, 32)")),
    ],
)
def test_refused_values(tmp_path: Path, keys: dict[str, Any], words: tuple[str, ...]) -> None:
    refused(tmp_path, small({f"llama.{k}": v for k, v in keys.items()}), *words)


def test_architecture_comes_first(tmp_path: Path) -> None:
    keys = {"general.architecture": "mamba9", "llama.block_count": None}
    refused(tmp_path, small(keys), "architecture 'mamba9' is not supported; supported: llama")
    refused(tmp_path, small({"general.architecture": None}), "'general.architecture'", "missing")
    refused(tmp_path, small({"general.architecture": 7}), "'general.architecture'")
    refused(tmp_path, small({"general.type": "adapter"}), "LoRA")
    empty = small()
    empty.tensors.clear()
    refused(tmp_path, empty, "no tensors")


def without(*parts: str) -> Model:
    m = small(n_layer=5)
    for name in list(m.tensors):
        if name.startswith(parts) or name.endswith(parts):
            del m.tensors[name]
    return m


def test_missing_tensors_are_listed(tmp_path: Path) -> None:
    refused(tmp_path, without("blk.3.ffn_up"), "1 of the 48 tensors", "layer 3: ffn_up.weight")
    refused(tmp_path, without("token_embd", "blk.2.ffn_up"), "token_embd.weight; layer 2: ffn_up")
    refused(tmp_path, without("output_norm"), "output_norm.weight")
    message = refused(tmp_path, without("attn_k.weight", "blk.4."), "13 of the 48")
    assert "layers 0-3: attn_k.weight; layer 4: attn_k.weight, attn_norm.weight" in message
    assert "truncated" not in message
    more = small({"llama.block_count": 7})
    refused(tmp_path, more, "45 of the 66 tensors", "layers 2-6: attn_k.weight")


def test_missing_tensor_in_a_split_model(tmp_path: Path) -> None:
    paths = without("blk.0.attn_v").split(tmp_path)
    with pytest.raises(ModelError, match=r"missing in its 12 shards: layer 0: attn_v\.weight"):
        model_spec(open_model(paths[3]))


def test_by_layer() -> None:
    names = [f"blk.{i}.a" for i in (0, 1, 2, 5, 7, 8)] + ["x", "blk.5.b"]
    assert by_layer(names) == "x; layers 0-2, 7-8: a; layer 5: a, b"
    assert by_layer([f"t{i}" for i in range(100)]).endswith("and 88 more")


@pytest.mark.parametrize(
    "name",
    ["blk.0.attn_norm.bias", "blk.1.attn_qkv.weight", "blk.1.ffn_gate_exps.weight",
     "output_norm.bias", "blk.0.attn_q_norm.weight", "token_embd_norm.weight", "blk.x.y"],
)  # fmt: skip
def test_tensors_that_would_be_ignored(tmp_path: Path, name: str) -> None:
    m = small()
    m.tensors[name] = np.zeros(32, np.float32)
    refused(tmp_path, m, "not supported", name.split(".", 2)[2] if "blk.0" in name else name[-6:])


def test_tensors_that_may_be_ignored(tmp_path: Path) -> None:
    m = small()
    for name in ("blk.0.attn_rot_embd.weight", "v.patch_embd.weight"):
        m.tensors[name] = np.zeros(32, np.float32)
    assert spec_of(tmp_path, m).n_layer == 2


def test_layers_beyond_block_count(tmp_path: Path) -> None:
    refused(tmp_path, small({"llama.block_count": 1}), "'llama.block_count'", "is 1", "layer 1:")


def test_vocabulary_sizes(tmp_path: Path) -> None:
    assert spec_of(tmp_path, small({"tokenizer.ggml.tokens": None})).n_vocab == 288
    m = small()
    m.tensors["token_embd.weight"] = m.tensors["token_embd.weight"][:280]
    refused(tmp_path, m, "token_embd.weight", "280 rows", "288 tokens")
    m = small({"tokenizer.ggml.tokens": ["a"] * 280})
    s = spec_of(tmp_path, m)
    assert s.n_vocab == 288 and any("8 rows more" in n for n in s.notes)
    m.tensors["output.weight"] = m.tensors["output.weight"][:280]
    refused(tmp_path, m, "output.weight", "(288, 32)", "(280, 32)")


def test_cycle_emits_its_order(tmp_path: Path) -> None:
    order = ["h", "i", "€", "▁the", "<|eot_id|>", "x"]
    with open_model(cycle(order, quant="Q8_0").write(tmp_path / "m.gguf")) as c:
        s = model_spec(c)
        ids = token_ids(order)
        assert len(ids) == 8  # the euro sign is three bytes
        out = logits(c, s, ids)
    assert out.argmax(1).tolist() == ids[1:] + ids[:1]
    assert out.max(1) == pytest.approx(np.full(8, 512**0.5), rel=3e-3)  # eps takes a little
    with pytest.raises(ValueError, match="twice"):
        cycle("abca")


def on_golden(check: Callable[[Path], None], names: tuple[str, ...]) -> None:
    folder = golden()
    if folder is None:
        pytest.skip("no golden data beside the repository")
    for name in names:
        check(folder / "models" / f"{name}.gguf")


def test_golden_logits() -> None:
    """Container, spec, rope table and dequantization against llama.cpp's float32 logits."""

    def check(path: Path) -> None:
        with open_model(path) as c:
            s, data = model_spec(c), np.load(path.with_suffix(".npz"))
            for i in range(int(data["n_prompts"])):
                got = logits(c, s, data[f"prompt_{i}"])
                assert nmse(data[f"ref_logits_{i}"], got) < 1e-10, path.name

    on_golden(check, ("llama3.F16", *(f"llama.{f}" for f in FORMATS)))


def test_golden_files_of_other_kinds() -> None:
    def check(path: Path) -> None:
        with open_model(path) as c, pytest.raises(ModelError, match="not supported"):
            model_spec(c)

    on_golden(check, ("qwen3next.F16",))
