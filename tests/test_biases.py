"""Biases of every projection, in every form of a plan and on both executors, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from family_models import N_EMBD, N_FF, N_VOCAB, PROMPT, Maker, prompt
from fixtures import Model
from hf_folder import arrays, hf_tensors, llama_config, write_folder
from numpy_biased import Biased
from test_families import Reference, check_runner, nmse
from test_plans import Arrays

from kompute_llm.engine.container import open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.device import Device
from kompute_llm.engine.errors import ModelError
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.rope import rope_name, rope_table
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner

N_CTX = 64
QKV, FFN = ("attn_q", "attn_k", "attn_v"), ("ffn_gate", "ffn_up", "ffn_down")
EVERY = (*QKV, "attn_output", *FFN, "output")
GRANITE = {"logit_scale": 4.0, "residual_scale": 0.22, "embedding_scale": 12.0,
           "attention.scale": 0.1}  # fmt: skip
# name -> architecture and the biases of its file; several are those of models in use
MODELS = {
    "granite-code": ("llama", (*QKV, "attn_output", *FFN)),  # tied; Bielik 3 has the same
    "internlm": ("llama", (*QKV, "attn_output", "untied")),
    "some": ("llama", ("ffn_up", "output", "untied")),
    "qwen2": ("qwen2", (*EVERY, "untied")),
    "qwen3": ("qwen3", (*EVERY, "untied")),
    "phi3": ("phi3", ("attn_qkv", "attn_output", "ffn_up", "ffn_down", "output", "untied")),
    "granite": ("granite", (*EVERY, "untied")),
}


def biased(arch: str, biases: tuple[str, ...]) -> Model:
    """A tiny model whose projections have the named biases."""
    m = Maker(arch, 31, 4, 2, 32)
    stacked = arch == "phi3"
    sizes = {"attn_q": m.q, "attn_k": m.kv, "attn_v": m.kv, "attn_qkv": m.q + 2 * m.kv,
             "attn_output": N_EMBD, "ffn_gate": N_FF, "ffn_up": N_FF * (1 + stacked),
             "ffn_down": N_EMBD}  # fmt: skip

    def layer(w: str) -> None:
        m.norms(w, "attn_norm", "ffn_norm")
        if stacked:
            for name in ("attn_qkv", "ffn_up"):
                m.matrix(w + name, sizes[name], N_EMBD)
            m.matrix(w + "attn_output", N_EMBD, m.q)
            m.matrix(w + "ffn_down", N_EMBD, N_FF)
        else:
            m.attention(w)
            m.ffn(w)
        if arch == "qwen3":
            m.gain(w + "attn_q_norm", 32)
            m.gain(w + "attn_k_norm", 32)
        for name in (n for n in sizes if n in biases):
            m.bias(w + name, sizes[name])

    m.layers(layer)
    if "untied" in biases:
        m.matrix("output", N_VOCAB, N_EMBD)
    if "output" in biases:
        m.bias("output", N_VOCAB)
    return m.model(GRANITE if arch == "granite" else {})


@pytest.fixture(scope="module", params=MODELS)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Reference]:
    """A file and its logits by the oracle."""
    path = tmp_path_factory.mktemp("biased") / f"{request.param}.gguf"
    biased(*MODELS[request.param]).write(path)
    with open_model(path) as c:
        logits = Biased(c, model_spec(c).rope).logits(prompt("llama"))
    positions = list(range(PROMPT))
    return path, Reference(prompt("llama"), N_CTX, positions, logits, [], np.zeros(0))


def test_every_bias_matters(model: tuple[Path, Reference]) -> None:
    """Leaving any kind out moves logits a hundred times farther than float32 may below."""
    path, ref = model
    with open_model(path) as c:
        for name in MODELS[path.stem][1]:
            if name != "untied":
                other = Biased(c, model_spec(c).rope, without=name).logits(ref.ids)
                assert nmse(other, ref.logits) > 1e-4, name


@pytest.mark.parametrize(
    "products,int8,cache,limit",
    [("f32", False, "F32", 1e-6), ("f16", False, "F16", 1e-4), ("int8", True, "F16", 5e-3)],
)
def test_forms(
    model: tuple[Path, Reference], products: str, int8: bool, cache: str, limit: float
) -> None:
    """A batch, a batch with logits of its last token, and single tokens."""
    path, ref = model
    c = open_model(path)
    spec = model_spec(c)
    opts = PlanOptions(N_CTX, 64, cache, cache, 2, int8=int8, products=products,
                       coop_attention=products == "f16", few=8 * int8)  # fmt: skip
    forward, arrays = Forward(c, spec, opts), Arrays()
    arrays[rope_name(0)] = rope_table(spec.rope.within(N_CTX), N_CTX)
    arrays.run(forward.score(), ref.ids, 0)
    assert nmse(arrays["all_logits"][:PROMPT], ref.logits) <= limit
    arrays.run(forward.prefill(64, head=True), ref.ids[:30], 0)
    assert nmse(arrays["logits"][0], ref.logits[29]) <= 2 * limit
    arrays.run(forward.prefill(4, head=True), ref.ids[30:34], 30)
    assert nmse(arrays["logits"][0], ref.logits[33]) <= 2 * limit
    decode = forward.decode()
    for i in range(34, PROMPT):
        arrays.run(decode, [ref.ids[i]], i)
    assert nmse(arrays["logits"][0], ref.logits[-1]) <= 2 * limit


def test_cpu(model: tuple[Path, Reference]) -> None:
    path, ref = model
    c = open_model(path)
    r = CpuRunner(c, model_spec(c), N_CTX, cache_k="f32", cache_v="f32", threads=2)
    check_runner(r, ref, 1e-6)
    r.close()


@pytest.mark.parametrize("math,cache,limit", [("f32", "f32", 1e-6), ("int8", "f16", 5e-3)])
def test_vulkan(
    vulkan: Device, model: tuple[Path, Reference], math: str, cache: str, limit: float
) -> None:
    path, ref = model
    if math == "int8" and vulkan.info.int_dot == "none":
        pytest.skip("this device has no packed dot products")
    c = open_model(path)
    r = VulkanRunner(c, model_spec(c), vulkan, N_CTX, cache, cache, batch=64, math=math)
    check_runner(r, ref, limit)


def test_folders(tmp_path: Path) -> None:
    """Of a Hugging Face folder: biases of q and k move with their rows."""
    m = biased(*MODELS["granite-code"])
    m.quant = "F16"
    with open_model(m.write(tmp_path / "m.gguf")) as c:
        want = Biased(c, model_spec(c).rope).logits(prompt("llama"))
        tensors = hf_tensors(arrays(c), heads=(4, 2))
        folder = write_folder(tmp_path / "hf", tensors, llama_config(c) | {"head_dim": 32})
    c = open_model(folder)
    r = CpuRunner(c, model_spec(c), N_CTX, cache_k="f32", cache_v="f32", threads=2)
    assert nmse(r.logits(prompt("llama")), want) < 1e-6
    r.close()


def refused(m: Model, path: Path, says: str) -> None:
    with open_model(m.write(path)) as c, pytest.raises(ModelError, match=says):
        model_spec(c)


def test_refusals(tmp_path: Path) -> None:
    """A bias of another size, one that some layers lack, and one that the family does not have."""
    path, name = tmp_path / "m.gguf", "blk.1.ffn_up.bias"
    m = biased("llama", ("ffn_up",))
    m.tensors[name] = m.tensors[name][:-1]
    refused(m, path, rf"{name}.*expected shape \({N_FF},\)")
    del m.tensors[name]
    refused(m, path, "missing: layer 1: ffn_up.bias")
    m = biased("gemma", ("attn_output",))
    refused(m, path, r"not supported: layers 0-3: attn_output\.bias")
