"""Caches of layers with a window: rings of rows that give what whole caches give, bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy_llama
import pytest
from ring_models import IDS, N_CTX, Models, Open, forced, mistral, models_in, on_cpu, trace
from test_plans import Arrays

from kompute_llm.engine import spec_model
from kompute_llm.engine.container import open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.device import Device
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.rope import rope_name, rope_table
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return models_in(tmp_path_factory.mktemp("ring"))


def compare(
    monkeypatch: pytest.MonkeyPatch, make: Open, batch: int, length: int,
    starts: tuple[int, ...] = (0,),
) -> None:  # fmt: skip
    """The same from rings and from whole caches, and less memory in rings."""
    found, kv = [], []
    for ring in (True, False):
        with monkeypatch.context() as patch:
            forced(patch, ring)
            r = make(batch=batch)
            assert r.batch <= batch
            r.batch = batch
            kv.append(r.memory()["kv"])
            found.append([trace(r, batch, length, start) for start in starts])
            if isinstance(r, CpuRunner):
                r.close()
    assert found[0] == found[1]
    assert kv[0] < kv[1]


KINDS = [("f16", "f16"), ("f32", "f32"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "f16"),
         ("f32", "q4_0")]  # fmt: skip


@pytest.mark.parametrize("batch", [1, 7, 64])
@pytest.mark.parametrize("k,v", KINDS)
def test_cpu(
    monkeypatch: pytest.MonkeyPatch, models: Models, k: str, v: str, batch: int
) -> None:
    """All types of caches; batches that begin anywhere in the ring."""
    starts = (0, 3) if batch == 7 else (0,)
    compare(monkeypatch, on_cpu(models("mistral"), k=k, v=v), batch, 140, starts)


@pytest.mark.parametrize("name", ["gemma2", "olmo3", "gemma3.F16", "gemma4.F16", "gpt-oss.MXFP4"])
def test_families_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, models: Models, name: str
) -> None:
    """Layers with and without windows, shared caches, sinks."""
    compare(monkeypatch, on_cpu(models(name)), 7, 140)


def test_long_batches_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, models: Models
) -> None:
    """Batches of 512, many times the window."""
    compare(monkeypatch, on_cpu(models("mistral"), 1320), 512, 1290, (0, 100))


@pytest.mark.parametrize(
    "name,math,k,v,batch",
    [
        ("mistral", "int8", "f16", "f16", 7), ("mistral", "int8", "q8_0", "q4_0", 7),
        ("gemma4.F16", "f32", "f32", "f32", 64), ("gpt-oss.MXFP4", "f32", "f16", "f16", 7),
    ],
)  # fmt: skip
def test_vulkan(
    vulkan: Device, monkeypatch: pytest.MonkeyPatch, models: Models,
    name: str, math: str, k: str, v: str, batch: int,
) -> None:  # fmt: skip
    """The kernels that store and attend, float16 and other caches, shared ones, sinks."""
    c = models(name)
    make = partial(vulkan_runner, c, model_spec(c), vulkan, N_CTX, k, v, math=math)
    compare(monkeypatch, make, batch, 130)


def vulkan_runner(*args: Any, **options: Any) -> VulkanRunner:
    return VulkanRunner(*args, **options)


def test_long_batches_on_vulkan(
    vulkan: Device, monkeypatch: pytest.MonkeyPatch, models: Models
) -> None:
    """Batches of 512."""
    c = models("mistral")
    make = partial(vulkan_runner, c, model_spec(c), vulkan, 1320, math="int8")
    compare(monkeypatch, make, 512, 1290)


@pytest.mark.parametrize("products,int8", [("f32", False), ("f16", False), ("int8", True)])
@pytest.mark.parametrize("name", ["mistral", "gemma2", "gemma4.F16", "gpt-oss.MXFP4"])
def test_references(
    monkeypatch: pytest.MonkeyPatch, models: Models, name: str, products: str, int8: bool
) -> None:
    """All forms of batches and of single tokens, matrix cores too, through the references."""
    monkeypatch.setattr(spec_model, "RING_STEP", 1)
    c = models(name)
    spec, found = model_spec(c), []
    for ring in (True, False):
        opts = PlanOptions(N_CTX, 7, "F16", "Q8_0", 2, int8=int8, products=products, ring=ring,
                           coop_attention=products == "f16")  # fmt: skip
        forward, arrays = Forward(c, spec, opts), Arrays()
        for i, rope in enumerate(spec.ropes):
            arrays[rope_name(i)] = rope_table(rope.within(N_CTX), N_CTX)
        score, one, out = forward.score(), forward.decode(), []
        for at in range(0, 49, 7):
            arrays.run(score, IDS[at : at + 7], at)
            out.append(arrays["all_logits"][:7].copy())
        for at in range(49, 60):
            arrays.run(one, [IDS[at]], at)
            out.append(arrays["logits"].copy())
        found.append((b"".join(x.tobytes() for x in out), len(arrays["k.0"])))
    assert found[0][0] == found[1][0] and found[0][1] < found[1][1] == N_CTX


@pytest.mark.parametrize("name,window", [("gemma3", 12), ("gemma4", 10)])
@pytest.mark.parametrize("batch", [3, 16])
def test_golden(
    monkeypatch: pytest.MonkeyPatch, models: Models, name: str, window: int,
    batch: int,
) -> None:  # fmt: skip
    """llama.cpp's logits and greedy ids at several times the window, through tight rings."""
    forced(monkeypatch, True)
    c = models(f"{name}.F16")
    spec = model_spec(c)
    ref = dict(np.load(c.path.with_suffix(".npz")))
    ids, want = ref["prompt_2"].tolist(), ref["ref_logits_2"]
    assert len(ids) > 3 * window == 3 * (spec.window or 0)
    r = CpuRunner(c, spec, 96, cache_k="f32", cache_v="f32", batch=batch, threads=2)
    got = r.logits(ids)
    assert np.square(got - want).sum() <= 1e-6 * np.square(want).sum()
    gaps, cont = ref["ref_gap_2"], ref["ref_cont_2"].tolist()
    sure = int(np.argmax(gaps < 0.05)) if (gaps < 0.05).any() else len(cont)
    r.begin(Sampling(temp=0.0, seed=1), (), 95)
    for start in range(0, len(ids), batch):
        r.prefill(ids[start : start + batch], sample=start + batch >= len(ids))
    r.decode(len(cont))
    assert r.poll()[0][:sure] == cont[:sure]
    r.close()


@pytest.mark.parametrize("n_ctx", [8, 20, 64])
def test_windows_against_numpy(
    monkeypatch: pytest.MonkeyPatch, models: Models, n_ctx: int
) -> None:
    """A window of 8 and prompts around it, whole and in batches of 4, against plain float64."""
    forced(monkeypatch, True)
    path = models("mistral").path.with_name(f"window8.{n_ctx}.gguf")
    c = open_model(mistral(8).write(path))
    spec = model_spec(c)
    want = numpy_llama.logits(c, spec, IDS[:20])
    for batch in (4, 20):
        r = CpuRunner(c, spec, n_ctx, cache_k="f32", cache_v="f32", batch=batch, threads=1)
        for n in (n for n in (7, 8, 9, 20) if n <= n_ctx):
            got = r.logits(IDS[:n])
            assert np.square(got - want[:n]).sum() <= 1e-9 * np.square(want[:n]).sum()
        r.close()
