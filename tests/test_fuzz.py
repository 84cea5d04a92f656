"""A short run of the fuzzer (`make fuzz` is the long one), and that it finds what is there."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fuzz_worker
import pytest
from fuzz import LATE, Worker, fuzz
from fuzz_cases import DAMAGES, bases, make_case

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")


def test_damaged_files_run_or_are_refused(tmp_path: Path) -> None:
    report = fuzz(range(150), seed=11, folder=tmp_path)
    assert report.faults == []
    assert report.counts["ran"] > 10 and report.counts["refused"] > 50


def test_cases_repeat_and_differ(tmp_path: Path) -> None:
    made = bases(tmp_path)
    assert [len(b.files) for b in made] == [1, 1, 2]
    same, other = (tmp_path / name for name in ("same", "other"))
    for folder in (same, other):
        folder.mkdir()
    for n in range(len(made) * len(DAMAGES)):
        given = make_case(made, 5, n, same)
        assert make_case(made, 5, n, other).read_bytes() == given.read_bytes()
        base = made[n % len(made)]
        assert any((same / name).read_bytes() != whole for name, whole in base.files.items())


@pytest.mark.parametrize(
    ("code", "stderr", "problem"),
    [
        (0, "note: x\n", ""),
        (1, "error: m.gguf: key 'a': no\n", ""),
        (0, "error: m.gguf: no\n", "exit code 0 with 1 messages"),
        (1, "", "exit code 1 with 0 messages"),
        (2, "error: usage\n", "exit code 2"),
        (1, "error: internal error: KeyError: 'x'\n", "internal error"),
        (1, "error: out of memory; a smaller context\n", "out of memory"),
        (0, "x.py:1: RuntimeWarning: overflow\n", "Warning: "),
    ],
)
def test_what_counts_as_a_fault(
    code: int, stderr: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def invoke(*args: Any) -> SimpleNamespace:
        return SimpleNamespace(exit_code=code, stderr=stderr)

    monkeypatch.setattr(fuzz_worker, "invoke", invoke)
    answer = fuzz_worker.verdict(Path("m.gguf"))
    assert (answer["outcome"] == "fault") == bool(problem)
    assert problem in answer["text"]


def test_a_hang_and_a_death_are_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "worker.py"
    script.write_text(
        "import os, sys, time\n"
        "for line in sys.stdin:\n"
        "    time.sleep(9 * ('hang' in line))\n"
        "    os.abort() if 'die' in line else print('{\"outcome\": \"ran\", \"text\": \"\"}')\n"
        "    sys.stdout.flush()\n"
    )
    monkeypatch.setattr("fuzz.SCRIPT", script)
    monkeypatch.setattr("fuzz.PATIENCE", 0.5)
    monkeypatch.setattr("fuzz.START", 1.0)
    worker = Worker(Path("sound"))
    texts = [worker.ask(Path(name))["text"] for name in ("hang", "die")]
    assert texts == [LATE, "died with -6"]
    assert worker.ask(Path("sound"))["outcome"] == "ran"
    worker.close()
