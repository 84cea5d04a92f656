"""Gemma 4 E2B and E4B: layers with a vector of their own for every token, fused in int8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import N_EMBD, N_LAYER, N_VOCAB, gemma4
from fixtures import Model
from test_plans import Arrays

from kompute_llm.engine.builder import Builder
from kompute_llm.engine.builder_int8 import Int8Builder
from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.device import Device
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.rope import rope_name, rope_table
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner

IDS = [int(i) for i in np.random.default_rng(2).integers(3, N_VOCAB, 24)]
N_CTX = 64


def nmse(got: Any, want: Any) -> float:
    assert np.isfinite(got).all()
    return float(np.square(got - want).sum() / np.square(want).sum())


def gemma4_small() -> Model:
    """The E2B kind: a vector per layer and token, the last three layers use earlier caches."""
    m, part = gemma4(), 16
    n, rng = N_LAYER + 2, np.random.default_rng(10)

    def matrix(name: str, rows: int, cols: int) -> None:
        m.tensors[name] = rng.standard_normal((rows, cols), np.float32) / np.float32(cols**0.5)

    for i in range(N_LAYER, n):  # a global layer and a local one
        source = f"blk.{2 if i == N_LAYER else 3}."
        for name in [k for k in m.tensors if k.startswith(source)]:
            m.tensors[name.replace(source, f"blk.{i}.")] = m.tensors[name][::-1].copy()
    for i in range(n):
        matrix(f"blk.{i}.inp_gate.weight", part, N_EMBD)
        matrix(f"blk.{i}.proj.weight", N_EMBD, part)
        m.formats |= {name: "F16" for name in m.tensors if name.endswith(".proj.weight")}
        m.tensors[f"blk.{i}.post_norm.weight"] = 1 + 0.2 * rng.standard_normal(N_EMBD, np.float32)
    m.formats["per_layer_token_embd.weight"] = "F16"
    matrix("per_layer_token_embd.weight", N_VOCAB, n * part)
    matrix("per_layer_model_proj.weight", n * part, N_EMBD)
    m.tensors["per_layer_proj_norm.weight"] = np.linspace(0.5, 1.5, part).astype(np.float32)
    m.metadata |= {
        "gemma4.block_count": n, "gemma4.attention.shared_kv_layers": 3,
        "gemma4.attention.head_count_kv": np.array([2, 2, 1, 2, 1, 2], np.int32),
        "gemma4.attention.sliding_window_pattern": [True, True, False, True, False, True],
        "gemma4.embedding_length_per_layer_input": part,
    }  # fmt: skip
    return m


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Container:
    path: Path = tmp_path_factory.mktemp("inputs") / "gemma4.gguf"
    return open_model(gemma4_small().write(path))


@pytest.fixture(scope="module")
def want(model: Container) -> Any:
    """Logits in float32, by the forms that golden files check (test_families.py)."""
    spec = model_spec(model)
    r = CpuRunner(model, spec, N_CTX, cache_k="f32", cache_v="f32", threads=1)
    logits = r.logits(IDS)
    r.close()
    return logits


def test_the_vector_matters(model: Container, want: Any) -> None:
    """Else the other tests show nothing."""
    moved = gemma4_small()
    moved.tensors["blk.1.inp_gate.weight"] *= np.float32(-1)
    c = open_model(moved.write(model.path.with_name("moved.gguf")))
    r = CpuRunner(c, model_spec(c), N_CTX, cache_k="f32", cache_v="f32", threads=1)
    assert nmse(r.logits(IDS), want) > 0.01
    r.close()


def steps(c: Container, int8: bool) -> tuple[Any, int]:
    """Logits of every token by the NumPy references; dispatches of a step."""
    spec, arrays = model_spec(c), Arrays()
    plan = Forward(c, spec, PlanOptions(N_CTX, 16, "F32", "F32", 2, int8=int8)).decode()
    for i, rope in enumerate(spec.ropes):
        arrays[rope_name(i)] = rope_table(rope.within(N_CTX), N_CTX)
    found = []
    for i, token in enumerate(IDS):
        arrays.run(plan, [token], i)
        found.append(arrays["logits"][0].copy())
    return np.array(found), len(plan.dispatches)


def test_references(model: Container, want: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Single tokens in int8, two dispatches less in every layer; rounding alone differs."""
    fused, fewer = steps(model, int8=True)
    monkeypatch.setattr(Int8Builder, "add_inputs", Builder.add_inputs)
    apart, count = steps(model, int8=True)
    assert fewer == count - 2 * model_spec(model).n_layer
    assert nmse(fused, apart) <= 1e-3 and nmse(fused, want) <= 1e-2
    assert nmse(steps(model, int8=False)[0], want) <= 1e-9


def test_vulkan(vulkan: Device, model: Container) -> None:
    """The shaders against the references, tied together by the recorder."""
    if vulkan.info.int_dot == "none":
        pytest.skip("the device has no packed dot product")
    r = VulkanRunner(model, model_spec(model), vulkan, N_CTX, "f32", "f32", math="int8")
    one = np.concatenate([r.logits([t], i) for i, t in enumerate(IDS)])
    assert nmse(one, steps(model, int8=True)[0]) <= 1e-3
