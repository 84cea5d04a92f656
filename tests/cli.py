"""Runs the command line in this process, with a scripted runner where a test gives one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from click.testing import CliRunner, Result

from kompute_llm.cli.main import cli

COMMAND = (sys.executable, "-c", "from kompute_llm.cli.entry import main; main()")


def invoke(*args: Any, stdin: bytes | str | None = None) -> Result:
    """Result.stdout, .stderr and .exit_code of `kompute-llm ARGS`; exceptions would be faults."""
    result = CliRunner().invoke(cli, [str(a) for a in args], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.stderr
    return result


def process(*args: Any, **how: Any) -> subprocess.Popen[bytes]:
    """`kompute-llm ARGS` as a process of its own with pipes, for signals and closed readers."""
    pipes: dict[str, Any] = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    command: Sequence[str] = [*COMMAND, *map(str, args)]
    env = os.environ | {"PYTHONSAFEPATH": "1"} | how.pop("env", {})
    return subprocess.Popen(command, env=env, **(pipes | how))
