"""Stored logits and the likelihood of a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import write_cycle, write_tiny
from helpers import golden

from cli import invoke
from kompute_llm.engine.harness_reference import agreement, log_softmax, read

CPU = ("--device", "cpu", "--threads", 1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("t") / "tiny.gguf", n_embd=256, n_head=2, n_ff=256)


def test_a_saved_reference_is_met(tiny: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "ref.npz", tmp_path / "out.json"
    r = invoke("validate", "-m", tiny, "--save-reference", file, "--seed", 1, *CPU)
    assert r.exit_code == 0, r.stderr
    assert "1, 7, 40" in r.stderr
    r = invoke("validate", "-m", tiny, "--reference", file, "--json", out, *CPU)
    assert r.exit_code == 0
    found = json.loads(out.read_text())["reference"]
    assert [p["positions"] for p in found][:3] == [1, 7, 40]
    assert all(p["nmse"] == 0 and p["top1"] == 1 and p["top5"] == 1 for p in found)
    assert "100.0 %" in r.stdout


def write(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_files_that_do_not_fit(tiny: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.npz"
    text.write_text("no archive")
    ids, logits = np.arange(3), np.zeros((3, 5), np.float32)
    cases = {
        "nowhere.npz": (tmp_path / "nowhere.npz", "No such file"),
        "text": (text, "no archive of NumPy arrays"),
        "empty": (write(tmp_path / "a.npz", x=ids), "holds no prompt_0"),
        "alone": (write(tmp_path / "b.npz", prompt_0=ids), "prompt_0 without ref_logits_0"),
        "shape": (write(tmp_path / "c.npz", prompt_0=ids, ref_logits_0=logits), "has the shape"),
        "float": (write(tmp_path / "d.npz", prompt_0=logits[:, 0], ref_logits_0=logits), "a row"),
    }
    for path, message in cases.values():
        r = invoke("validate", "-m", tiny, "--reference", path, *CPU)
        assert r.exit_code == 1
        assert message in r.stderr
    out = np.full(3, 5)
    with pytest.raises(Exception, match="outside of 0 … 4"):
        read(write(tmp_path / "e.npz", prompt_0=out, ref_logits_0=logits), 5)


def test_agreement() -> None:
    want = np.log(np.array([[0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125]], np.float32))
    same = agreement(want + 3, want + 3)
    assert (same.nmse, same.divergence, same.top1, same.top5) == (0, 0, 1, 1)
    got = want[:, [1, 0, 2, 3, 4, 5]]
    found = agreement(got, want)
    assert found.top1 == 0 and found.top5 == 1
    assert found.divergence == pytest.approx(0.25 * np.log(2))
    assert agreement(got * np.float32(np.nan), want).not_finite == 6
    assert np.exp(log_softmax(want * np.float32(1e3))).sum() == pytest.approx(1)


def test_likelihood_of_a_text(tmp_path: Path) -> None:
    """A model that is sure of a cycle, and right or wrong."""
    path = write_cycle(tmp_path / "m.gguf", "hilo", n_embd=512, n_head=4, n_ff=256)
    nll = {}
    for name in ("hilohilohilo", "hlohilhoihol"):
        (tmp_path / "text.txt").write_text(name)
        out = tmp_path / "p.json"
        r = invoke("validate", path, "--perplexity", tmp_path / "text.txt", "--json", out, *CPU)
        assert r.exit_code == 0, r.stderr
        (record,) = json.loads(out.read_text())["perplexity"]
        assert record["standard_error"] >= 0
        nll[name] = record["nll"]
    assert nll["hilohilohilo"] < nll["hlohilhoihol"]
    (tmp_path / "text.txt").write_text("")
    r = invoke("validate", path, "--perplexity", tmp_path / "text.txt", *CPU)
    assert (r.exit_code, "fewer than three tokens" in r.stderr) == (1, True)
    r = invoke("validate", path, "--perplexity", tmp_path / "no.txt", *CPU)
    assert (r.exit_code, "No such file" in r.stderr) == (1, True)


def test_golden_logits() -> None:
    folder = golden()
    if folder is None:
        pytest.skip("no golden data beside the repository")
    model = folder / "models" / "llama3.F16.gguf"
    r = invoke("validate", "-m", model, "--reference", model.with_suffix(".npz"), *CPU)
    assert r.exit_code == 0
    assert all(line.split()[5] == "100.0" for line in r.stdout.splitlines()[1:])
