"""Rope tables: plain, linear, frequency factors and YaRN, against formulas and golden logits."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy_gpt_oss
import pytest
from fixtures import Model, tiny
from helpers import golden
from numpy_llama import logits

from kompute_llm.engine.container import open_model
from kompute_llm.engine.errors import ModelError
from kompute_llm.engine.rope import CHUNK, RopeSpec, frequencies, rope_table
from kompute_llm.engine.spec import ModelSpec, model_spec

YARN = RopeSpec(64, 10000.0, "yarn", 4.0, orig_ctx=256, ext_factor=1.0)


def rope_model(factors: Any = None, **keys: Any) -> Model:
    m = tiny(
        n_embd=32, n_head=2, n_ff=32, n_layer=1, n_ctx=64, quant="F32",
        metadata={f"llama.rope.{k.replace('__', '.')}": v for k, v in keys.items()},
    )  # fmt: skip
    if factors is not None:
        m.tensors["rope_freqs.weight"] = np.asarray(factors, np.float32)
    return m


def spec_of(tmp_path: Path, m: Model) -> ModelSpec:
    with open_model(m.write(tmp_path / "m.gguf")) as c:
        return model_spec(c)


def test_plain_table() -> None:
    table = rope_table(RopeSpec(8, 100.0), 40)
    assert table.shape == (40, 4, 2) and table.dtype == np.float32
    for pos, pair in ((0, 0), (1, 0), (39, 3), (7, 2)):
        angle = pos * 100.0 ** (-2 * pair / 8)
        want = [math.cos(angle), math.sin(angle)]
        assert table[pos, pair].tolist() == pytest.approx(want, abs=1e-7)


def test_chunks_join() -> None:
    r = RopeSpec(4, 10000.0)
    table = rope_table(r, CHUNK + 3)
    angle = (CHUNK + 1) * frequencies(r)
    assert np.allclose(table[CHUNK + 1], np.stack([np.cos(angle), np.sin(angle)], 1), atol=1e-7)
    assert rope_table(r, 0).shape == (0, 2, 2)


def test_large_positions_stay_exact() -> None:
    """The angle of the fastest pair is the position itself: float32 angles would be off by 1e-3."""
    assert rope_table(RopeSpec(2), 100_001)[100_000, 0, 0] == np.float32(math.cos(100_000))


def test_linear_and_factors() -> None:
    plain = frequencies(RopeSpec(8))
    assert np.allclose(frequencies(RopeSpec(8, scaling="linear", factor=4.0)), plain / 4)
    eights = np.full(4, 8, np.float32)
    assert np.allclose(frequencies(RopeSpec(8, freq_factors=eights)), plain / 8)
    both = RopeSpec(8, scaling="linear", factor=4.0, freq_factors=eights)
    assert np.allclose(frequencies(both), plain / 32)


def test_yarn_by_hand() -> None:
    """The ramp runs between the pairs that turn 32 times and once over the original context."""
    low = math.floor(64 * math.log(256 / (32 * 2 * math.pi)) / (2 * math.log(10000)))
    high = math.ceil(64 * math.log(256 / (2 * math.pi)) / (2 * math.log(10000)))
    assert (low, high) == (0, 13)
    plain, got = frequencies(replace(YARN, scaling="none")), frequencies(YARN)
    assert got[0] == plain[0]
    assert np.allclose(got[13:], plain[13:] / 4)
    for pair in range(14):
        keep = 1 - pair / 13
        assert got[pair] == pytest.approx(plain[pair] * keep + plain[pair] / 4 * (1 - keep))
    magnitude = 1 + 0.1 * math.log(4)
    assert rope_table(YARN, 1)[0, 0].tolist() == pytest.approx([magnitude, 0])
    assert replace(YARN, attn_factor=0.5).magnitude == pytest.approx(magnitude / 2)


def test_yarn_limits() -> None:
    plain = frequencies(replace(YARN, scaling="none"))
    assert np.allclose(frequencies(replace(YARN, ext_factor=0.0)), plain / 4)
    assert replace(YARN, ext_factor=0.0).magnitude == 1.0
    assert replace(YARN, factor=1.0).magnitude == 1.0
    assert np.allclose(frequencies(replace(YARN, factor=1.0)), plain)
    tight = frequencies(replace(YARN, beta_fast=2.0, beta_slow=2.0))
    assert np.isfinite(tight).all()


def test_golden_yarn() -> None:
    folder = golden()
    if folder is None:
        pytest.skip("no golden data beside the repository")
    path = folder / "models" / "gpt-oss.MXFP4.gguf"
    data = np.load(path.with_suffix(".npz"))
    rope = RopeSpec(32, 150000.0, "yarn", 32.0, orig_ctx=4096, ext_factor=1.0, mode="halves")
    with open_model(path) as c:
        for i in range(3):
            want = data[f"ref_logits_{i}"]
            error = want - numpy_gpt_oss.logits(c, rope, data[f"prompt_{i}"])
            assert (error**2).sum() < 1e-10 * (want**2).sum()


def test_keys_of_scaling(tmp_path: Path) -> None:
    r = spec_of(tmp_path, rope_model()).rope
    assert (r.scaling, r.factor, r.orig_ctx, r.mode) == ("none", 1.0, 64, "interleaved")
    both = {"scaling__type": "linear", "scaling__factor": 4.0, "scale_linear": 2.0}
    for keys in ({"scale_linear": 4.0}, {"scaling__factor": 4.0}, both):
        r = spec_of(tmp_path, rope_model(**keys)).rope
        assert (r.scaling, r.factor, r.ext_factor) == ("linear", 4.0, 0.0)
    r = spec_of(tmp_path, rope_model(scaling__type="none", scaling__factor=4.0)).rope
    assert (r.scaling, r.factor) == ("none", 1.0)
    r = spec_of(tmp_path, rope_model(scaling__type="linear", scaling__factor=0.0)).rope
    assert r.scaling == "none"


def test_keys_of_yarn(tmp_path: Path) -> None:
    keys = {"scaling__type": "yarn", "scaling__factor": 4.0}
    s = spec_of(tmp_path, rope_model(**keys))
    r = s.rope
    assert (r.scaling, r.factor, r.orig_ctx, r.ext_factor) == ("yarn", 4.0, 64, 1.0)
    assert (r.attn_factor, r.beta_fast, r.beta_slow) == (1.0, 32.0, 1.0)
    assert any("yarn" in n for n in s.notes)
    more = {"scaling__original_context_length": 16, "scaling__yarn_beta_fast": 8.0,
            "scaling__yarn_beta_slow": 2.0, "scaling__attn_factor": 0.5,
            "scaling__yarn_ext_factor": 0.0, "scaling__yarn_log_multiplier": 1.0}  # fmt: skip
    r = spec_of(tmp_path, rope_model(**keys, **more)).rope
    assert (r.orig_ctx, r.beta_fast, r.beta_slow, r.ext_factor) == (16, 8.0, 2.0, 0.0)
    assert r.attn_factor == pytest.approx(0.5 / (1 + 0.1 * math.log(4)))


def test_frequency_factors_of_a_file(tmp_path: Path) -> None:
    """rope_freqs.weight divides angles: 8 turns position 40 into position 5."""
    out = []
    for value in (1.0, 8.0):
        with open_model(rope_model(np.full(8, value)).write(tmp_path / "m.gguf")) as c:
            s = model_spec(c)
            assert any("rope_freqs" in n for n in s.notes)
            out.append((s, logits(c, s, list(range(10, 51)))))
    assert np.allclose(rope_table(out[1][0].rope, 41)[40], rope_table(out[0][0].rope, 6)[5])
    assert np.allclose(out[0][1][0], out[1][1][0])  # position 0 is not turned
    assert not np.allclose(out[0][1][40], out[1][1][40], atol=1e-3)


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        (np.ones(16), r"expected shape \(8,\), got \(16,\)"),
        (np.ones((8, 8)), r"expected shape \(8,\), got \(8, 8\)"),
        (np.zeros(8), "not finite and above 0"),
        (np.full(8, np.nan), "not finite and above 0"),
    ],
)
def test_bad_factors(tmp_path: Path, factors: Any, words: str) -> None:
    with pytest.raises(ModelError, match=rf"'rope_freqs.weight'.*{words}"):
        spec_of(tmp_path, rope_model(factors))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scaling.type", "longrope"),
        ("scaling.type", "su"),
        ("scaling.original_context_length", 0),
        ("scaling.yarn_beta_fast", -1.0),
        ("scaling.yarn_ext_factor", float("nan")),
        ("scaling.attn_factor", -1.0),
        ("scale_linear", float("nan")),
    ],
)
def test_bad_keys(tmp_path: Path, key: str, value: Any) -> None:
    m = rope_model(scaling__type="yarn", scaling__factor=2.0)
    m.metadata[f"llama.rope.{key}"] = value
    with pytest.raises(ModelError, match=f"'llama.rope.{key}'"):
        spec_of(tmp_path, m)


def test_long_factors() -> None:
    """LongRoPE takes its long factors in contexts beyond the original one, and says so."""
    short, long = (np.full(32, v, np.float32) for v in (1.0, 4.0))
    r = RopeSpec(64, 1e4, "none", 1.0, orig_ctx=4096, freq_factors=short, long_factors=long)
    for n_ctx, factors, word in ((4096, short, "short"), (4097, long, "long")):
        assert r.within(n_ctx).freq_factors is factors
        assert r.chosen(n_ctx) == f"{word} rope factors: context {n_ctx}, original context 4096"
    assert RopeSpec(64, 1e4, "none", 1.0, orig_ctx=4096).chosen(5000) == ""
