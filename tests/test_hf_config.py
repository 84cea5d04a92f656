"""config.json to GGUF keys: rope scalings, families, and values that cannot be represented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kompute_llm.engine.errors import ModelError
from kompute_llm.engine.hf_config import config_keys
from kompute_llm.engine.hf_names import Names, gguf_rows, interleaved
from kompute_llm.engine.json_file import Config, read_json

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5, "vocab_size": 100, "rope_theta": 500000.0,
}  # fmt: skip


def config(**changes: Any) -> Config:
    """A llama's config with changes; None removes a key."""
    values = {k: v for k, v in (LLAMA | changes).items() if v is not None}
    return Config(Path("model/config.json"), values)


def test_defaults_and_names() -> None:
    k = config_keys(config(num_key_value_heads=None, head_dim=32))
    assert k["general.architecture"] == "llama" and k["general.name"] == "model"
    assert k["llama.attention.head_count_kv"] == 4 and k["llama.rope.dimension_count"] == 32
    assert k["llama.rope.freq_base"] == 500000.0


def test_both_spellings_of_rope_scaling() -> None:
    old = config_keys(config(rope_scaling={"type": "linear", "factor": 4.0}))
    new = config_keys(config(rope_theta=None, rope_parameters={
        "rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0}))  # fmt: skip
    assert old == new and old["llama.rope.scaling.type"] == "linear"
    yarn = config_keys(config(rope_scaling={
        "rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
        "beta_fast": 32, "mscale_all_dim": 1.0}))  # fmt: skip
    assert yarn["llama.rope.scaling.original_context_length"] == 4096
    assert yarn["llama.rope.scaling.yarn_log_multiplier"] == pytest.approx(0.1)


def test_llama3_scaling_becomes_frequency_factors() -> None:
    c = config(rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192})  # fmt: skip
    assert "llama.rope.scaling.type" not in config_keys(c)
    rows, shape = gguf_rows(Names(c, "llama"), {})["rope_freqs.weight"]
    factors = rows.values()[0]
    assert shape == (32,) and factors[0] == 1.0 and factors[-1] == pytest.approx(8.0)
    assert (np.diff(factors) >= -1e-6).all()
    # pair 15 turns once in 2 pi 500000^(30/64) = 2,938 positions: 2.79 turns of 8192, in the ramp
    turns = 8192 / (2 * np.pi * 500000.0 ** (30 / 64))
    smooth = (turns - 1) / 3
    assert factors[15] == pytest.approx(1 / ((1 - smooth) / 8 + smooth), rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model_type": "gpt2"}, "model type 'gpt2' is not supported"),
        ({"hidden_act": "gelu"}, "activation 'gelu' is not supported"),
        ({"num_local_experts": 8}, "mixture of experts is not supported"),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "type 'longrope' is not supported"),
        ({"rope_scaling": 3}, "expected an object"),
        ({"hidden_size": "wide"}, "key 'hidden_size': expected a count"),
        ({"num_hidden_layers": None}, "key 'num_hidden_layers': missing"),
        ({"rms_norm_eps": float("nan")}, "key 'rms_norm_eps': expected a number"),
    ],
)
def test_what_cannot_be_represented_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        config_keys(config(**changes))


def test_rows_of_q_and_k_become_neighbours() -> None:
    assert interleaved(8, 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a":' * 100000])
def test_json_files_are_checked(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json: is not"):
        read_json(tmp_path / "config.json")
