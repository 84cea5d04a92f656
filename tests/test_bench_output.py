"""Every format of results against golden files, and llama.cpp's own script on them.

KOMPUTE_LLM_COMPARE names a copy of llama.cpp's compare-llama-bench.py; without it that test is
skipped. KOMPUTE_LLM_GOLDEN=write renews the golden files.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kompute_llm.cli import bench_output, results
from kompute_llm.cli.bench_options import FORMATS, Arm
from kompute_llm.cli.results import Result, Setup
from kompute_llm.engine.bench_tests import Test
from kompute_llm.engine.measure import Sample
from kompute_llm.engine.runner import RunnerConfig

DATA = Path(__file__).parent / "data"
CLOCKS = {"graphics_mhz": 1500, "graphics_max_mhz": 1980}
ARMS = [
    Arm(Path("llama.gguf"), RunnerConfig(512, cache_k=k, batch=2048, threads=2), 512)
    for k in ("f16", "f32")
]


def fixed_results() -> list[Result]:
    """Two tests on each of two settings, with round figures."""
    spec = SimpleNamespace(arch="llama", weight_bytes=4_653_346_816, n_params=8_030_261_248)
    metadata = {"general.size_label": "8B", "general.file_type": 2}
    container = SimpleNamespace(metadata=metadata, path=Path("it's a llama.gguf"))
    model: Any = SimpleNamespace(spec=spec, container=container)
    runner = SimpleNamespace(describe="Some GPU (Vulkan, int8 products, f16 keys, f16 values)")
    opened: Any = SimpleNamespace(runner=runner, backend="Vulkan")
    out = []
    for arm in ARMS:
        setup = Setup(model, opened, arm, True)
        for test, seconds in (
            (Test(512, 0), (0.05, 0.0625, 0.04)),
            (Test(0, 128, 4096), (0.25, 0.25, 0.25)),
        ):
            samples = [Sample(s, s / 100, s / 50, [1, 2]) for s in seconds]
            out.append(Result(setup, test, samples, when="2026-01-02T03:04:05Z"))
    return out


@pytest.fixture(autouse=True)
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same revision and machine everywhere."""
    for name, value in (
        ("build_commit", "0123abcd"), ("build_number", 7), ("cpu_name", 'Some "CPU"'),
    ):  # fmt: skip
        monkeypatch.setattr(results, name, lambda value=value: value)
    monkeypatch.setattr(results, "drivers", lambda: {"Some GPU": "driver 5"})
    monkeypatch.setattr(bench_output, "environment", lambda: {"version": "1.2.3"})


def written(kind: str, found: list[Result]) -> str:
    """What an output writes."""
    lines: list[str] = []
    output = bench_output.make_output(kind, lines.append, ARMS, ["reuse"])
    for result in found:
        output.add(result)
    output.end()
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kind", FORMATS)
def test_golden(kind: str) -> None:
    path = DATA / f"bench.{kind}"
    text = written(kind, fixed_results())
    if os.environ.get("KOMPUTE_LLM_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_formats_agree() -> None:
    """CSV, SQL, JSON and JSON lines hold the same values of llama-bench's fields."""
    found = fixed_results()
    objects = json.loads(written("json", found))
    assert objects == [json.loads(line) for line in written("jsonl", found).splitlines()]
    table = list(csv.DictReader(io.StringIO(written("csv", found))))
    base = sqlite3.connect(":memory:")
    base.executescript(written("sql", found))
    base.row_factory = sqlite3.Row
    stored = base.execute("SELECT * FROM llama_bench").fetchall()
    assert len(objects) == len(table) == len(stored) == 4
    for o, line, row in zip(objects, table, stored, strict=True):
        for name in results.FIELDS:
            assert line[name] == bench_output.cell(o[name])
            assert row[name] == o[name]
        assert len(o["samples_ns"]) == 3


def test_figures_by_hand() -> None:
    """Mean and sample deviation (n - 1) of the rates; one repetition has none."""
    first = json.loads(written("json", fixed_results()))[0]
    assert first["samples_ts"] == pytest.approx([10240, 8192, 12800])
    assert first["avg_ts"] == pytest.approx(10410.6667)
    assert first["stddev_ts"] == pytest.approx(2308.7359)  # sqrt(10660522.67 / 2)
    assert (first["avg_ns"], first["stddev_ns"]) == (50833333, 11273124)
    r = fixed_results()[0]
    one = Result(r.setup, r.test, r.samples[:1])
    assert one.summary.sd == 0


def test_clocks() -> None:
    """Beyond llama-bench's fields, in JSON alone, and only where they are known."""
    (first, *_) = fixed_results()
    for kind in FORMATS:
        with_them = written(kind, [replace(first, clocks=CLOCKS)])
        assert ("graphics_mhz" in with_them) == (kind in ("json", "jsonl"))
        assert "clocks" not in written(kind, [first])
    (found,) = json.loads(written("json", [replace(first, clocks=CLOCKS)]))
    assert found["clocks"] == CLOCKS and list(found)[: len(results.FIELDS)] == [*results.FIELDS]


def test_llama_cpps_script(tmp_path: Path) -> None:
    """The script reads every format and finds the speed-up."""
    script = os.environ.get("KOMPUTE_LLM_COMPARE")
    if not script:
        pytest.skip("KOMPUTE_LLM_COMPARE names no compare-llama-bench.py")
    python = os.environ.get("KOMPUTE_LLM_COMPARE_PYTHON", sys.executable)
    found = [replace(r, clocks=CLOCKS) for r in fixed_results()[:2]]
    for kind in ("json", "jsonl", "csv", "sql"):
        path = tmp_path / f"x.{kind}"
        text = written(kind, found)
        if kind == "sql":
            path = tmp_path / "x.sqlite"
            with sqlite3.connect(path) as base:
                base.executescript(text + text.replace("0123abcd", "fedcba98"))
            inputs = [path]
        else:
            path.write_text(text)
            other = tmp_path / f"y.{kind}"
            other.write_text(text.replace("0123abcd", "fedcba98"))
            inputs = [path, other]
            if kind == "jsonl":  # the script takes one such file
                path.write_text(path.read_text() + other.read_text())
                inputs = [path]
        args = [a for p in inputs for a in ("-i", str(p))]
        answer = subprocess.run(
            [python, script, "--tool", "llama-bench", *args, "-b", "0123abcd", "-c", "fedcba98"],
            capture_output=True, text=True, cwd=tmp_path, check=False,
        )  # fmt: skip
        assert answer.returncode == 0, (kind, answer.stderr)
        assert "pp512" in answer.stdout and "1.00" in answer.stdout, kind
