"""Tables and figures in the shapes that terminals, pipes and Markdown want."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from .output import is_terminal

if TYPE_CHECKING:
    from ..engine.stats import Stats


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: str = "",
    stream: TextIO | None = None,
) -> None:
    """A table on `stream` (stdout): drawn by rich on a terminal, aligned by spaces elsewhere.

    Columns whose letter in `right` is "r" are flushed right and keep their cells on one line;
    "FAIL" is red on a terminal.
    """
    stream = stream or sys.stdout
    if is_terminal(stream):
        _rich_table(columns, rows, right, stream)
        return
    widths = [max(len(r[i]) for r in (columns, *rows)) for i in range(len(columns))]
    for row in (columns, *rows):
        cells = (
            cell.rjust(w) if right[i : i + 1] == "r" else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        stream.write("  ".join(cells).rstrip() + "\n")
    stream.flush()


def _rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: str, stream: TextIO
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(columns):
        number = right[i : i + 1] == "r"
        drawn.add_column(name, justify="right" if number else "left", no_wrap=number,
                         overflow="fold")  # fmt: skip
    for row in rows:
        drawn.add_row(*(Text(c, style="bold red" if c == "FAIL" else "") for c in row))
    console = Console(file=stream)
    widths = [max(len(r[i]) for r in (columns, *rows)) for i in range(len(columns))]
    if sum(widths) + 3 * len(widths) > console.width:
        drawn.padding = (0, 0)  # gaps of 1 instead of 3, rather than broken words
    console.print(drawn)


def markdown_row(cells: Sequence[str], widths: Sequence[int], right: str) -> str:
    """One row of a Markdown table; `right` as in `table`."""
    parts = (
        c.rjust(w) if r == "r" else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)
    )
    return f"| {' | '.join(parts)} |"


def markdown_rule(widths: Sequence[int], right: str) -> str:
    """The line under the header; a colon marks columns that are flushed right."""
    cells = ["-" * (w - (r == "r")) + ":" * (r == "r") for w, r in zip(widths, right, strict=True)]
    return markdown_row(cells, widths, right)


def size(n: float) -> str:
    """Bytes in binary units: "4.33 GiB", "103.70 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.2f} {unit}"
        n /= 1024
    return f"{n:.2f} TiB"


def count(n: float) -> str:
    """A number of parameters: "134.52 M", "8.03 B"."""
    for unit, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if n >= scale:
            return f"{n / scale:.2f} {unit}"
    return f"{n:.0f}"


def rates(stats: Stats) -> str:
    """The last line of a run; a rate that cannot be known is "n/a"."""
    prompt, decode = (
        "n/a" if r is None else f"{r:.1f} t/s" for r in (stats.prompt_rate, stats.decode_rate)
    )
    return f"[ Prompt: {prompt} | Generation: {decode} ]"
