"""`convert`: a model to an int container, or to another GGUF format."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..engine.errors import ModelError, UsageError
from .interrupt import Interrupt
from .options import Command, combine, option
from .output import is_terminal, note, warn
from .tables import size, table

if TYPE_CHECKING:
    from ..engine.container import Container
    from ..engine.convert import Report
    from ..engine.convert_formats import Choice

EXAMPLES = """\
Examples:
  kompute-llm convert model.gguf model-int4 --format int4-g64
  kompute-llm convert Qwen3-30B-A3B/ qwen-int3 --format int8 --experts int3-g64
  kompute-llm convert model-f16.gguf out --to-gguf q8_0

The same command goes on where a stopped one left off.
"""
COLUMNS = ("part", "format", "tensors", "size", "largest error", "NMSE")
PART_HELP = {
    "experts": "Routed experts.",
    "shared": "Shared experts.",
    "attention": "Projections of attention.",
    "head": "Embedding and output matrix.",
}


def format_options(f: Any) -> Any:
    """What is written, and as what."""
    section = "Format"
    return combine(
        option("--format", section=section, metavar="F",
               help="int8, int4 (one scale per row), int4-g32, int4-g64, int4-g128, int3-g64, "
               "f16, bf16, f32. Norms and routers stay f32. [int8]"),
        *(option(f"--{part}", section=section, metavar="F", help=text + " [as --format]")
          for part, text in PART_HELP.items()),
        option("--to-gguf", section=section, metavar="TYPE",
               help="Write GGUF instead: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1."),
        option("--shard-size", section=section, metavar="MB", type=click.IntRange(1, 1 << 20),
               default=1024, show_default=True,
               help="Size of a shard: the most that a stopped run does again."),
    )(f)  # fmt: skip


@click.command(cls=Command, after_help=lambda: EXAMPLES)
@click.argument("src")
@click.argument("dst")
@format_options
@option("-v", "--verbose", section="Report", is_flag=True, help="Tracebacks of errors.")
def convert(src: str, dst: str, **options: Any) -> int:
    """Convert a model to smaller weights.

    SRC is a GGUF file or a folder of safetensors (bf16, f16, f32 or float8 blocks, or an int
    container); DST is a new folder. Every shard is read back and compared with the source before it
    gets its name. A run that was stopped goes on when the same command is given again.
    """
    from ..engine.convert import Conversion

    choice = read_choice(options)
    with Interrupt() as interrupt:
        job = Conversion(
            Path(src).expanduser(), Path(dst).expanduser(), choice, options["shard_size"] << 20
        )
        try:
            note(f"{src}: {len(job.source.tensors)} tensors to {shards(len(job.shards))}, "
                 f"{size(job.nbytes)} of weights")  # fmt: skip
            warn_unrunnable(job.source.container)
            with bar(f"converting {Path(src).name}") as update:

                def progress(done: int, total: int) -> None:
                    interrupt.check()
                    update(done, total)

                report = job.run(progress)
        finally:
            job.close()
    show(report, Path(dst))
    return 0


def read_choice(options: dict[str, Any]) -> Choice:
    """Formats by part. Raises UsageError before anything is opened."""
    from ..engine.convert_formats import Choice, target

    gguf = options["to_gguf"]
    if gguf and options["format"]:
        raise UsageError("--to-gguf and --format exclude each other")
    default = target(gguf or options["format"] or "int8", bool(gguf))
    parts = {p: target(options[p], bool(gguf)) for p in PART_HELP if options[p]}
    return Choice(default, parts, bool(gguf))


def show(report: Report, dst: Path) -> None:
    """The table of what rounding did, and where the result lies."""
    rows = []
    for key, e in sorted(report.errors.items()):
        part, name = key.split(" ")
        rows.append((part, name, str(e.tensors), size(e.nbytes), f"{e.worst:.2g}", f"{e.nmse:.1e}"))
    table(COLUMNS, rows, right="llrrrr")
    again = f", {report.kept} were finished before" if report.kept else ""
    note(f"{dst}: {shards(report.written)} written and verified{again}; {size(report.nbytes)}")


def shards(n: int) -> str:
    """A number of shards in words."""
    return f"{n} shard{'' if n == 1 else 's'}"


def warn_unrunnable(source: Container) -> None:
    """Say it if the source could not be run: then the copy cannot be either."""
    from ..engine.spec import model_spec

    try:
        model_spec(source)
    except ModelError as e:
        warn(f"{e}; the converted model will not run either")


@contextlib.contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Share of the work and time left on a terminal's stderr, nothing elsewhere."""
    if not is_terminal(sys.stderr):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Left())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
