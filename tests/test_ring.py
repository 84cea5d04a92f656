"""Caches of layers with a window: rings of rows that give what whole caches give, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import N_EMBD, N_VOCAB, Maker, gemma2, olmo3
from helpers import golden

from cli import invoke
from kompute_llm.engine import cpu, spec_model, vulkan
from kompute_llm.engine.choice import cache_bytes
from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.device import Device
from kompute_llm.engine.errors import UsageError
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.products import plan_options
from kompute_llm.engine.reach import Reach
from kompute_llm.engine.runner import RunnerConfig
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.work import plan_work
from kompute_llm.kernels.cache_rows import row_bytes

WINDOW = 9  # with batches of 7 a ring of 15 rows, so that batches begin at each of its rows
N_CTX = 160
IDS = [int(i) for i in np.random.default_rng(5).integers(3, N_VOCAB, 1300)]
Runner = CpuRunner | vulkan.VulkanRunner
Open = Callable[..., Runner]


def mistral() -> Any:
    """A llama with a window in all layers."""
    m = Maker("llama", 9, 4, 2, 32)

    def layer(w: str) -> None:
        m.norms(w, "attn_norm", "ffn_norm")
        m.attention(w)
        m.ffn(w)

    m.layers(layer)
    m.matrix("output", N_VOCAB, N_EMBD)
    return m.model({"attention.sliding_window": WINDOW})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Container]:
    """Tiny models by name: made here, or golden ones."""
    folder = tmp_path_factory.mktemp("ring")
    makers = {"mistral": mistral, "gemma2": gemma2, "olmo3": olmo3}

    def find(name: str) -> Container:
        if name not in makers:
            found = golden()
            if found is None:
                pytest.skip("the golden models are not beside this repository")
            return open_model(found / "models" / f"{name}.gguf")
        path = folder / f"{name}.gguf"
        return open_model(path if path.exists() else makers[name]().write(path))

    return find


def forced(monkeypatch: pytest.MonkeyPatch, ring: bool) -> None:
    """Plans with rings as short as can be, or with whole caches."""

    def chosen(*args: Any) -> Any:
        products, opts = plan_options(*args)
        return products, replace(opts, ring=ring)

    monkeypatch.setattr(spec_model, "RING_STEP", 1)
    monkeypatch.setattr(cpu, "PlanOptions", partial(PlanOptions, ring=ring))
    monkeypatch.setattr(vulkan, "plan_options", chosen)


def trace(r: Runner, batch: int, length: int, start: int = 0) -> list[Any]:
    """A prompt in batches (the first of `start` tokens), drawn tokens, logits of more tokens and of
    the prompt."""
    r.begin(Sampling(temp=0.0, seed=1), (), length + 8)
    at = start or batch
    r.prefill(IDS[:at], sample=False)
    while at < length:
        step = min(batch, length - at)
        r.prefill(IDS[at : at + step], sample=at + step == length)
        at += step
    r.decode(5)
    drawn, _, bad = r.poll()
    assert bad == 0
    ids = IDS[: min(batch, 9)]
    more = [r.logits(ids, length + 5), r.logits(IDS[9:10], length + 5 + len(ids))]
    more.append(r.logits(IDS[:length]))  # in batches too, and of every position
    assert all(np.isfinite(m).all() for m in more)
    return [drawn, *(m.tobytes() for m in more)]


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


def on_cpu(c: Container, n_ctx: int = N_CTX, k: str = "f16", v: str = "f16") -> Open:
    return partial(CpuRunner, c, model_spec(c), n_ctx, cache_k=k, cache_v=v, threads=2)


KINDS = [("f16", "f16"), ("f32", "f32"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "f16"),
         ("f32", "q4_0")]  # fmt: skip


@pytest.mark.parametrize("batch", [1, 7, 64])
@pytest.mark.parametrize("k,v", KINDS)
def test_cpu(
    monkeypatch: pytest.MonkeyPatch, models: Callable[[str], Container], k: str, v: str, batch: int
) -> None:
    """All types of caches; batches that begin anywhere in the ring."""
    starts = (0, 3) if batch == 7 else (0,)
    compare(monkeypatch, on_cpu(models("mistral"), k=k, v=v), batch, 140, starts)


@pytest.mark.parametrize("name", ["gemma2", "olmo3", "gemma3.F16", "gemma4.F16", "gpt-oss.MXFP4"])
def test_families_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, models: Callable[[str], Container], name: str
) -> None:
    """Layers with and without windows, shared caches, sinks."""
    compare(monkeypatch, on_cpu(models(name)), 7, 140)


def test_long_batches_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, models: Callable[[str], Container]
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
    vulkan: Device, monkeypatch: pytest.MonkeyPatch, models: Callable[[str], Container],
    name: str, math: str, k: str, v: str, batch: int,
) -> None:  # fmt: skip
    """The kernels that store and attend, float16 and other caches, shared ones, sinks."""
    c = models(name)
    make = partial(vulkan_runner, c, model_spec(c), vulkan, N_CTX, k, v, math=math)
    compare(monkeypatch, make, batch, 130)


def vulkan_runner(*args: Any, **options: Any) -> vulkan.VulkanRunner:
    return vulkan.VulkanRunner(*args, **options)


def test_long_batches_on_vulkan(
    vulkan: Device, monkeypatch: pytest.MonkeyPatch, models: Callable[[str], Container]
) -> None:
    """Batches of 512."""
    c = models("mistral")
    make = partial(vulkan_runner, c, model_spec(c), vulkan, 1320, math="int8")
    compare(monkeypatch, make, 512, 1290)


@pytest.mark.parametrize("name,window", [("gemma3", 12), ("gemma4", 10)])
@pytest.mark.parametrize("batch", [3, 16])
def test_golden(
    monkeypatch: pytest.MonkeyPatch, models: Callable[[str], Container], name: str, window: int,
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


# --- sizes -------------------------------------------------------------------------------------


def test_rows(models: Callable[[str], Container]) -> None:
    """Window - 1 rows for the positions before a batch, and those of the batch."""
    spec = model_spec(models("gemma2"))
    assert [spec.cache_rows(i, 1000, 512) for i in range(3)] == [576, 1000, 576]
    assert spec.cache_rows(0, 500, 512) == 500
    assert spec.cache_rows(0, 1000, 57) == 64
    assert spec.cache_rows(0, 1000, 58) == 128
    shared = replace(spec, layers=(*spec.layers, replace(spec.layers[1], cache=0)))
    assert shared.cache_rows(0, 1000, 57) == 1000, "a layer that sees everything reads it too"


@pytest.mark.parametrize("name", ["gemma2", "gemma4.F16"])
def test_memory(models: Callable[[str], Container], name: str) -> None:
    """What is counted is what is allocated: by the executor, by `inspect`, before opening."""
    c = models(name)
    spec = model_spec(c)
    r = CpuRunner(c, spec, 1024, cache_k="q8_0", cache_v="f16", batch=32, threads=1)
    kinds = ("Q8_0", "F16")
    kv = r.memory()["kv"]
    r.close()
    assert kv == sum(spec.kv_bytes(1024, 32, kind) // 2 for kind in kinds)
    assert kv == cache_bytes(spec, RunnerConfig(1024, cache_k="q8_0", batch=32))
    assert kv < 1024 * sum(spec.kv_bytes_per_token(kind) // 2 for kind in kinds) * 2 // 3


def test_inspect_shows_what_is_saved(models: Callable[[str], Container]) -> None:
    """The cache of a long context is that of the layers without a window, almost."""
    c = models("gemma2")
    spec, facts = model_spec(c), []
    for ctx in ("1024", "4096"):
        result = invoke("inspect", str(c.path), "-c", ctx, "-o", "json")
        assert result.exit_code == 0, result.stderr
        facts.append(json.loads(result.stdout))
    row = 2 * row_bytes("F16", spec.kv_dim)
    for n_ctx, found in zip((1024, 4096), facts, strict=True):
        gpu = next(d for d in found["demands"] if d["kind"] == "any GPU")
        assert gpu["cache"] == spec.kv_bytes(n_ctx, 512) == 2 * row * (n_ctx + 576)
        assert found["saved"] == 2 * row * (n_ctx - 576)
    assert "a window keep the last positions" in invoke("inspect", str(c.path), "-c", ctx).stdout


def test_work(models: Callable[[str], Container]) -> None:
    """A step reads the rows of a window, wherever they lie."""
    c = models("gemma2")
    spec = model_spec(c)
    moved = {}
    for ring in (True, False):
        plan = Forward(c, spec, PlanOptions(4096, 64, ring=ring)).decode()
        moved[ring] = plan_work(plan, 1, 4000)["attention"].bytes
    assert moved[True] == moved[False]
    read = spec.decode_bytes(4000) - spec.decode_bytes(0)
    assert read == 2 * 2 * row_bytes("F16", spec.kv_dim) * (4000 + 8)


# --- what a caller may feed --------------------------------------------------------------------


def test_reach(models: Callable[[str], Container], monkeypatch: pytest.MonkeyPatch) -> None:
    """Back as far as the ring has a window before a position; never to what is gone."""
    monkeypatch.setattr(spec_model, "RING_STEP", 1)
    spec = model_spec(models("mistral"))
    reach = Reach(spec, PlanOptions(100, 7))  # 15 rows, windows of 9
    reach.feed(0, 15)
    reach.feed(3, 1)  # nothing is lost yet
    reach.feed(15, 5)  # positions 5 to 19 are there
    reach.feed(13, 1)
    for pos in (12, 4, 21):
        with pytest.raises(UsageError, match=rf"position {pos} .* positions 5 to 19 only"):
            reach.feed(pos, 1)
    reach.feed(0, 2)
    with pytest.raises(UsageError):
        reach.feed(19, 1)
    reach.feed(2, 1)
    full = Reach(spec, PlanOptions(100, 7, ring=False))
    full.feed(0, 90)
    full.feed(20, 1)


def test_feeding_again(
    monkeypatch: pytest.MonkeyPatch, models: Callable[[str], Container]
) -> None:
    """Logits of a position fed anew are the same; of one that is gone there are none; a new
    generation begins at 0."""
    forced(monkeypatch, True)
    r = on_cpu(models("mistral"))(batch=7)
    want = r.logits(IDS[:60])
    assert np.array_equal(r.logits(IDS[54:60], 54)[-1], r.logits(IDS[59:60], 59)[0])
    assert np.allclose(r.logits(IDS[54:60], 54), want[54:60], atol=1e-4)
    with pytest.raises(UsageError, match="position 40"):
        r.logits(IDS[40:41], 40)
    assert np.array_equal(r.logits(IDS[:60]), want)
    first = trace(r, 7, 60)
    assert trace(r, 7, 60) == first
    assert isinstance(r, CpuRunner)
    r.close()


def test_paths_without_windows_have_no_rings(models: Callable[[str], Container]) -> None:
    """The same dispatches with and without the option, whole caches in all of them."""
    c = models("llama.F16")
    assert isinstance(c.path, Path)
    spec = model_spec(c)
    for ring in (True, False):
        plan = Forward(c, spec, PlanOptions(4096, 64, ring=ring)).prefill(64)
        rings = [d.params["ring"] for d in plan.dispatches if "ring" in d.params]
        assert len(rings) == 2 * spec.n_layer and not any(rings)
