"""`validate`: the model check over scripted logits, kernels on a device, choice of executors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_runner import FakeRunner, Script
from fixtures import Model, write_tiny

from cli import invoke
from kompute_llm.cli.model_check import products
from kompute_llm.engine import choice, device_info
from kompute_llm.engine.compare import LIMIT_F16, LIMIT_F32, LIMIT_INT8, compare, limit
from kompute_llm.engine.device import Device
from kompute_llm.engine.errors import ContextError, DeviceError
from kompute_llm.engine.runner import Opened, RunnerConfig


class Offset(FakeRunner):
    """Right on the CPU; on a device wrong by `error` as soon as layer `first_bad` is part of it."""

    first_bad, error = 1, 0.0
    everywhere = False  # on the CPU as well: the file is at fault

    def __init__(self, config: RunnerConfig, spec: Any) -> None:
        super().__init__(Script(), spec, config.n_ctx)
        here = config.device != "cpu" or self.everywhere
        self.wrong = self.error if here and spec.n_layer > self.first_bad else 0.0

    def logits(self, ids: Any, pos: int = 0) -> np.ndarray:
        rng = np.random.default_rng([pos, *ids])
        out = rng.standard_normal((len(ids), self.spec.n_vocab)).astype(np.float32)
        return out + np.float32(self.wrong) * rng.standard_normal(out.shape).astype(np.float32)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of three layers whose runners are `Offset`."""

    def opened(container: Any, spec: Any, config: RunnerConfig, progress: Any, *_: Any) -> Opened:
        return Opened(Offset(config, spec), "CPU" if config.device == "cpu" else "Vulkan")

    monkeypatch.setattr(choice, "open_runner", opened)
    return write_tiny(tmp_path / "tiny.gguf", n_embd=256, n_head=2, n_layer=3)


def test_equal_logits_pass(tiny: Path) -> None:
    r = invoke("validate", tiny, "--seed", 1)
    assert r.exit_code == 0
    assert "prompt of 40" in r.stdout
    assert "40/40" in r.stdout
    assert "FAIL" not in r.stdout


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_the_first_bad_layer_is_found(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    monkeypatch.setattr(Offset, "first_bad", bad)
    monkeypatch.setattr(Offset, "error", 0.1)
    r = invoke("validate", tiny, "--seed", 1)
    assert r.exit_code == 1
    assert "FAIL" in r.stdout
    assert f"first bad layer: blk.{bad}" in r.stdout


def test_a_file_with_a_bad_layer(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN on both sides is no difference, and its layer is named all the same."""
    monkeypatch.setattr(Offset, "everywhere", True)
    monkeypatch.setattr(Offset, "error", float("nan"))
    r = invoke("validate", tiny, "--seed", 1)
    assert r.exit_code == 1
    assert "on the CPU too" in r.stdout
    assert "first bad layer: blk.1" in r.stdout


def test_faults_outside_of_the_layers(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Offset, "first_bad", 0)
    monkeypatch.setattr(Offset, "error", float("nan"))
    r = invoke("validate", tiny)
    assert r.exit_code == 1
    assert "first bad layer: blk.0, or token_embd, output_norm, output" in r.stdout
    assert "NaN or infinite" in r.stdout


def test_text_faults_come_before_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def edit(m: Model) -> None:
        m.metadata["tokenizer.ggml.model"] = "rwkv"

    monkeypatch.setattr(choice, "open_runner", None)
    path = write_tiny(tmp_path / "m.gguf", n_embd=256, n_head=2, edit=edit)
    r = invoke("validate", path)
    assert r.exit_code == 1
    assert "rwkv" in r.stderr


def test_usage() -> None:
    assert invoke("validate", "--only", "no-such-kernel").exit_code == 2
    assert invoke("validate", "x.gguf", "--device", "cpu").exit_code == 2
    r = invoke("validate", "--list", "--only", "matvec*", "--only", "rmsnorm")
    assert r.exit_code == 0
    assert "matvec_add" in r.stdout
    assert "attention" not in r.stdout


def test_kernels_on_a_device(vulkan: Device) -> None:
    """Every kernel has tests of its own; here the table and its count matter."""
    where = ("--device", vulkan.info.index)
    r = invoke("validate", "--only", "rmsnorm", "--seed", 1, *where)
    assert r.exit_code == 0
    *_, last_case, count = r.stdout.splitlines()
    assert last_case.startswith("rmsnorm")
    assert count.endswith("cases, 0 failed")


def test_comparison() -> None:
    ref = np.array([[3, 1, 0], [1.0, 1.04, 0]], np.float32)
    same = compare("x", ref, ref, 1e-6)
    assert (same.ok, same.nmse, same.agree) == (True, 0.0, 2)
    got = ref.copy()
    got[1, 0] = 1.041  # a near-tie flips
    assert compare("x", got, ref, 1e-3).note == "1 near-ties differ"
    assert compare("x", got, ref, 1e-3).ok
    assert not compare("x", got, ref, 1e-5).ok
    got = ref.copy()
    got[0, :2] = 1.8, 1.9
    lost = compare("x", got, ref, 0.25)
    assert lost.nmse < 0.25 and not lost.ok  # a clear winner is lost
    got[0, 0] = np.nan
    assert not compare("x", got, ref, 10).ok
    assert limit("f32", ("f32", "f32")) == LIMIT_F32
    assert limit("f32", ("f32", "f16")) == LIMIT_F16
    assert limit("int8", ("f32", "f32")) == LIMIT_INT8
    assert limit("f16", ("f32", "f32")) == LIMIT_F16 == limit("f32", ("q4_0", "q8_0"))
    assert limit("f16", ("q8_0", "f16")) == LIMIT_INT8 == limit("int8", ("f16", "q8_0"))
    assert limit("int8", ("q4_0", "f16")) > limit("int8", ("f16", "q4_0")) > LIMIT_INT8


@pytest.mark.parametrize(
    ("taken", "kind"),
    [
        ("f32 products", "f32"), ("int8 products, f16 in batches", "int8"),
        ("f32 products, f16 in batches", "f16"), ("int8 products", "int8"),
    ],
)  # fmt: skip
def test_the_limit_follows_the_products_in_use(taken: str, kind: str) -> None:
    assert products(f"llvmpipe (LLVM 15, 256 bits) (Vulkan, {taken}, f16 keys, f16 values)") == kind


# --- choice of an executor -------------------------------------------------------------------


def device(kind: str, index: int = 0, usable: str | None = None) -> Any:
    return SimpleNamespace(
        type=kind, index=index, name=f"{kind} {index}", usable=usable, duplicate=None, driver=""
    )


@pytest.mark.parametrize(
    ("devices", "index", "why"),
    [
        ([], None, "no Vulkan device found"),
        ([device("cpu")], None, "is software (--device 0 takes it)"),
        ([device("cpu"), device("integrated", 1), device("discrete", 2)], 2, ""),
        ([device("discrete", 0, "Vulkan 1.0 only")], None, "cannot be used (Vulkan 1.0 only)"),
        ([device("discrete", 0, "broken"), device("cpu", 1)], None, "is software"),
    ],
)
def test_a_gpu_is_preferred(
    monkeypatch: pytest.MonkeyPatch, devices: list[Any], index: int | None, why: str
) -> None:
    monkeypatch.setattr(device_info, "list_devices", lambda: tuple(devices))
    found, reason = choice.find_gpu()
    assert (found and found.index) == index
    assert why in reason


def test_no_vulkan_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise DeviceError("the runtime layer is missing.")

    monkeypatch.setattr(device_info, "list_devices", fail)
    assert choice.find_gpu() == (None, "no Vulkan (the runtime layer is missing)")


def test_contexts_that_do_not_fit() -> None:
    spec: Any = SimpleNamespace(
        kv_bytes=lambda n_ctx, batch, kind: n_ctx * {"F16": 1000, "F32": 2000}[kind],
        ropes=(SimpleNamespace(dims=25),),
    )
    config = RunnerConfig(n_ctx=10, cache_k="f32")
    assert choice.cache_bytes(spec, config) == 10 * 1500
    choice.check_context(spec, config, 16000, "memory")
    choice.check_context(spec, config, None, "memory")
    with pytest.raises(ContextError, match="lower -c"):
        choice.check_context(spec, config, 15999, "memory")
