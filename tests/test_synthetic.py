"""Random models: shapes and sizes, the same plan as of the exported file, what is refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_runner import Script

from cli import invoke
from kompute_llm.cli.bench_config import FOLDER
from kompute_llm.engine import choice
from kompute_llm.engine.container import open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.device import Device
from kompute_llm.engine.errors import UsageError
from kompute_llm.engine.random_matrix import RandomMatrix
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.synthetic import Synthetic
from kompute_llm.engine.synthetic_shape import Shape
from kompute_llm.engine.vulkan import VulkanRunner

SHIPPED = tomllib.loads((FOLDER / "synthetic.toml").read_text())
LLAMA: dict[str, Any] = {
    "arch": "llama", "layers": 2, "embd": 256, "heads": 4, "heads_kv": 2, "head_dim": 64,
    "ff": 512, "vocab": 320, "format": "Q4_0", "output_format": "Q6_K",
}  # fmt: skip
LATENT: dict[str, Any] = {
    "arch": "deepseek2", "layers": 3, "embd": 256, "heads": 2, "ff": 512, "vocab": 320,
    "q_lora": 256, "kv_lora": 64, "nope": 32, "rope": 32, "v_dim": 64, "experts": 4, "used": 2,
    "shared": 1, "ff_expert": 256, "dense": 1, "format": "Q3_K", "output_format": "Q6_K",
}  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_shapes(name: str) -> None:
    """Parameters as the label says; the header alone, so it takes no time."""
    c = Synthetic(name, Shape.of(name, SHIPPED[name]))
    spec = model_spec(c)
    label = c.metadata["general.size_label"].split(".")[0]
    size = {"M": 1e6, "B": 1e9}[label[-1]] * float(label[:-1])
    assert 0.95 * size < spec.n_params < 1.55 * size  # output matrices are not tied here
    c.close()


@pytest.mark.parametrize("table", [LLAMA, LATENT], ids=["llama", "deepseek2"])
def test_the_exported_file_is_the_same_model(table: dict[str, Any], tmp_path: Path) -> None:
    made = Synthetic("x", Shape.of("x", table))
    path = tmp_path / "x.gguf"
    assert made.export(path) == path.stat().st_size
    got = []
    for c in (made, open_model(path)):
        runner = CpuRunner(c, model_spec(c), 32, reference=True)
        got.append(runner.logits([5, 7, 9]))
        runner.close()
    np.testing.assert_array_equal(got[0], got[1])
    assert np.isfinite(got[0]).all() and got[0].std() > 0
    made.close()


def test_formats_of_containers(tmp_path: Path) -> None:
    """Formats that GGUF has not run as well, and are no GGUF file."""
    made = Synthetic("x", Shape.of("x", {**LLAMA, "format": "INT3_G64", "output_format": "INT8"}))
    runner = CpuRunner(made, model_spec(made), 32, reference=True)
    logits = runner.logits([5, 7, 9])
    assert np.isfinite(logits).all() and logits.std() > 0
    runner.close()
    with pytest.raises(UsageError, match="GGUF has no format INT3_G64"):
        made.export(tmp_path / "x.gguf")
    assert not (tmp_path / "x.gguf").exists()
    made.close()


@pytest.mark.parametrize("math", ["f32", "auto"])
@pytest.mark.parametrize(
    "table", [LLAMA, LATENT | {"shared": 2}, LLAMA | {"format": "IQ3_S", "output_format": "F16"}],
    ids=["llama", "deepseek2", "codebooks"],
)
def test_made_on_the_device(
    vulkan: Device, table: dict[str, Any], math: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host makes no bytes of matrices; batches and single tokens see the same weights."""
    monkeypatch.setattr(RandomMatrix, "raw", property(lambda m: pytest.fail(f"bytes of {m.label}")))
    made = Synthetic("x", Shape.of("x", table))
    seen: list[tuple[int, int]] = []
    runner = VulkanRunner(
        made, model_spec(made), vulkan, 32, math=math, progress=lambda *n: seen.append(n)
    )
    batch = runner.logits([5, 7, 9])
    single = np.concatenate([runner.logits([i], pos) for pos, i in enumerate([5, 7, 9])])
    assert np.isfinite(batch).all() and batch.std() > 0
    assert np.square(batch - single).sum() < 0.01 * np.square(batch).sum()
    assert seen[-1][0] == seen[-1][1]
    assert set(made._tiles) <= {"F32"}  # routers and biases
    made.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layer": 3}, "unknown key 'layer'; did you mean 'layers'?"),
        ({"layers": "x"}, "layers = 'x' is no int"), ({"format": "Q9"}, "no format Q9"),
        ({"arch": "gpt2"}, "llama or deepseek2"), ({"layers": True}, "is no int"),
    ],
)  # fmt: skip
def test_wrong_shapes(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as e:
        Shape.of("x", LLAMA | change)
    assert says in str(e.value)


def test_missing_keys() -> None:
    with pytest.raises(UsageError, match="missing vocab"):
        Shape.of("x", {k: v for k, v in LLAMA.items() if k != "vocab"})


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(ids=[1, 2, 3], step_seconds=0.0001)
    monkeypatch.setattr(choice, "open_runner", script.open)
    path = tmp_path / "own.toml"
    keys = "\n".join(f"{k} = {json.dumps(v)}" for k, v in LLAMA.items())
    path.write_text(f'models = ["synthetic:mine"]\ntests = ["pp4"]\n[synthetic.mine]\n{keys}\n')
    r = invoke("bench", "--config", path, "-r", 1, "-o", "json")
    (found,) = json.loads(r.stdout)
    assert found["model_filename"] == "synthetic:mine"
    assert found["model_type"].endswith(f" {LLAMA['format']}")  # no file type: what is most
    assert "the same memory again" in r.stderr
    out = tmp_path / "out.gguf"
    r = invoke("bench", "--config", path, "--export", out)
    assert (r.exit_code, r.stdout) == (0, "")
    assert model_spec(open_model(out)).n_layer == 2
    again = invoke("bench", "--config", path, "--export", out)
    assert (again.exit_code, "is there already" in again.stderr) == (1, True)
    for args, says in (
        (("-m", "synthetic:tiny"), "did you mean tiny-q4_k?"), (("--export", out), "--export"),
        (("-m", "synthetic:tiny-q4_k", "--export", tmp_path / "x.bin"), "must end in .gguf"),
        (("-m", "synthetic:tiny-q4_k", "--export", tmp_path / "no/x.gguf"), "No such file"),
    ):  # fmt: skip
        r = invoke("bench", "pp1", *args)
        assert (r.exit_code, r.stdout) == (1 if "No such" in says else 2, "")
        assert says in r.stderr


def test_bench_on_a_device(vulkan: Device) -> None:
    """The shipped tiny model, from the command to a row."""
    r = invoke("bench", "-m", "synthetic:tiny-q4_k", "pp4", "tg2", "--device", vulkan.info.index,
               "-r", 1, "--no-warmup", "-o", "json")  # fmt: skip
    assert r.exit_code == 0, r.stderr
    rows = json.loads(r.stdout)
    assert [row["test"] for row in rows] == ["pp4", "tg2"]
    assert all(row["avg_ts"] > 0 for row in rows) and "same memory" not in r.stderr
