"""`bench tasks`: the shipped set, the table and its means, comparison, sets that are none."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fake_runner import Script
from fixtures import write_tiny

from cli import invoke
from kompute_llm.cli.bench_tasks import SHIPPED, read_set
from kompute_llm.cli.tasks_table import CATEGORIES, compared, summary
from kompute_llm.engine import choice


def sample(category: str, gen: float | None, latency: float) -> dict[str, Any]:
    return {"category": category, "prompt_ts": 100.0, "gen_ts": gen, "latency_s": latency,
            "accept_rate": None}  # fmt: skip


def test_shipped_set() -> None:
    """Two or three prompts of every category."""
    counts = Counter(category for category, _ in read_set(SHIPPED))
    assert set(counts) == set(CATEGORIES)
    assert all(2 <= n <= 3 for n in counts.values())


def test_means() -> None:
    samples = [sample("math", 10, 1.0), sample("coding", None, 2.0), sample("math", 30, 3.0)]
    _, rows = summary(samples)
    assert rows == [
        ("coding", "1", "100.00", "n/a", "2.000", "n/a"),
        ("math", "2", "100.00", "20.00", "2.000", "n/a"),
        ("overall", "3", "100.00", "20.00", "2.000", "n/a"),
    ]
    _, rows = compared(samples, [sample("math", 40, 1.0)])
    assert rows[1][-3:] == ("40.00", "2.00 x", "2.00 x")
    assert rows[0][-3:] == ("n/a", "n/a", "n/a")


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(ids=[266, 267], step_seconds=0.0001, prefill_seconds=0.0001)
    monkeypatch.setattr(choice, "open_runner", script.open)
    model = write_tiny(tmp_path / "tiny.gguf")
    prompts = tmp_path / "own.jsonl"
    prompts.write_text(
        '{"category": "qa", "prompt": "h"}\n\n{"category": "math", "prompt": "hi h"}\n'
    )
    out = tmp_path / "a.json"
    r = invoke("bench", "tasks", model, "--set", prompts, "-n", 4, "-o", "json")
    assert r.exit_code == 0, r.stderr
    out.write_text(r.stdout)
    found = json.loads(r.stdout)["samples"]
    assert [s["category"] for s in found] == ["qa", "math"]
    assert all(s["generated"] == 4 and s["gen_ts"] > 0 for s in found)
    r = invoke("bench", "tasks", "-m", model, "--set", prompts, "-n", 1)
    assert r.stdout.splitlines()[-1].split("|")[4].strip() == "n/a"  # nothing after the first
    r = invoke("bench", "tasks", "--compare", out, out)
    assert r.stdout.count("1.00 x") == 9
    (_, qa, overall) = json.loads(
        invoke("bench", "tasks", "--compare", out, out, "-o", "json").stdout
    )
    assert qa["category"] == "qa" and overall["gen_ts"]["before"] == overall["gen_ts"]["after"]


@pytest.mark.parametrize(
    ("change", "says"),
    [({"n_predict": 5}, "n_predict 4 and 5"), ({"device": "GPU"}, "device 'CPU' and 'GPU'"),
     ({"samples": [sample("qa", 1, 1)]}, "they have other prompts")],
)  # fmt: skip
def test_unlike_results(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    base = {"n_predict": 4, "device": "CPU", "samples": [sample("math", 10, 1.0)]}
    paths = tmp_path / "a.json", tmp_path / "b.json"
    for path, found in zip(paths, (base, base | change), strict=True):
        path.write_text(json.dumps(found))
    r = invoke("bench", "tasks", "--compare", *paths)
    assert (r.exit_code, r.stdout) == (1, "")
    assert says in r.stderr
    r = invoke("bench", "tasks", "--compare", *paths, "--anyway")
    assert r.exit_code == 0 and "differs: " in r.stderr


@pytest.mark.parametrize(
    "text", ["", "x", "[]", '{"category": "x", "prompt": "a"}', '{"category": "qa"}',
             '{"category": "qa", "prompt": ""}'],
)  # fmt: skip
def test_sets_and_results_that_are_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    for args in (("--set", path), ("--compare", path, path), ("--compare", path)):
        r = invoke("bench", "tasks", *args)
        assert (r.exit_code, r.stdout) == (2 if len(args) == 2 and "--compare" in args else 1, "")
