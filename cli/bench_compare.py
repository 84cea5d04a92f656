"""`bench compare`: before, after and difference of result files, with what differs in settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..engine.effect import Effect, oddities, unpaired
from ..engine.errors import UsageError
from ..engine.stats import summarize
from .bench_files import Row, differences, labels, matched, name_of, rates, read_rows
from .options import Command, option
from .output import note, warn
from .tables import markdown_row, markdown_rule

EXAMPLES = """\
Files are those of 'bench -o json' or jsonl, or llama-bench's. Differences of means come with a
95 % interval (Welch's test on logarithms of t/s). Samples of one process are more alike than
processes are: for small differences use 'bench ab'.

Examples:
  kompute-llm bench compare before.json after.json
  kompute-llm bench compare before.json after.json again.json -o json
"""


@click.command("bench compare", cls=Command, after_help=lambda: EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="BEFORE.json AFTER.json...")
@option("--anyway", section="Comparison", is_flag=True,
        help="Compare although model or device differ, or a test is in one file only.")
@option("-o", "--output", section="Comparison", type=click.Choice(["md", "json"]), default="md",
        show_default=True, help="A Markdown table, or JSON.")
def compare(files: tuple[str, ...], anyway: bool, output: str) -> int:
    """Compare result files with the first one."""
    if len(files) < 2:
        raise UsageError("bench compare needs two files or more")
    paths = [Path(f).expanduser() for f in files]
    first, *others = [read_rows(p) for p in paths]
    found = []
    for path, rows in zip(paths[1:], others, strict=True):
        pairs = matched(first, rows, anyway)
        found.append(Comparison(paths[0], path, pairs))
    if output == "json":
        sys.stdout.write(json.dumps([c.as_json() for c in found], indent=2) + "\n")
        return 0
    for i, c in enumerate(found):
        if len(found) > 1:  # tables of a pipe must say what they compare
            sys.stdout.write("\n" * (i > 0) + f"{c.a} -> {c.b}\n\n")
        c.show()
    return 0


class Comparison:
    """Two files, test by test."""

    def __init__(self, a: Path, b: Path, pairs: Sequence[tuple[Row, Row]]) -> None:
        self.a, self.b, self.pairs = a, b, pairs
        self.names = labels([x for x, _ in pairs])
        self.effects = [unpaired(rates(x), rates(y)) for x, y in pairs]

    def show(self) -> None:
        """The table on stdout; differences in settings and oddities on stderr."""
        note(f"before: {self.a}\nafter:  {self.b}")
        for text in differences(self.pairs):
            note(f"differs: {text}")
        write_table([
            row(name, x, y, e)
            for name, (x, y), e in zip(self.names, self.pairs, self.effects, strict=True)
        ])  # fmt: skip
        for name, (x, y) in zip(self.names, self.pairs, strict=True):
            for which, side in (("before", x), ("after", y)):
                for text in oddities(rates(side)):
                    warn(f"{name}, {which}: {text}")

    def as_json(self) -> dict[str, Any]:
        """The same as an object."""
        return {
            "before": str(self.a), "after": str(self.b),
            "differences": differences(self.pairs),
            "tests": [
                {
                    "test": name_of(x), "label": name, "model_type": x["model_type"],
                    "before_ts": summarize(rates(x)).mean, "after_ts": summarize(rates(y)).mean,
                    **effect_json(e),
                }
                for name, (x, y), e in zip(self.names, self.pairs, self.effects, strict=True)
            ],
        }  # fmt: skip


def effect_json(e: Effect | None) -> dict[str, Any]:
    """An effect's fields; {} where there is none."""
    if e is None:
        return {"ratio": None, "verdict": "n/a"}
    return {"ratio": e.ratio, "low": e.low, "high": e.high, "verdict": e.verdict,
            "needed": e.needed}  # fmt: skip


HEADER = ("test", "before t/s", "after t/s", "diff", "95 % interval", "verdict")
ALIGN = "lrrrrl"


def row(name: str, x: Row, y: Row, e: Effect | None) -> tuple[str, ...]:
    """One test."""
    a, b = summarize(rates(x)), summarize(rates(y))
    if e is None:
        change = f"{100 * (b.mean / a.mean - 1):+.1f} %"
        tail = (change, "n/a", "n/a: one sample has no spread")
    else:
        tail = (e.percent, e.interval, e.verdict)
    return (name, f"{a.mean:.2f} ± {a.sd:.2f}", f"{b.mean:.2f} ± {b.sd:.2f}", *tail)


def write_table(rows: Sequence[Sequence[str]], header: Sequence[str] = HEADER) -> None:
    """A Markdown table on stdout."""
    widths = [max(len(r[i]) for r in (header, *rows)) for i in range(len(header))]
    lines = [markdown_row(header, widths, ALIGN), markdown_rule(widths, ALIGN)]
    lines += [markdown_row(r, widths, ALIGN) for r in rows]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
