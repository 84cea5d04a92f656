"""`validate`: choice of checks, reports, times and forms of a model, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fixtures import write_tiny

from cli import invoke
from kompute_llm.cli.validate_choice import fits, split
from kompute_llm.cli.validate_layers import Column
from kompute_llm.cli.validate_report import Report, Section, plain
from kompute_llm.cli.validate_run import figures, ratio, reason, row
from kompute_llm.engine.device import Device
from kompute_llm.engine.errors import UsageError
from kompute_llm.engine.harness import CaseResult
from kompute_llm.engine.harness_layers import different, divergence, layers_of
from kompute_llm.engine.plan import Dispatch, Phase, Plan
from kompute_llm.kernels import rmsnorm


def test_names_and_patterns() -> None:
    assert fits("matvec_add", "matvec") and fits("matvec_add", "*_add")
    assert not fits("matvec_add", "matvec?add_")
    assert split(["a, b", "c*"]) == ("a", "b", "c*")
    with pytest.raises(UsageError, match="empty"):
        split(["a,,b"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--only", "rmsnorm,nothing"), "--only nothing: no such kernel"),
        (("--only", "norm/9999*"), "no such kernel, primitive or PRIMITIVE/CASE"),
        (("--only", ","), "empty"),
        (("--quick", "--shapes", "all"), "contradict"),
        (("--bench", "--quick"), "needs their shapes"),
        (("-o", "report.txt"), "must end in .md or .json"),
        (("-o", "a.json", "--json", "b.json"), "given already"),
        (("--device", "cpu"), "leaves nothing to compare"),
    ],
)
def test_wrong_usage_comes_before_any_work(args: tuple[str, ...], message: str) -> None:
    r = invoke("validate", *args)
    assert r.exit_code == 2
    assert message in r.stderr
    assert r.stdout == ""


@pytest.mark.parametrize(("path", "message"), [
    ("no/such/folder/a.json", "does not exist"), (".", "is a folder"),
])  # fmt: skip
def test_files_that_cannot_be_written(path: str, message: str) -> None:
    r = invoke("validate", "--json", path)
    assert (r.exit_code, r.stdout) == (1, "")
    assert message in r.stderr


def test_lists() -> None:
    r = invoke("validate", "--list", "--only", "rmsnorm,norm/rms*")
    assert r.exit_code == 0
    assert "1e-05 max rel" in r.stdout and "norms of rows" in r.stdout
    r = invoke("validate", "--list", "-v", "--only", "product/*Q4_K 6144x16384*")
    assert "product/matvec_q8_add Q4_K 6144x16384" in r.stdout
    assert "experts" not in r.stdout


def test_reports(vulkan: Device, tmp_path: Path) -> None:
    where = ("--device", vulkan.info.index, "--seed", 3)
    files = ("--json", tmp_path / "r.json", "-o", tmp_path / "r.md")
    r = invoke("validate", "--only", "fill,copy/fill*", *files, *where)
    assert r.exit_code == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["seed"] == 3 and found["failed"] == 0
    assert found["device"]["name"] == vulkan.info.name
    assert found["environment"]["kp"]
    assert [c["check"] for c in found["cases"]] == ["fill"] * 3 + ["copy"]
    assert all(c["ok"] and c["measure"] == "exact" for c in found["cases"])
    text = (tmp_path / "r.md").read_text()
    assert text.startswith("### kompute-llm validate: all passed\n")
    for part in (vulkan.info.driver, "- seed: 3", "numpy", "| copy ", "4 cases, 0 failed"):
        assert part in text
    assert "4 cases, 0 failed" in r.stdout
    assert "700 of" not in r.stdout
    every = invoke("validate", "--only", "fill", "-v", *where)
    assert "700 of 1000 words" in every.stdout


def test_times_of_primitives(vulkan: Device, tmp_path: Path) -> None:
    where = ("--device", vulkan.info.index, "--seed", 3)
    r = invoke("validate", "--bench", "--only", "norm/rmsnorm 576 S=1", "--json",
               tmp_path / "b.json", *where)  # fmt: skip
    assert r.exit_code == 0, r.stderr
    (timing,) = json.loads((tmp_path / "b.json").read_text())["bench"]
    assert timing["call"] > 0 and timing["bytes"] > 576 * 8
    assert "rmsnorm 576 S=1" in r.stdout and "GB/s" in r.stdout


@pytest.mark.parametrize("quant", ["F16", "Q8_0"])
def test_forms_of_a_model(vulkan: Device, tmp_path: Path, quant: str) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", n_embd=256, n_head=4, n_layer=3, quant=quant)
    out = tmp_path / "c.json"
    r = invoke("validate", "--compare-chains", "-m", path, "--json", out, "--seed", 5,
               "--device", vulkan.info.index)  # fmt: skip
    assert r.exit_code == 0, r.stdout + r.stderr
    found = json.loads(out.read_text())["chains"]
    titles = [c["comparison"] for c in found]
    assert titles[0].startswith("f32 token, one sequence")
    assert any(t.startswith("f32 batch") for t in titles)
    assert any("int8 token" in t for t in titles) == (quant == "Q8_0")
    assert all(len(c["values"]) == 4 and c["ok"] for c in found)
    assert r.stdout.split("\n")[1].startswith("blk.0")
    assert "logits" in r.stdout


def test_divergence() -> None:
    a = np.array([[1, 2], [3, 4]], np.float32)
    assert divergence(a, a) == 0
    assert divergence(a + np.array([[0, 0], [0, 5]], np.float32), a) == pytest.approx(1)
    assert divergence(a * np.nan, a) == np.inf
    assert different(a, a) == 0
    assert different(a, np.nextafter(a, np.float32(9))) == 4
    within = Column("x", 1e-3, values=[1e-3, 9e-3, 1e-3])
    assert within.ok and "FAIL" not in within.cell(1)
    assert not Column("x", 1e-3, values=[0.0, 2e-3]).ok  # logits have the smaller limit
    assert Column("x", 0.0, True, [2.0, 0.0]).cell(0) == "2 FAIL"


def test_layers_of_a_plan() -> None:
    """Labels without a layer belong to the last one, until no layer follows."""
    labels = ("token_embd.weight", "blk.0.attn", "state", "blk.1.ffn", "output_norm", "output")
    ops = tuple(Dispatch(rmsnorm.KERNEL, {}, {}, Phase.FFN, label) for label in labels)
    assert layers_of(Plan(1, ops)) == [-1, 0, 0, 1, 2, 2]


def test_cells() -> None:
    good = CaseResult("k", "c", "b", 1e-12, 2e-4, 1e-3, True, "", "max rel")
    bad = CaseResult("k", "c", "b", 2.0, 0.5, 1e-3, False, "", "max rel")
    exact = CaseResult("k", "c", "b", float("inf"), 0.0, 0.0, False, "y: 1 of 2 words differ",
                       "exact")  # fmt: skip
    assert ratio(good) == pytest.approx(0.2) and ratio(bad) == float("inf")
    assert figures(good) == ("1.0e-12", "2.0e-04", "1e-03 max rel")
    assert figures(exact)[2] == "exact"
    assert reason(bad) == "max rel 5.0e-01 exceeds 1e-03"
    assert row(exact)[-2:] == ("FAIL", "y: 1 of 2 words differ")


def test_json_has_no_nan_and_markdown_no_stray_bars(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(1, ("--only", "x"))
    section = Section("cases", "Cases", ("a", "b"), [("x|y", "1")], "lr", [{"v": float("nan")}])
    report.add(section, 1)
    assert json.loads(report.as_json())["cases"] == [{"v": "nan"}]
    assert "| x\\|y | 1 |" in report.markdown().replace("  ", " ")
    assert "1 failed" in report.markdown()
    assert plain({"a": (1.0, float("inf"))}) == {"a": [1.0, "inf"]}
    assert "x|y" in capsys.readouterr().out
