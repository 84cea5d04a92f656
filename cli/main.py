"""The `kompute-llm` command: the group of subcommands, and errors turned into exit codes.

0 success; 1 the work failed; 2 wrong usage; 130 Ctrl-C; 141 the reader of the output went away.
What is wrong on the command line whatever files hold is wrong usage; a file that is not there,
cannot be read or written, or holds what cannot be used is failed work, be it model, prompt,
configuration, reference or result.
Subcommands are imported when used, so that help comes at once.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from ..engine.errors import KomputeLLMError
from .output import error, note

COMMANDS = {  # name -> one line of help; the module and the command have the same name
    "run": "Generate text from a prompt.",
    "bench": "Measure prompt processing and generation speed.",
    "validate": "Check every shader, or a model, against the CPU.",
    "inspect": "Show what a model file holds and what it would need.",
    "devices": "List the Vulkan devices.",
    "convert": "Convert a model to smaller weights.",
}
EXAMPLES = """\b
Examples:
  kompute-llm run -p "What is a GPU?"
  kompute-llm run -m model.gguf -f prompt.txt --temp 0
  git diff | kompute-llm run -m model.gguf --system "Explain this change" -
  kompute-llm bench pp512 tg128 -m model.gguf
  kompute-llm validate
  kompute-llm inspect model.gguf -c 8192
  kompute-llm devices --verbose"""
BROKEN_PIPE = 141  # 128 + SIGPIPE, as shells report it
INTERRUPTED = 130  # 128 + SIGINT


class ReaderGoneError(Exception):
    """BrokenPipeError under a name that click does not handle in its own way (exit code 1)."""


class CommandGroup(click.Group):
    """Subcommands imported on demand; every exception becomes a message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".{cmd_name}", __package__)
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            known = ", ".join(COMMANDS)
            raise click.UsageError(f"no such command: {name!r} (there are: {known})", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as e:
            raise ReaderGoneError from e

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run and exit. Errors go to stderr on one line; never a traceback unless --verbose."""
        args = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        try:
            code = super().main(args, prog_name or "kompute-llm", **extra)
            _flush()
        except BaseException as e:
            code = report(e, verbose="--verbose" in args or "-v" in args)
        sys.exit(code if isinstance(code, int) else 0)


def report(e: BaseException, verbose: bool) -> int:
    """Say on stderr what went wrong, and choose the exit code."""
    if isinstance(e, SystemExit):
        return e.code if isinstance(e.code, int) else 1
    if isinstance(e, KeyboardInterrupt | click.Abort):
        note("interrupted")
        return INTERRUPTED
    if isinstance(e, BrokenPipeError | ReaderGoneError):
        _drop_stdout()
        return BROKEN_PIPE
    if verbose and not isinstance(e, click.ClickException):
        note("".join(traceback.format_exception(e)).rstrip())
    if isinstance(e, click.ClickException):
        return _report_usage(e)
    if isinstance(e, KomputeLLMError):
        error(str(e))
        return e.exit_code
    if isinstance(e, MemoryError):
        error("out of memory; a smaller context (-c) or model needs less")
    elif isinstance(e, OSError):
        full = "standard output: " if e.errno == errno.ENOSPC else ""  # others name their file
        where = f"{e.filename}: " if e.filename else full
        error(f"{where}{e.strerror or e}")
    else:
        hint = "" if verbose else " (run with --verbose for the traceback)"
        error(f"internal error: {type(e).__name__}: {e}{hint}")
    return 1


def _report_usage(e: click.ClickException) -> int:
    """Errors that click finds while it reads the command line."""
    if isinstance(e, click.exceptions.NoArgsIsHelpError):
        note(e.format_message())
        return e.exit_code
    error(e.format_message())
    ctx = getattr(e, "ctx", None)
    if ctx is not None:
        note(f"Try '{ctx.command_path} -h' for help.")
    return e.exit_code


def _flush() -> None:
    """Meet a closed reader here and not in the interpreter's shutdown."""
    sys.stdout.flush()


def _drop_stdout() -> None:
    """Send what is left in the buffer to nowhere, so that shutdown does not complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_missing_streams() -> None:
    """Give closed standard descriptors to /dev/null, before a model file takes their numbers."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is `fd`
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # tables in a locale without "±"


@click.group(
    cls=CommandGroup,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="kompute-llm", prog_name="kompute-llm")
def cli() -> None:
    """Run and measure large language models on any Vulkan GPU, or on the CPU.

    'kompute-llm COMMAND -h' explains a command.
    """


def main() -> NoReturn:
    """Entry point of the `kompute-llm` and `tool` scripts."""
    _open_missing_streams()
    cli.main()
