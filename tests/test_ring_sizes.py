"""Rings of caches: their sizes, what is saved, and which positions may be fed again."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from family_models import gemma2
from ring_models import IDS, Models, forced, models_in, on_cpu, trace

from cli import invoke
from kompute_llm.engine import spec_model
from kompute_llm.engine.choice import cache_bytes
from kompute_llm.engine.container import open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.errors import UsageError
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.reach import Reach
from kompute_llm.engine.runner import RunnerConfig
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.work import plan_work
from kompute_llm.kernels.cache_rows import row_bytes
from kompute_llm.shaders.compile import CompileError, find_compiler


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return models_in(tmp_path_factory.mktemp("ring"))


def test_rows(models: Models) -> None:
    """Window - 1 rows for the positions before a batch, and those of the batch."""
    spec = model_spec(models("gemma2"))
    assert [spec.cache_rows(i, 1000, 512) for i in range(3)] == [576, 1000, 576]
    assert spec.cache_rows(0, 500, 512) == 500
    assert spec.cache_rows(0, 1000, 57) == 64
    assert spec.cache_rows(0, 1000, 58) == 128
    shared = replace(spec, layers=(*spec.layers, replace(spec.layers[1], cache=0)))
    assert shared.cache_rows(0, 1000, 57) == 1000, "a layer that sees everything reads it too"


@pytest.mark.parametrize("name", ["gemma2", "gemma4.F16"])
def test_memory(models: Models, name: str) -> None:
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


def test_inspect_shows_what_is_saved(models: Models) -> None:
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


def test_work(models: Models) -> None:
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


def test_reach(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch: pytest.MonkeyPatch, models: Models
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


def test_paths_without_windows_have_no_rings(models: Models) -> None:
    """The same dispatches with and without the option, whole caches in all of them."""
    c = models("llama.F16")
    assert isinstance(c.path, Path)
    spec = model_spec(c)
    for ring in (True, False):
        plan = Forward(c, spec, PlanOptions(4096, 64, ring=ring)).prefill(64)
        rings = [d.params["ring"] for d in plan.dispatches if "ring" in d.params]
        assert len(rings) == 2 * spec.n_layer and not any(rings)


@pytest.mark.parametrize("stem", [
    "attention_tiles_q8", "attention_q8.F16", "attention.F16.SG1", "attention_prefill.F16",
    "attention_prefill_coop.F16.HALF", "rope_kv.KV16", "norm_rope_kv.KV16",
    "qkv_rope_q8.Q4_0.KV16",
])  # fmt: skip
def test_without_a_ring_nothing_is_computed(stem: str, tmp_path: Path) -> None:
    """The division is there, and gone once RING is the constant 0."""
    try:
        compiler = find_compiler()
    except CompileError as error:
        pytest.skip(str(error))
    tools = {name: Path(compiler.program).with_name(name) for name in ("spirv-opt", "spirv-dis")}
    if not all(tool.is_file() for tool in tools.values()):
        pytest.skip("no spirv-opt beside glslang")
    folded = tmp_path / "folded.spv"
    source = Path(str(resources.files("kompute_llm.shaders"))) / f"{stem}.spv"
    passes = ("--freeze-spec-const", "--fold-spec-const-op-composite", "--ccp", "-O")
    run = partial(subprocess.run, env=compiler.env, check=True, capture_output=True, text=True)
    run([tools["spirv-opt"], *passes, source, "-o", folded])
    before, after = (run([tools["spirv-dis"], f]).stdout for f in (source, folded))
    divided = r"OpUMod %uint %\w+ %(RING|uint_0)\b"
    assert re.search(divided, before) and not re.search(divided, after)


def test_an_absent_window_is_noted(tmp_path: Path) -> None:
    """Models of the family have windows; what is used instead is said."""
    m, key = gemma2(), "gemma2.attention.sliding_window"
    assert not any(key in note for note in model_spec(open_model(m.write(tmp_path / "a"))).notes)
    del m.metadata[key]
    assert f"{key} absent: 4096 used" in model_spec(open_model(m.write(tmp_path / "b"))).notes
