"""`bench --report out.html` and `--plot out.svg`: results as one page, or as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..engine.effect import oddities
from ..engine.errors import FileError
from ..engine.stats import summarize
from . import svg
from .bench_files import SETTINGS, Row, distinctions, labels, name_of, rates

STYLE = """
:root { --ink: #222; --page: #fff; --soft: #777; --rule: #ddd; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ddd; --page: #181a1d; --soft: #999; --rule: #3a3d42; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: .9em; }
th, td { padding: .2rem .5rem; border-bottom: 1px solid var(--rule); text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
p.note { color: var(--soft); }
"""
INK = ("text{font:12px system-ui,sans-serif;fill:var(--ink);stroke:none}"
       ".axis{stroke:var(--soft)}.grid{stroke:var(--rule)}")  # fmt: skip


def write_text(path: Path, text: str, what: str) -> None:
    """Write a file. Raises FileError when that fails."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise FileError(f"{what} {path}: {e.strerror}") from e


def curves(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """(title, picture) of t/s over the prompt's length and over the depth, where there are any."""
    out = []
    named = list(zip(rows, distinctions(rows), strict=True))
    for title, without, across in (
        ("Prompt processing over the length", "n_gen", "n_prompt"),
        ("Prompt processing over the depth", "n_gen", "n_depth"),
        ("Generation over the depth", "n_prompt", "n_depth"),
    ):
        fixed = "n_depth" if across == "n_prompt" else "n_prompt"
        found: dict[str, list[tuple[float, float]]] = {}
        for r, label in ((r, label) for r, label in named if not r[without]):
            other = f"{fixed[2:]} {r[fixed]}" if r[fixed] and r["n_prompt"] else ""
            name = ", ".join(filter(None, (label, other))) or "default"
            found.setdefault(name, []).append((r[across], summarize(rates(r)).median))
        drawn = [(n, p) for n, p in found.items() if len({x for x, _ in p}) > 1]
        if drawn:
            label = "tokens of the prompt" if across == "n_prompt" else "tokens before"
            out.append((title, svg.lines(drawn, label, "t/s")))
    return out


def phase_pictures(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Bars of every profiled test, milliseconds against floors."""
    out = []
    for r, name in zip(rows, labels(rows), strict=True):
        if "profile" not in r:
            continue
        phases: dict[str, dict[str, Any]] = r["profile"]["phases"]
        bars = [(n, p["seconds"] * 1e3, p["floor_s"] * 1e3 if p.get("floor_s") else None)
                for n, p in phases.items()]  # fmt: skip
        bars.append(("host", r["profile"]["host_s"] * 1e3, None))
        out.append((f"{name}: phases", svg.bars(bars, "ms", f"phases of {name}")))
    return out


def table(rows: Sequence[Row]) -> str:
    """All results as an HTML table."""
    varied = [n for n in SETTINGS if len({r.get(n) for r in rows}) > 1]
    head = ("model", "device", *varied, "test", "t/s", "±", "median", "min", "max", "samples")
    lines = ["<tr>" + "".join(f"<th>{h}</th>" for h in head) + "</tr>"]
    for r in rows:
        s = summarize(rates(r))
        cells = [r["model_type"], r.get("gpu_info") or r.get("cpu_info", "")]
        cells += [*(r.get(n, "") for n in varied), name_of(r)]
        cells += [f"{v:.2f}" for v in (s.mean, s.sd, s.median, s.min, s.max)]
        cells.append(len(r["samples_ns"]))
        lines.append("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in cells) + "</tr>")
    return f"<table>{''.join(lines)}</table>"


def page(rows: Sequence[Row]) -> str:
    """The whole report, which needs no other file."""
    facts = [f"{k} {v}" for part in ("environment", "clocks")
             for k, v in rows[0].get(part, {}).items()]  # fmt: skip
    models = ", ".join(dict.fromkeys(str(r["model_type"]) for r in rows))
    parts = [f"<h1>Benchmark of {escape(models)}</h1>"]
    parts.append(f'<p class="note">{escape(rows[0].get("test_time", ""))}; '
                 f"{escape('; '.join(facts))}</p>")  # fmt: skip
    parts.append(table(rows))
    for title, picture in curves(rows):
        parts.append(f"<h2>{escape(title)}</h2>{picture}")
    found = phase_pictures(rows)
    for title, picture in found:
        parts.append(f"<h2>{escape(title)}</h2>{picture}")
    if found:
        parts.append('<p class="note">Dark within a bar: the floor, the least time that bytes, '
                     "operations and dispatches take on this device (bench --roof); in brackets "
                     "floor / time.</p>")  # fmt: skip
    parts.append("<h2>Repetitions</h2>" + repetitions(rows))
    for r, name in zip(rows, labels(rows), strict=True):
        parts += [f'<p class="note">{escape(name)}: {escape(t)}</p>'
                  for t in oddities(rates(r))]  # fmt: skip
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>kompute-llm bench</title><style>{svg.STYLE}{STYLE}{INK}</style></head>\n"
        f"<body>{body}</body></html>\n"
    )


def repetitions(rows: Sequence[Row]) -> str:
    """All samples in percent of their median, oldest at the top of each row."""
    named = zip(labels(rows), map(rates, rows), strict=True)
    return svg.dots(list(named), "samples of every test")


def plot(path: Path, rows: Sequence[Row]) -> None:
    """The first curve there is, else the repetitions; .svg, or .png where matplotlib is."""
    drawn = [picture for _, picture in curves(rows)] or [repetitions(rows)]
    if path.suffix == ".svg":
        write_text(path, svg.alone(drawn[0]), "--plot")
        return
    from .bench_png import draw

    draw(path, rows)
