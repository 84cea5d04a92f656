"""`bench` over a scripted runner: tests, columns, JSON, samples, faults."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from fake_runner import FakeRunner, Script
from fixtures import Model, write_tiny

from cli import invoke
from kompute_llm.cli import bench_run
from kompute_llm.engine import choice, measure
from kompute_llm.engine.device import Device
from kompute_llm.engine.measure import Sample


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without any vocabulary."""
    def edit(m: Model) -> None:
        for key in [k for k in m.metadata if k.startswith("tokenizer.")]:
            del m.metadata[key]
        m.metadata |= {"general.size_label": "1M", "general.file_type": 15}

    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return write_tiny(path, n_embd=256, n_head=2, edit=edit)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """A runner that takes 1 ms a step or batch."""
    made = Script(ids=[1, 2, 3], prefill_seconds=0.001, step_seconds=0.001)
    monkeypatch.setattr(choice, "open_runner", made.open)
    return made


def rows(text: str) -> list[list[str]]:
    """Cells of a Markdown table."""
    return [[c.strip() for c in line.strip("| ").split("|")] for line in text.splitlines()]


def test_markdown(script: Script, tiny: Path) -> None:
    r = invoke("bench", "pp10", "tg8", "-m", tiny, "-r", 3)
    assert r.exit_code == 0
    header, rule, prompt, decode = rows(r.stdout)
    assert header == ["model", "size", "params", "backend", "threads", "test", "t/s"]
    assert all(re.fullmatch("-+:?", cell) for cell in rule)
    assert prompt[0] == "llama 1M Q4_K - Medium"
    assert (prompt[3], prompt[5], decode[5]) == ("CPU", "pp10", "tg8")
    for row, most in ((prompt, 10 / 0.003), (decode, 1 / 0.001)):
        mean, sd = map(float, row[6].split(" ± "))
        assert 0 < mean < most
        assert 0 <= sd < mean
    assert len({len(line) for line in r.stdout.splitlines()}) == 1
    assert "pp10: median" in r.stderr
    assert script.configs[-1].n_ctx == 256


def test_work_and_warm_up(script: Script, tiny: Path) -> None:
    prompt = ["prefill 4", "prefill 4", "prefill 2"]
    assert invoke("bench", tiny, "pp10", "-r", 2).exit_code == 0
    assert script.calls == [*prompt * 3, "close"]  # one warm-up
    script.calls.clear()
    assert invoke("bench", tiny, "pp10", "-r", 2, "--no-warmup").exit_code == 0
    assert script.calls == [*prompt * 2, "close"]
    script.calls.clear()
    assert invoke("bench", tiny, "tg8", "-r", 1, "--no-warmup").exit_code == 0
    assert script.calls == ["prefill 1", "decode 3", "decode 3", "decode 2", "close"]


def test_warm_up_lasts_until_batches_are_settled(
    script: Script, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefill = FakeRunner.prefill

    def growing(self: FakeRunner, ids: Any, *, sample: bool) -> None:
        prefill(self, ids, sample=sample)
        self.batch = 8

    monkeypatch.setattr(FakeRunner, "prefill", growing)
    assert invoke("bench", tiny, "pp8", "-r", 1).exit_code == 0
    assert script.calls == ["prefill 4", "prefill 4", "prefill 8", "prefill 8", "close"]


def test_json(script: Script, tiny: Path) -> None:
    r = invoke("bench", tiny, "pp10,tg8", "-r", 4, "-o", "json", "-ctk", "f32")
    prompt, decode = json.loads(r.stdout)
    assert (prompt["n_prompt"], prompt["n_gen"]) == (10, 0)
    assert (decode["n_prompt"], decode["n_gen"]) == (0, 8)
    assert prompt["type_k"] == "f32"
    for found in (prompt, decode):
        assert len(found["samples_ns"]) == len(found["samples_ts"]) == 4
        assert found["min_ts"] <= found["median_ts"] <= found["max_ts"]
        assert found["avg_ts"] == pytest.approx(sum(found["samples_ts"]) / 4)
    assert "profile" not in prompt
    assert len(prompt["environment"]["version"]) > 1


def test_profile(script: Script, tiny: Path) -> None:
    r = invoke("bench", tiny, "tg8", "-r", 1, "--profile")
    assert re.search(r"^host +[\d.]+ +100.0$", r.stdout, re.M)
    assert "bench --roof' measures" in r.stdout.splitlines()[-1]
    (found,) = json.loads(invoke("bench", tiny, "tg8", "-r", 1, "--profile", "-o", "json").stdout)
    assert set(found["profile"]["phases"]) == {"embed", "ffn"}
    assert found["profile"]["phases"]["ffn"]["bytes"] == 1e6


def test_ctrl_c_in_the_profile_keeps_the_samples(
    script: Script, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(*args: Any, **how: Any) -> Sample:
        if how.get("profile"):
            raise measure.Stop
        return Sample(1.0)

    monkeypatch.setattr(measure, "run_once", stopping)
    r = invoke("bench", tiny, "tg8", "-r", 2, "--profile")
    assert len(rows(r.stdout)) == 3 and "time of each phase" not in r.stdout


def test_unusual_settings_have_columns(script: Script, tiny: Path) -> None:
    r = invoke("bench", tiny, "pp4", "-r", 1, "-ctv", "f32", "--math", "f32", "-t", 7)
    header, _, row = rows(r.stdout)
    cells = dict(zip(header, row, strict=True))
    assert (cells["type_v"], cells["math"], cells["threads"]) == ("f32", "f32", "7")
    assert "type_k" not in cells


def test_unsteady_samples_are_flagged(
    script: Script, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([1.0, 1.0, 1.0, 2.0])
    monkeypatch.setattr(measure, "run_once", lambda *args, **how: Sample(next(seconds)))
    r = invoke("bench", tiny, "pp4", "-r", 3)
    assert "warning: pp4: the deviation is 35 % of the mean" in r.stderr


def test_wrong_arguments(tiny: Path) -> None:
    for args, says in (
        (("pp0",), "no such test: 'pp0'"), (("pp5x",), "no such test"),
        (("ppp",), "neither a test"), (("-r", 0), "--repetitions"),
        (("-p", "0", "-n", "0"), "no test"), (("-pg", "5"), "expected PP,TG"),
        (("-ctk", "f15"), "'f15' is not one of"), (("-ub", "0"), "not from 1"),
        (("--record", "never"), "not one of"), (("pp4", "--roof"), "the device alone"),
        (("--save", "x.txt", tiny), "must end in"), (("-d", "8-1"), "holds nothing"),
    ):  # fmt: skip
        r = invoke("bench", *args)
        assert (r.exit_code, r.stdout) == (2, "")
        assert says in r.stderr


def test_saved_files_stay_until_there_is_a_result(
    script: Script, tiny: Path, tmp_path: Path
) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("what was")
    script.lose_prefill = 0
    for path in (old, new):
        assert invoke("bench", tiny, "pp4", "-r", 1, "--save", path).exit_code == 1
    assert old.read_text() == "what was" and not new.exists()
    script.lose_prefill = None
    full = tmp_path / "full.json"
    full.symlink_to("/dev/full")
    r = invoke("bench", tiny, "pp4", "-r", 1, "--save", full)
    assert r.exit_code == 1 and f"--save {full}: No space left" in r.stderr
    assert invoke("bench", tiny, "pp4", "-r", 1, "--save", old).exit_code == 0
    assert [r["test"] for r in json.loads(old.read_text())] == ["pp4"]


@pytest.mark.parametrize(("fault", "rows_left"), [("lose_prefill", 0), ("lose_decode", 1)])
def test_a_failed_device_has_no_row(
    script: Script, tiny: Path, fault: str, rows_left: int
) -> None:
    setattr(script, fault, 0)
    for output in ("md", "json"):
        script.calls.clear()
        r = invoke("bench", tiny, "pp4", "tg4", "-r", 1, "-o", output)
        assert r.exit_code == 1
        assert "error: device lost" in r.stderr
        found = json.loads(r.stdout or "[]") if output == "json" else rows(r.stdout)[2:]
        assert len(found) == rows_left


def test_numbers_that_are_not_finite_have_no_speed(script: Script, tiny: Path) -> None:
    script.not_finite_at = 2
    r = invoke("bench", tiny, "tg4", "-r", 1)
    assert (r.exit_code, r.stdout) == (1, "")
    assert "every logit is NaN" in r.stderr


def test_ctrl_c_prints_what_is_finished(
    script: Script, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = bench_run.Bench.show

    def interrupted(self: Any, result: Any) -> None:
        show(self, result)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(bench_run.Bench, "show", interrupted)
    for output in ("md", "json", "jsonl", "csv"):
        r = invoke("bench", tiny, "pp4", "tg4", "-r", 2, "-o", output)
        assert r.exit_code == 130
        assert r.stdout.count("pp4") == 1
        assert "tg4" not in r.stdout
        if output == "json":
            assert len(json.loads(r.stdout)) == 1
        assert script.calls[-1] == "close"


def test_depth_is_not_timed(script: Script, tiny: Path) -> None:
    assert invoke("bench", tiny, "tg3@d6", "-r", 1, "--no-warmup").exit_code == 0
    assert script.calls == ["prefill 4", "prefill 2", "decode 3", "close"]
    script.calls.clear()
    r = invoke("bench", tiny, "pp5", "-d", "4", "-r", 1, "--no-warmup", "-o", "json")
    assert script.calls == ["prefill 4", "prefill 4", "prefill 1", "close"]
    (found,) = json.loads(r.stdout)
    assert (found["n_prompt"], found["n_gen"], found["n_depth"]) == (5, 0, 4)
    assert found["avg_ts"] > 5 / 0.1


def test_product(script: Script, tiny: Path) -> None:
    """Every combination, models outermost; what varies has a column."""
    r = invoke("bench", tiny, "-m", tiny, "pp4", "-r", 1, "-ctk", "f16,f32", "-ub", "2,4",
               "-t", "1-2", "-b", "64")  # fmt: skip
    header, _, *found = rows(r.stdout)
    assert len(found) == len(script.configs) == 16
    assert {"type_k", "n_batch", "n_ubatch", "threads"} < set(header)
    assert "type_v" not in header
    assert [(c.cache_k, c.batch, c.threads) for c in script.configs[:5]] == [
        ("f16", 2, 1), ("f16", 2, 2), ("f16", 4, 1), ("f16", 4, 2), ("f32", 2, 1),
    ]  # fmt: skip


def test_recording(script: Script, tiny: Path) -> None:
    """Both forms in turn, the order changing; the tokens are compared."""
    r = invoke("bench", tiny, "tg3", "-r", 2, "--no-warmup", "--record", "reuse,each")
    assert [c for c in script.calls if "replay" in c] == [
        "replay True", "replay False", "replay False", "replay True",
    ]  # fmt: skip
    assert [row[5] for row in rows(r.stdout)[2:4]] == ["reuse", "each"]
    assert "| before: each | after: reuse |" in re.sub(" +", " ", r.stdout)
    assert "CPU ms per token, calling thread" in r.stdout
    samples = iter([Sample(1.0, ids=[1, 2]), Sample(1.0, ids=[1, 3])])
    with pytest.MonkeyPatch.context() as m:
        m.setattr(measure, "run_once", lambda *args, **how: next(samples))
        r = invoke("bench", tiny, "tg2", "-r", 1, "--no-warmup", "--record", "reuse,each")
    assert (r.exit_code, r.stdout) == (1, "")
    assert "token 1 differs" in r.stderr


def test_environment() -> None:
    found = json.loads(invoke("bench", "--env").stdout)
    assert {"version", "python", "cpu", "devices", "numpy"} <= set(found)


def test_curve(script: Script, tiny: Path) -> None:
    r = invoke("bench", tiny, "pp1-4*2", "-r", 1, "--no-warmup", "--curve")
    lines = r.stdout.split("\n\n")[-1].splitlines()
    assert lines[0] == "pp: median t/s"
    assert [line.split()[0] for line in lines[1:]] == ["pp1", "pp2", "pp4"]
    r = invoke("bench", tiny, "pp1-4*2", "-r", 1, "-ctk", "f16,f32", "--curve")
    assert [f"pp (k {k}): median t/s" in r.stdout for k in ("f16", "f32")] == [True, True]
    assert "a curve needs" in invoke("bench", tiny, "pp1", "-r", 1, "--curve").stdout


def test_settings_are_told_apart(script: Script, tiny: Path) -> None:
    """Lines on stderr name what varies, and nothing else."""
    r = invoke("bench", tiny, "pp4", "-r", 1, "-ctk", "f16,f32", "-t", "1,2")
    found = [line.partition(":")[0] for line in r.stderr.splitlines() if "median" in line]
    assert found == [f"pp4 (k {k}, threads {t})" for k in ("f16", "f32") for t in (1, 2)]


def test_later_arms_are_checked_first(script: Script, tiny: Path, vulkan: Device) -> None:
    """A model or device that is not there costs no measurement of those before it."""
    for args, code in ((("-m", "absent.gguf"), 1), (("--device", "cpu,absent"), 2)):
        r = invoke("bench", "-m", tiny, *args, "pp4", "-r", 1)
        assert (r.exit_code, r.stdout) == (code, "")
        assert "absent" in r.stderr
    assert not script.calls


def test_beyond_training(script: Script, tmp_path: Path) -> None:
    short = write_tiny(tmp_path / "short.gguf", n_embd=256, n_head=2, n_ctx=8)
    r = invoke("bench", "-m", short, "pp4", "tg1@d8", "-r", 1, "--no-warmup")
    assert "warning: beyond the 8 positions of training: tg1@d8" in r.stderr
