"""`bench --curve`: t/s against the length of the prompt, or the depth, as bars of text."""

from __future__ import annotations

from collections.abc import Sequence

from .bench_options import Arm, distinction
from .output import columns
from .results import Result


def curve(results: Sequence[Result], arms: Sequence[Arm]) -> str:
    """A block of bars for each series of tests that differ in one number; `arms` are all settings
    that were measured."""
    blocks = []
    series: dict[tuple[str, int], list[Result]] = {}
    for r in results:
        series.setdefault((kind_of(r), id(r.setup)), []).append(r)
    for (kind, _), rows in series.items():
        which = distinction(rows[0].setup.arm, arms)
        if len(rows) > 1:
            blocks.append("\n".join(bars(f"{kind} ({which})" if which else kind, rows)))
    return "\n\n".join(blocks) or "a curve needs several tests of one kind, such as pp1-512*2"


def kind_of(r: Result) -> str:
    """What a series has in common."""
    kind = "pp+tg" if r.test.prompt and r.test.gen else "pp" if r.test.prompt else "tg"
    return kind if r.record == "reuse" else f"{kind}, {r.record}"


def bars(kind: str, rows: Sequence[Result]) -> list[str]:
    """One line per test: name, bar, t/s, and what it gains on the one before."""
    names = [r.test.name for r in rows]
    wide = max(map(len, names))
    best = max(r.summary.median for r in rows)
    room = max(columns() - wide - 26, 10)
    lines = [f"{kind}: median t/s"]
    last = 0.0
    for name, r in zip(names, rows, strict=True):
        s = r.summary.median
        change = f"{100 * (s / last - 1):+7.1f} %" if last else ""
        lines.append(f"{name:>{wide}}  {'█' * max(round(room * s / best), 1):<{room}} "
                     f"{s:10.2f} {change}".rstrip())  # fmt: skip
        last = s
    return lines
