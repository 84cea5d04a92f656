"""`bench compare` over written files, `bench ab` over programs that answer from a list."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fixtures import write_tiny

from cli import invoke
from kompute_llm.engine.device import Device

BASE: dict[str, Any] = {
    "model_type": "llama 8B Q4_0", "model_size": 100, "model_n_params": 10, "gpu_info": "Some GPU",
    "cpu_info": "Some CPU", "backends": "Vulkan", "n_batch": 512, "type_k": "f16",
    "n_prompt": 0, "n_gen": 100, "n_depth": 0,
}  # fmt: skip


def result(rates: list[float], **changes: Any) -> dict[str, Any]:
    """A result with these tokens per second."""
    row = BASE | changes
    tokens = row["n_prompt"] + row["n_gen"]
    return row | {"samples_ns": [round(tokens / r * 1e9) for r in rates]}


def write(path: Path, *rows: Any) -> Path:
    path.write_text(json.dumps(rows))
    return path


def cells(text: str) -> list[list[str]]:
    """A Markdown table without its rule."""
    rows = [[c.strip() for c in line.strip("| ").split("|")] for line in text.splitlines()]
    return [r for r in rows if not set(r[0]) <= {"-"}]


def test_before_after(tmp_path: Path) -> None:
    a = write(tmp_path / "a.json", result([99, 100, 101]), result([200], n_prompt=8, n_gen=0))
    b = write(
        tmp_path / "b.json", result([109, 110, 111], build_commit="b", n_batch=256),
        result([210], n_prompt=8, n_gen=0, n_batch=256),
    )  # fmt: skip
    r = invoke("bench", "compare", a, b)
    assert r.exit_code == 0
    header, tg, pp = cells(r.stdout)
    assert header[1:4] == ["before t/s", "after t/s", "diff"]
    assert tg[:4] == ["tg100", "100.00 ± 1.00", "110.00 ± 1.00", "+10.0 %"]
    assert tg[-1] == "faster"
    assert pp[3:] == ["+5.0 %", "n/a", "n/a: one sample has no spread"]
    assert "differs: n_batch: 512 -> 256" in r.stderr
    (found,) = json.loads(invoke("bench", "compare", a, b, "-o", "json").stdout)
    assert found["tests"][0]["verdict"] == "faster"
    assert found["tests"][0]["low"] < 1.1 < found["tests"][0]["high"]
    same = invoke("bench", "compare", a, a, b)
    assert same.stdout.startswith(f"{a} -> {a}\n\n|") and f"\n\n{a} -> {b}\n\n|" in same.stdout
    assert same.stdout.count("no difference shown") == 1
    assert same.stdout.count("faster") == 1


def test_jsonl_and_settings_that_tell_rows_apart(tmp_path: Path) -> None:
    rows = [result([100, 101], type_k="f16"), result([50, 51], type_k="f32")]
    a = write(tmp_path / "a.json", *rows)
    b = tmp_path / "b.jsonl"
    b.write_text("\n".join(json.dumps(r) for r in reversed(rows)) + "\n")
    r = invoke("bench", "compare", a, b)
    assert [c[3] for c in cells(r.stdout)[1:]] == ["+0.0 %", "+0.0 %"]
    assert [c[0] for c in cells(r.stdout)[1:]] == ["tg100, type_k f16", "tg100, type_k f32"]
    one = write(tmp_path / "one.json", rows[0])
    r = invoke("bench", "compare", one, b)
    assert (r.exit_code, r.stdout) == (1, "")
    assert "only the second has results of type_k 'f32'" in r.stderr
    assert len(cells(invoke("bench", "compare", one, b, "--anyway").stdout)) == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "llama 1B Q4_0"}, "model or device differ in model_type 'llama 8B Q4_0'"),
        ({"gpu_info": "Other"}, "gpu_info 'Some GPU' and 'Other'"),
        ({"n_depth": 512}, "tests tg100 and tg100 @ d512"),
    ],
)
def test_unlike_runs_are_refused(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    a = write(tmp_path / "a.json", result([1, 2]))
    b = write(tmp_path / "b.json", result([1, 2], **change))
    r = invoke("bench", "compare", a, b)
    assert (r.exit_code, r.stdout) == (1, "")
    assert says in r.stderr
    allowed = "n_depth" not in change
    assert (invoke("bench", "compare", a, b, "--anyway").exit_code == 0) == allowed


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "[1]", '[{"n_prompt": 1}]', json.dumps([result([1.0]) | {"samples_ns": []}]),
     json.dumps([result([1.0]) | {"samples_ns": [0]}]), json.dumps([result([1.0]) | {"n_gen": 0}]),
     json.dumps([result([1.0]) | {"n_gen": "x"}]), json.dumps([result([1.0]) | {"n_gen": True}]),
     json.dumps([result([1.0]) | {"model_type": ["x"]}]),
     json.dumps([result([1.0]) | {"type_k": {}}]), json.dumps([result([1.0]) | {"n_gen": -1}]),
     json.dumps([result([1.0]) | {"samples_ns": [10**400]}]), '[{"samples_ns": [NaN]}]'],
)  # fmt: skip
def test_files_that_are_none(text: str, tmp_path: Path) -> None:
    good = write(tmp_path / "a.json", result([1.0]))
    bad = tmp_path / "b.json"
    bad.write_text(text)
    r = invoke("bench", "compare", good, bad)
    assert (r.exit_code, r.stdout) == (1, "")
    assert "b.json" in r.stderr


def program(path: Path, factor: float, code: int = 0) -> Path:
    """A program that answers like `bench -o json`, the n-th time with the n-th of some speeds."""
    path.write_text(f"""#!{sys.executable}
import json, os, sys
sys.stderr.write("error: what went wrong\\nTry something else\\n")
if {code}: sys.exit({code})
here = {str(path)!r} + ".count"
n = int(open(here).read()) if os.path.exists(here) else 0
open(here, "w").write(str(n + 1))
line = " ".join([*sys.argv[1:], os.environ.get("MINE", "")])
open({str(path)!r} + ".log", "a").write(line + "\\n")
rate = (100 + [0, 1, -1, 2, -2][n % 5] * 0.1) * {factor}
row = {BASE!r} | {{"samples_ns": [round(1e11 / rate)] * 2, "n_batch": {round(512 * factor)}}}
print(json.dumps([row]))
""")
    path.chmod(0o755)
    return path


def run_ab(tmp_path: Path, factor: float, *more: Any) -> Any:
    one, two = program(tmp_path / "one", 1.0), program(tmp_path / "two", factor)
    return invoke("bench", "ab", "--a", "", "--b", "MINE=yes --math f32", "--program-a", one,
                  "--program-b", two, "tg100", "-m", "x.gguf", *more)  # fmt: skip


def test_ab(tmp_path: Path) -> None:
    r = run_ab(tmp_path, 1.05, "--rounds", 6)
    assert r.exit_code == 0, r.stderr
    _, row = cells(r.stdout)
    assert row[0] == "tg100" and row[3] == "+5.0 %" and row[5] == "faster"
    assert "differs: n_batch: 512 -> 538" in r.stderr
    assert "arm b: MINE=yes --math f32" in r.stderr
    log = (tmp_path / "two.log").read_text().splitlines()
    assert log == ["bench tg100 -m x.gguf -r 3 --math f32 -o json yes"] * 7


def test_a_a(tmp_path: Path) -> None:
    r = run_ab(tmp_path, 1.0, "--rounds", 6, "--json")
    found = json.loads(r.stdout)
    assert found["tests"][0]["verdict"] == "no difference shown"
    assert len(found["tests"][0]["a_ts"]) == 6
    assert [len(run[0]["samples_ns"]) for run in found["results"]["a"]] == [2] * 6
    assert found["b"] == ["MINE=yes", "--math", "f32"]
    run_ab(tmp_path, 1.0, "--rounds", 4, "-r5")
    assert "-r 3" not in (tmp_path / "two.log").read_text().splitlines()[-1]
    assert not found["differences"]


def test_arms_that_fail(tmp_path: Path) -> None:
    bad = program(tmp_path / "bad", 1.0, 3)
    r = invoke("bench", "ab", "--a", "", "--b", "", "--program-a", bad, "tg1")
    assert (r.exit_code, r.stdout) == (1, "")
    assert "arm a failed (3): what went wrong" in r.stderr
    for args, says in (
        (("--a", "-o csv", "--b", ""), "no place in a comparison"),
        (("--a", "'", "--b", ""), "No closing quotation"), (("--a", ""), "--b"),
        (("--a", "", "--b", "", "--save", "x.json"), "no place"),
        (("--a", "--env", "--b", ""), "no place"), (("--a", "", "--b", "", "-ocsv"), "no place"),
    ):  # fmt: skip
        r = invoke("bench", "ab", *args)
        assert r.exit_code == 2
        assert says in r.stderr


@pytest.mark.slow
def test_a_known_difference_on_a_device(vulkan: Device, tmp_path: Path) -> None:
    """Two layers against sixteen, in real processes."""
    small = write_tiny(tmp_path / "small.gguf", n_layer=2)
    large = write_tiny(tmp_path / "large.gguf", n_layer=16)
    common = ("--rounds", 4, "-r", 2, "tg16", "--device", vulkan.info.index, "--anyway")
    r = invoke("bench", "ab", "--a", f"-m {large}", "--b", f"-m {small}", *common)
    assert cells(r.stdout)[1][-1] == "faster", r.stderr
    assert "differs: model_n_params" in r.stderr
