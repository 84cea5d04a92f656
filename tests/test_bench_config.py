"""`bench --config`: the shipped files, what the command line replaces, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_runner import Script
from fixtures import write_tiny

from cli import invoke
from kompute_llm.cli.bench import bench
from kompute_llm.cli.bench_config import defaults, read, shipped
from kompute_llm.engine import choice
from kompute_llm.engine.bench_tests import parse_tests


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script(ids=[1, 2, 3], step_seconds=0.0001)
    monkeypatch.setattr(choice, "open_runner", made.open)
    return made


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf")


@pytest.mark.parametrize("name", shipped())
def test_shipped_files(name: str) -> None:
    path = shipped()[name]
    found = defaults(path, {k: v for k, v in read(path).items() if k != "models"}, bench)
    assert parse_tests(found["tests"])
    assert read(path)["description"]
    assert f"{name} " in invoke("bench", "--list-configs").stdout


def test_values_and_what_replaces_them(script: Script, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        f'models = ["{tiny}"]\ntests = ["pp3", "tg2"]\nrepetitions = 3\nbatch = [2, 4]\n'
        'cache_type_k = "f32"\noutput = "json"\nwarmup = false\n'
    )
    found = json.loads(invoke("bench", "--config", path).stdout)
    assert [(f["test"], f["n_batch"], f["type_k"]) for f in found] == [
        ("pp3", 2, "f32"), ("tg2", 2, "f32"), ("pp3", 4, "f32"), ("tg2", 4, "f32"),
    ]  # fmt: skip
    assert len(found[0]["samples_ns"]) == 3 and not found[0]["warmup"]
    found = json.loads(invoke("bench", "pp1", "-b", 4, "-r", 1, "--config", path).stdout)
    assert [(f["test"], f["n_batch"], len(f["samples_ns"])) for f in found] == [("pp1", 4, 1)]
    found = json.loads(invoke("bench", "-p", 2, "-n", 0, "--config", path).stdout)
    assert {f["test"] for f in found} == {"pp2"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('test = ["pp3"]', "unknown key 'test'; did you mean 'tests'?"),
        ("xyz = 1", "unknown key 'xyz'; known: description, tests, models"),
        ("roof = true", "unknown key 'roof'"), ("repetitions = [1]", "must be one value"),
        ("profile = 1", "must be true or false"),
        ("repetitions = 0", "repetitions: 0 is not in the range"),
        ("repetitions = 2.5", "repetitions: '2.5' is not a valid integer"),
        ('[synthetic.a]\nlayrs = 3', "unknown key 'layrs'; did you mean"),
        ('[synthetic.a]\narch = "llama"', "synthetic model a: missing layers"),
        ('math = ["f33"]', "'f33' is not one of"), ("tests = []", "must be a list"),
        ("tests = [true]", "must be a list"), ("a = ", "Invalid value"),
        ('tests = ["zz3"]', "no such test: 'zz3'"),
    ],
)
def test_what_is_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text + "\n")
    r = invoke("bench", "--config", path)
    assert (r.exit_code, r.stdout) == (1, "")
    assert says in r.stderr


def test_missing_files(tmp_path: Path) -> None:
    assert "the shipped ones are: batch-sweep" in invoke("bench", "--config", "nope").stderr
    assert invoke("bench", "--config", tmp_path / "no.toml").exit_code == 1
