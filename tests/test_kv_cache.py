"""Quantized KV caches: their numbers are ggml's, every mix works, what they cost in accuracy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from helpers import golden

from cli import invoke
from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.cpu_plan import array_type
from kompute_llm.engine.cpu_team import Program, Team
from kompute_llm.engine.device import Device
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.harness import run_shader
from kompute_llm.engine.plan import Buf, Dispatch, Operand, Phase, Role
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner
from kompute_llm.engine.work import plan_work
from kompute_llm.kernels import cache_rows, rope_kv
from kompute_llm.kernels.kernel import Case
from kompute_llm.kernels.reference import step_words

TYPES = ("f32", "f16", "q8_0", "q4_0")
# NMSE over a prompt against llama.cpp's float32 logits: what was measured, rounded up
LIMITS = {"f32": 1e-6, "f16": 1e-6, "q8_0": 2e-4, "q4_0": 5e-2}
FOLDER = golden()
needs_golden = pytest.mark.skipif(FOLDER is None, reason="no golden data beside the repository")


@pytest.mark.parametrize("kind", cache_rows.QUANTIZED)
def test_numbers_are_ggmls(kind: str) -> None:
    """Scales and values as gguf quantizes them; zeros, single spikes and both signs."""
    rng = np.random.default_rng(3)
    x: Any = rng.standard_normal((40, 96)).astype(np.float32) * rng.lognormal(0, 2, (40, 1))
    x = x.astype(np.float32)
    x[3], x[5, 32:64], x[6, 1:] = 0, 0, 0
    x[7] = np.abs(x[7])
    fmt = GGMLQuantizationType[kind]
    want = dequantize(quantize(x, fmt), fmt)
    got = cache_rows.decode(cache_rows.encode(kind, x), 96)
    step = np.abs(x).reshape(40, 3, 32).max(axis=2).repeat(32, axis=1) / 7
    different = got != want
    assert different.mean() < 1e-3  # halves round differently
    assert (np.abs(got - want) <= step).all()


@pytest.mark.parametrize("kind", cache_rows.QUANTIZED)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_broken_values_stay_broken(vulkan: Device, kind: str, bad: float) -> None:
    """What is not finite is read as NaN, in its group only: logits must show it."""
    shape = {"n_head": 1, "n_head_kv": 1, "head_dim": 64, "n_rot": 64}
    qkv: Any = np.random.default_rng(1).standard_normal((1, 192)).astype(np.float32)
    qkv[0, 170] = bad
    empty = cache_rows.encode(kind, np.zeros((1, 64), np.float32))
    ops: dict[str, Any] = {
        "qkv": qkv, "rope": np.ones((1, 32, 2), np.float32), "k": empty, "v": empty.copy(),
        "step": step_words(1, 0),
    }  # fmt: skip
    got, _ = run_shader(vulkan, rope_kv.KERNEL, Case("broken", ops, shape))
    rope_kv.KERNEL.reference(**ops, **shape)
    team, copies = Team(1), {n: np.zeros_like(v) if n in "kv" else v for n, v in ops.items()}
    bufs: dict[str, Operand] = {
        n: Buf(n, v.shape, {"k": kind, "v": kind, "step": "U32"}.get(n, "F32"))
        for n, v in ops.items()
    }
    program = Program([Dispatch(rope_kv.KERNEL, bufs, shape, Phase.QKV)], copies, 1)
    team.run(program.ops, 1)
    team.close()
    for who, cache in (("shader", got["v"]), ("reference", ops["v"]), ("compiled", copies["v"])):
        values = cache_rows.decode(cache, 64)[0]
        assert np.isfinite(values[:32]).all() and np.isnan(values[32:]).all(), (who, cache)


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("width", [4, 80, 96, 576, 1024])
def test_rows(kind: str, width: int) -> None:
    """Rows start on 16 bytes when they are quantized; a buffer has as many words as its array."""
    buf = Buf("k.0", (7, width), kind, Role.CACHE)
    shape, dtype = array_type(buf)
    array: Any = np.zeros(shape, dtype)
    assert array.nbytes == 4 * buf.words == 7 * cache_rows.row_bytes(kind, width)
    if kind in cache_rows.QUANTIZED:
        assert array.strides[0] % 16 == 0
        values = {"Q8_0": 34 / 32, "Q4_0": 18 / 32}[kind] * width
        assert values <= array.strides[0] < values + 48
    assert cache_rows.kind_of(array) == kind
    assert not cache_rows.decode(array, width).any()


def model(name: str) -> tuple[Container, dict[str, Any]]:
    assert FOLDER is not None
    folder = FOLDER / "models"
    return open_model(folder / f"{name}.gguf"), dict(np.load(folder / f"{name}.npz"))


def check(runner: CpuRunner | VulkanRunner, ref: dict[str, Any], limit: float) -> None:
    """A prompt, then its last tokens one by one, against float32 logits."""
    ids, want = [int(t) for t in ref["prompt_2"]], ref["ref_logits_2"]
    got = [runner.logits(ids[:30]), *(runner.logits([ids[i]], i) for i in range(30, len(ids)))]
    error = np.square(np.concatenate(got) - want).sum() / np.square(want).sum()
    assert error <= limit, error


@needs_golden
@pytest.mark.parametrize("k,v", list(itertools.product(TYPES, TYPES)))
def test_every_mix_on_the_cpu(k: str, v: str) -> None:
    container, ref = model("llama.F16")
    runner = CpuRunner(container, model_spec(container), 64, cache_k=k, cache_v=v, threads=2)
    check(runner, ref, LIMITS[k] + LIMITS[v])
    assert runner.describe.endswith(f"f32 products, {k} keys, {v} values)")
    runner.close()


@needs_golden
@pytest.mark.parametrize("math,k,v", [("f32", "q8_0", "q8_0"), ("int8", "q8_0", "q4_0")])
def test_mixes_on_vulkan(vulkan: Device, math: str, k: str, v: str) -> None:
    """Also with int8 products, which store float16 pairs in the projection's kernel else."""
    container, ref = model("llama.Q4_0")
    spec = model_spec(container)
    runner = VulkanRunner(container, spec, vulkan, 64, cache_k=k, cache_v=v, math=math)
    check(runner, ref, LIMITS[k] + LIMITS[v] + (2e-3 if math == "int8" else 0))
    wanted = (spec.kv_bytes_per_token(k.upper()) + spec.kv_bytes_per_token(v.upper())) // 2 * 64
    assert wanted <= runner.memory()["kv"] < wanted + 512 * spec.n_layer


def test_unknown_types_are_refused_by_name() -> None:
    """With the types that there are."""
    for command in ("run", "bench"):
        result = invoke(command, "-m", "x.gguf", "--cache-type-k", "q5_0")
        assert result.exit_code == 2
        assert "'q5_0'" in result.stderr and "q8_0" in result.stderr


@needs_golden
def test_work_counts_stored_bytes() -> None:
    """The floor of attention's time is that of what the cache holds."""
    container, _ = model("llama.F16")
    spec = model_spec(container)
    moved = {}
    for kind in ("f16", "q8_0"):
        opts = PlanOptions(4096, 1, kind.upper(), kind.upper())
        plan = Forward(container, spec, opts).decode()
        moved[kind] = plan_work(plan, 1, 4000)["attention"].bytes
    rows = [cache_rows.row_bytes(k, spec.kv_dim) for k in ("F16", "Q8_0")]
    assert moved["f16"] - moved["q8_0"] == 2 * 4001 * spec.n_layer * (rows[0] - rows[1])
