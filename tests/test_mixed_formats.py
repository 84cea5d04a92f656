"""Models whose matrices have different formats, as quantized files do: every form of a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fixtures
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf_bytes import Blob

from kompute_llm.engine.blocks import FORMATS
from kompute_llm.engine.builder_int8 import obstacle
from kompute_llm.engine.container import open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.device import Device
from kompute_llm.engine.errors import ModelError
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner
from kompute_llm.kernels.matvec_launch import PLAIN_FORMATS
from kompute_llm.kernels.reference import random_matrix

IDS = [int(t) for t in np.random.default_rng(3).integers(3, 288, 20)]
# Formats of one layer's matrices in files that people run, and mixes of formats with and without
# int8 kernels
MIXES = {
    "Q4_K_M": {"attn_v": "Q6_K", "ffn_down": "Q6_K", "": "Q4_K"},
    "Q3_K_M": {"attn_v": "Q5_K", "ffn_down": "Q4_K", "attn_output": "Q4_K", "": "Q3_K"},
    "Q2_K": {"attn_v": "Q4_K", "ffn_down": "Q3_K", "attn_output": "Q3_K", "": "Q2_K"},
    "IQ4_XS": {"attn_v": "Q5_K", "ffn_down": "Q5_K", "": "IQ4_XS"},
    "gate and up": {"ffn_gate": "IQ4_NL", "ffn_up": "MXFP4", "": "Q8_0"},
    "float gates": {"ffn_gate": "F16", "ffn_up": "F16", "attn_k": "BF16", "": "Q5_0"},
    "float head": {"output": "F16", "": "Q5_1"},
    "IQ2 and IQ3": {"attn_v": "IQ3_S", "ffn_gate": "IQ2_XXS", "ffn_up": "IQ2_S", "": "Q3_K"},
}


class Mixed(fixtures.Model):
    """A model with random blocks in formats that nothing here can quantize."""

    def blobs(self) -> list[Blob]:
        return [self._random(name, x) for name, x in self.tensors.items()]

    def _random(self, name: str, x: Any) -> Blob:
        fmt = self.formats.get(name, self.quant)
        if x.ndim == 1:
            return self._blob(name, x)
        rows, cols = x.shape
        rng = np.random.default_rng(len(name))
        raw = random_matrix(rng, fmt, rows, cols, 1 / np.sqrt(cols)).raw
        return Blob(name, x.shape, int(GGMLQuantizationType[fmt]), raw.tobytes())


def write(path: Path, mix: dict[str, str]) -> Path:
    """TINY with a format for each kind of matrix; "" for all others."""
    tiny = fixtures.tiny()
    matrices = [n for n, x in tiny.tensors.items() if x.ndim > 1]
    names = {n: mix.get(n.split(".")[-2], mix[""]) for n in matrices}
    return Mixed(tiny.metadata, tiny.tensors, mix[""], names).write(path)


def nmse(got: Any, want: Any) -> float:
    assert np.isfinite(got).all()
    return float(np.square(got - want).sum() / np.square(want).sum())


def cpu_logits(path: Path) -> Any:
    with open_model(path) as c:
        r = CpuRunner(c, model_spec(c), 64, cache_k="f32", cache_v="f32", reference=True)
        return r.logits(IDS)


@pytest.mark.parametrize("name", MIXES)
def test_mixes(vulkan: Device, tmp_path: Path, name: str) -> None:
    """Float32 and int8 products, batches and single tokens, against the references."""
    path = write(tmp_path / "m.gguf", MIXES[name])
    want = cpu_logits(path)
    c = open_model(path)
    r = VulkanRunner(c, model_spec(c), vulkan, 64, "f32", "f32", batch=32, math="f32")
    assert nmse(r.logits(IDS), want) <= 1e-6
    assert nmse(np.concatenate([r.logits([t], i) for i, t in enumerate(IDS)]), want) <= 1e-6
    assert not obstacle(c, 1 << 30)
    if vulkan.info.int_dot != "none" and vulkan.limits.subgroups:
        r = VulkanRunner(c, model_spec(c), vulkan, 64, "f32", "f32", batch=32, math="int8")
        one = np.concatenate([r.logits([t], i) for i, t in enumerate(IDS)])
        assert nmse(one, want) <= 5e-3 and nmse(r.logits(IDS), want) <= 5e-3
        mixed = name in ("float gates", "IQ2 and IQ3")
        assert ("int8 products, f32 in batches" if mixed else "int8 products") in r.describe


@pytest.mark.parametrize("fmt", PLAIN_FORMATS)
def test_plain_formats(vulkan: Device, tmp_path: Path, fmt: str) -> None:
    """A model of one plain format: the device against the CPU's compiled kernels."""
    path = write(tmp_path / "m.gguf", {"": fmt})
    want = cpu_logits(path)
    c = open_model(path)
    r = VulkanRunner(c, model_spec(c), vulkan, 64, "f32", "f32", batch=32)
    assert "f32 products" in r.describe
    assert nmse(r.logits(IDS), want) <= 1e-6
    assert nmse(np.concatenate([r.logits([t], i) for i, t in enumerate(IDS)]), want) <= 1e-6


@pytest.mark.parametrize("name", ["Q1_0", "Q8_K", "Q8_1", "I8", "F64"])
def test_formats_that_are_no_weights(tmp_path: Path, name: str) -> None:
    """Refused by name, with the names of those that are supported."""
    assert name not in FORMATS
    tiny = fixtures.tiny()
    model = Mixed(tiny.metadata, tiny.tensors, "Q4_0", {})
    blobs = model.blobs()
    kind = GGMLQuantizationType[name]
    bad = next(b for b in blobs if b.name == "blk.0.ffn_up.weight")
    size = {"Q1_0": 18 * 2, "Q8_K": 292, "Q8_1": 40 * 8, "I8": 256, "F64": 2048}[name]
    raw = bytes(size * bad.shape[0] * bad.shape[1] // 256)
    blobs[blobs.index(bad)] = Blob(bad.name, bad.shape, int(kind), raw)
    model.blobs = lambda: blobs  # type: ignore[method-assign]
    with open_model(model.write(tmp_path / "m.gguf")) as c, pytest.raises(ModelError) as e:
        model_spec(c)
    assert f"format {name} is not supported" in str(e.value) and "IQ3_S" in str(e.value)
