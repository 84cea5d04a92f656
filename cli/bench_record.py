"""`bench --record reuse,each`: what replaying recorded sequences is worth."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.stats import Summary
from .bench_options import Arm, distinction
from .results import Result
from .tables import markdown_row, markdown_rule

HEADER = ("test", "", "before: each", "after: reuse", "diff")
ALIGN = "llrrr"
LINES = (
    ("t/s", None),
    ("ms per token", "seconds"),
    ("CPU ms per token, calling thread", "thread_seconds"),
    ("CPU ms per token, process", "process_seconds"),
)


def record_tables(results: Sequence[Result], arms: Sequence[Arm]) -> str:
    """Before (recorded for every token), after (replayed) and difference, as Markdown; `arms` are
    all settings that were measured."""
    rows: list[tuple[str, ...]] = []
    for before, after in pairs(results):
        shape = after.test.name.replace("@d", " @ d")
        full = ", ".join(filter(None, (shape, distinction(after.setup.arm, arms))))
        for label, what in LINES:
            a, b = ((r.summary if what is None else r.per_token(what)) for r in (before, after))
            name = full if what is None else ""
            rows.append((name, label, shown(a), shown(b), difference(a, b)))
    widths = [max(len(r[i]) for r in (HEADER, *rows)) for i in range(len(HEADER))]
    lines = [markdown_row(HEADER, widths, ALIGN), markdown_rule(widths, ALIGN)]
    lines += [markdown_row(r, widths, ALIGN) for r in rows]
    return "\n".join([*lines, "the tokens are the same in both forms"])


def pairs(results: Sequence[Result]) -> list[tuple[Result, Result]]:
    """Results of one test in both forms: (each, reuse)."""
    out = []
    for r in results:
        if r.record == "each":
            same = [o for o in results if o.record == "reuse" and o.test == r.test
                    and o.setup is r.setup]  # fmt: skip
            out += [(r, o) for o in same]
    return out


def shown(s: Summary) -> str:
    """Mean and deviation with about four digits."""
    digits = 1 if s.mean >= 1000 else 2 if s.mean >= 10 else 4
    return f"{s.mean:.{digits}f} ± {s.sd:.{digits}f}"


def difference(before: Summary, after: Summary) -> str:
    """Change of the mean in percent, or as a factor where it is large."""
    if not before.mean:
        return "n/a"
    ratio = after.mean / before.mean
    return f"{ratio:.2f} x" if ratio >= 2 else f"{100 * (ratio - 1):+.1f} %"
