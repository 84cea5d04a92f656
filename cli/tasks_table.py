"""Tables of `bench tasks`: means by category of one result, and two results compared."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..engine.errors import FileError
from .output import note
from .tables import markdown_row, markdown_rule

CATEGORIES = (
    "coding", "humanities", "math", "qa", "rag", "reasoning", "stem", "writing", "multilingual",
    "summarization", "roleplay",
)  # fmt: skip
ALIKE = ("model_type", "device", "n_predict")  # what makes two results comparable
FIGURES = ("prompt_ts", "gen_ts", "latency_s")
Sample = dict[str, Any]


def groups(samples: Sequence[Sample]) -> Iterator[tuple[str, list[Sample]]]:
    """Samples of each category in the usual order, then all of them."""
    for category in CATEGORIES:
        found = [s for s in samples if s["category"] == category]
        if found:
            yield category, found
    yield "overall", list(samples)


def mean(samples: Sequence[Sample], what: str) -> float | None:
    """Of the samples that have the figure; None if none has."""
    values = [s[what] for s in samples if s[what] is not None]
    return sum(values) / len(values) if values else None


def figure(value: float | None, digits: int = 2) -> str:
    """A number, or n/a."""
    return "n/a" if value is None else f"{value:.{digits}f}"


def summary(samples: Sequence[Sample]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of one run."""
    header = ("category", "samples", "prompt t/s", "generation t/s", "latency s", "accept rate")
    rows: list[tuple[str, ...]] = [
        (name, str(len(found)), figure(mean(found, "prompt_ts")), figure(mean(found, "gen_ts")),
         figure(mean(found, "latency_s"), 3), figure(mean(found, "accept_rate")))
        for name, found in groups(samples)
    ]  # fmt: skip
    return header, rows


def compared(
    before: Sequence[Sample], after: Sequence[Sample]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of two runs; speed-ups are ratios of the means."""
    header = ("category", "prompt before", "after", "speed-up", "generation before", "after",
              "speed-up", "latency speed-up")  # fmt: skip
    others = dict(groups(after))
    rows = []
    for name, found in groups(before):
        cells = [name]
        pairs = {w: (mean(found, w), mean(others.get(name, []), w))
                 for w in FIGURES}  # fmt: skip
        for what in ("prompt_ts", "gen_ts"):
            a, b = pairs[what]
            cells += [figure(a), figure(b), f"{b / a:.2f} x" if a and b else "n/a"]
        a, b = pairs["latency_s"]
        cells.append(f"{a / b:.2f} x" if a and b else "n/a")
        rows.append(tuple(cells))
    return header, rows


def read_result(path: Path) -> dict[str, Any]:
    """A file of -o json. Raises FileError."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        samples: list[Sample] = found["samples"]
        if not samples or any(s["category"] not in CATEGORIES or not speeds(s) for s in samples):
            raise ValueError("no samples, or odd ones")
    except OSError as e:
        raise FileError(f"{path}: {e.strerror}") from e
    except (ValueError, KeyError, TypeError) as e:
        raise FileError(f"{path}: no file of 'bench tasks -o json' ({e})") from e
    return found


def speeds(sample: Sample) -> bool:
    """Whether latency and rates are numbers above 0 (rates may be unknown)."""
    values = [sample["latency_s"]]
    values += [v for n in ("prompt_ts", "gen_ts") if (v := sample[n]) is not None]
    return all(isinstance(v, int | float) and 0 < v < float("inf") for v in values)


def compare(before: dict[str, Any], after: dict[str, Any], anyway: bool, as_json: bool) -> None:
    """Two results by category, and on stderr what differs. FileError for unlike ones."""
    for name in dict.fromkeys((*before, *after)):
        x, y = before.get(name), after.get(name)
        if x == y or name in ("samples", "model"):
            continue
        if name in ALIKE and not anyway:
            refuse(f"{name} {x!r} and {y!r}")
        if isinstance(x, dict) and isinstance(y, dict):
            for part in (p for p in dict.fromkeys((*x, *y)) if x.get(p) != y.get(p)):
                note(f"differs: {part}: {x.get(part)} -> {y.get(part)}")
        else:
            note(f"differs: {name}: {x} -> {y}")
    one, two = (
        [(s["category"], s.get("prompt_tokens")) for s in r["samples"]] for r in (before, after)
    )
    if one != two:
        if not anyway:
            refuse("they have other prompts")
        note("differs: the prompts")
    if as_json:
        found = compared_json(before["samples"], after["samples"])
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        write_table(*compared(before["samples"], after["samples"]))


def refuse(why: str) -> None:
    """Raise FileError."""
    raise FileError(f"the runs are not alike: {why} (--anyway compares them all the same)")


def compared_json(before: Sequence[Sample], after: Sequence[Sample]) -> list[dict[str, Any]]:
    """Means of both by category; null where there is none."""
    others = dict(groups(after))
    return [
        {"category": name} | {w: {"before": mean(found, w), "after": mean(others.get(name, []), w)}
                              for w in FIGURES}
        for name, found in groups(before)
    ]  # fmt: skip


def write_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Markdown on stdout."""
    widths = [max(len(r[i]) for r in (header, *rows)) for i in range(len(header))]
    align = "l" + "r" * (len(header) - 1)
    lines = [markdown_row(header, widths, align), markdown_rule(widths, align)]
    lines += [markdown_row(r, widths, align) for r in rows]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
