"""Wrong usage, broken files, signals and pipes: one message, the right exit code, no traceback."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from fake_runner import Script
from fixtures import token_ids, write_tiny

from cli import COMMAND, invoke, process
from kompute_llm.cli import options
from kompute_llm.cli.main import cli, report
from kompute_llm.engine import choice


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model; no test here runs it."""
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", n_embd=256, n_head=2)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """A scripted runner."""
    made = Script(ids=token_ids("h"))
    monkeypatch.setattr(choice, "open_runner", made.open)
    return made


def usage_error(*args: Any, says: str, stdin: str | None = None, code: int = 2) -> None:
    """The options are wrong: exit code 2, one error line, nothing on stdout."""
    r = invoke(*args, stdin=stdin)
    assert (r.exit_code, r.stdout) == (code, ""), r.stderr
    errors = [line for line in r.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, r.stderr
    assert says in errors[0]


def file_error(*args: Any, says: str, stdin: str | None = None) -> None:
    """A file is not there, or not what it should be: the same with exit code 1."""
    usage_error(*args, says=says, stdin=stdin, code=1)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--temp", "nan"), "--temp"), (("--temp", "-1"), "--temp"), (("--temp", "x"), "--temp"),
        (("--top-p", "1.5"), "--top-p"), (("--min-p", "-1"), "--min-p"),
        (("--top-k", "1.5"), "--top-k"), (("--repeat-last-n", "-2"), "--repeat-last-n"),
        (("--repeat-penalty", "0"), "--repeat-penalty"), (("--seed", "-2"), "--seed"),
        (("--seed", str(2**64)), "--seed"), (("-n", "-2"), "-n"), (("-c", "-1"), "-c"),
        (("--frequency-penalty", "inf"), "--frequency-penalty"), (("--threads", "0"), "--threads"),
        (("--threads", "5000"), "--threads"),
        (("--cache-type-k", "q5_1"), "--cache-type-k"), (("--math", "f64"), "--math"),
        (("--system", "x", "--no-chat"), "--system"), (("--colour",), "--colour"),
        (("-f", "x"), "one prompt"), (("-",), "one prompt"), (("other.gguf",), "more than one"),
    ],
)  # fmt: skip
def test_options_are_checked_before_the_model_is_opened(args: tuple[str, ...], says: str) -> None:
    usage_error("run", "-m", "does-not-exist.gguf", "-p", "h", *args, says=says)


def test_prompt_files(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0)
    for file, says in (
        (tmp_path / "none", "No such file"), (tmp_path, "Is a directory"), (empty, "is empty"),
        ("/dev/zero", "larger than"),
    ):  # fmt: skip
        file_error("run", "-m", "x", "-f", file, says=says)
    if os.geteuid() != 0:
        file_error("run", "-m", "x", "-f", secret, says="Permission denied")


def test_no_prompt_and_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    usage_error("run", "-m", "x", stdin="", says="no prompt")
    file_error("run", "-m", "x", "-", stdin="", says="standard input is empty")
    monkeypatch.setattr(options, "DEMO_PACKAGE", "no_such_package_here")
    usage_error("run", "-p", "h", says="no model: give one with -m")
    usage_error("run", "-m", "", "-p", "h", says="path is empty")


def test_commands() -> None:
    usage_error("rnu", says="no such command: 'rnu'")
    r = invoke()
    assert r.exit_code == 2
    assert "Commands:" in r.stderr
    assert invoke("--version").stdout.startswith("kompute-llm")


@pytest.mark.parametrize("args", [("-h",), ("run", "-h"), ("bench", "--help"), ("validate", "-h")])
def test_help(args: tuple[str, ...]) -> None:
    r = invoke(*args)
    assert r.exit_code == 0
    assert "Examples:" in r.stdout
    assert r.stderr == ""
    assert max(map(len, r.stdout.splitlines())) <= 100


def test_help_explains_special_values() -> None:
    text = invoke("run", "-h").stdout
    for words in ("--top-k 0", "--repeat-last-n 0", "-1 = the whole context", "--temp 0"):
        assert words in text


@pytest.mark.parametrize("command", ["run", "validate", "bench"])
@pytest.mark.parametrize(
    "content",
    [b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", b"<!DOCTYPE html>",
     bytes(4096), b"tjgg" + bytes(64), b""],
)  # fmt: skip
def test_files_that_are_no_models(tmp_path: Path, command: str, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    r = invoke(command, path, *(("-p", "hi") if command == "run" else ()))
    assert (r.exit_code, r.stdout) == (1, "")
    errors = [line for line in r.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert str(path) in errors[0]


def test_missing_and_unreadable_models(tmp_path: Path) -> None:
    for path in (tmp_path / "no.gguf", tmp_path):
        r = invoke("run", path, "-p", "h")
        assert r.exit_code == 1
        assert re.match(rf"error: {re.escape(str(path))}: ", r.stderr)


def test_unexpected_exceptions(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(ZeroDivisionError("x"), verbose=False) == 1
    text = "internal error: ZeroDivisionError: x (run with --verbose for the traceback)"
    assert capsys.readouterr().err == f"error: {text}\n"
    assert report(ZeroDivisionError("x"), verbose=True) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert report(MemoryError(), verbose=False) == 1
    assert "out of memory" in capsys.readouterr().err


def test_ctrl_c_in_the_middle(script: Script, tiny: Path) -> None:
    script.ids, script.step_seconds = token_ids("h"), 0.01

    def interrupt_later(*args: Any) -> Any:
        opened = script.__class__.open(script, *args)
        subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -INT {os.getpid()}"])
        return opened

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "open_runner", interrupt_later)
        began = time.monotonic()
        r = invoke("run", tiny, "-p", "h")
    assert r.exit_code == 130
    assert time.monotonic() - began < 2
    assert set(r.stdout) == {"h", "\n"}
    assert re.search(r"\[ Prompt: .* t/s \| Generation: [\d.]+ t/s \]\n$", r.stderr)
    assert script.calls[-1] == "close"


def test_ctrl_c_while_loading(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the signal came first")

    monkeypatch.setattr(choice, "open_runner", load)
    r = invoke("run", tiny, "-p", "h")
    assert (r.exit_code, r.stdout) == (130, "")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_modules_are_imported() -> None:
    """A finder that is interrupted stands for the signal."""
    code = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from kompute_llm.cli.entry import main\n"
        "main()\n"
    )
    done = subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ninterrupted\n")


def test_ctrl_c_while_reading_the_prompt(tiny: Path) -> None:
    with process("run", tiny, "-") as p:
        time.sleep(1.0)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=5)
    assert (p.returncode, out) == (130, b"")
    assert b"Traceback" not in err


def test_closed_streams(tiny: Path) -> None:
    for shell, code in (
        (f"{' '.join(map(repr, COMMAND))} -h | head -c 1", 0),
        (f"{' '.join(map(repr, COMMAND))} run {tiny} -p '' --temp x 2>&-", 2),
        (f"{' '.join(map(repr, COMMAND))} run -p h -m nothing >&- 2>&- <&-", 1),
    ):
        done = subprocess.run(["sh", "-c", shell], capture_output=True, timeout=20)
        assert done.returncode == code
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr


def test_closed_reader_ends_quietly(script: Script, tiny: Path) -> None:
    class Gone:
        """A stdout whose reader has left."""

        def write(self, data: bytes) -> int:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kompute_llm.cli.session.TextOut.write", lambda self, text: Gone().write(b""))
        r = invoke("run", tiny, "-p", "h")
    assert (r.exit_code, r.stdout, r.stderr.count("\n")) == (141, "", 1)  # the seed's line
    assert script.calls[-1] == "close"


def test_help_comes_at_once() -> None:
    """The group alone imports nothing heavy."""
    code = (
        "import sys; from kompute_llm.cli import main; "
        "print(sorted({'numpy', 'rich', 'numba', 'kp', 'gguf', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert "run" in cli.list_commands(None)  # type: ignore[arg-type]
