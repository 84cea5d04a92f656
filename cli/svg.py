"""Small charts as SVG text: lines over numbers, bars against floors, samples as dots.

Colours are CSS classes (c0 …, floor, axis, text), so that the page decides about them; `STYLE`
has those for a picture that stands alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from statistics import median

WIDTH, LEFT, RIGHT = 720, 130, 130
LETTER = 6.6  # width of a letter, about
COLOURS = ("#0b6bcb", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#be185d")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}.axis{stroke:#999;fill:none}"
    ".grid{stroke:#ddd;fill:none}.line{fill:none;stroke-width:2}.floor{fill:#000;opacity:.55}"
    + "".join(f".c{i}{{fill:{c};stroke:{c}}}.line.c{i}{{fill:none}}" for i, c in enumerate(COLOURS))
)
Points = Sequence[tuple[float, float]]


def picture(body: str, height: float, title: str) -> str:
    """An SVG element with a title that screen readers find."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{body}</svg>"
    )


def alone(svg: str) -> str:
    """The picture as a file of its own."""
    return svg.replace("<title>", f"<style>{STYLE}</style><title>", 1)


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    """One line of text; `anchor` start, middle or end."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def number(value: float) -> str:
    """About three digits: 12800, 261, 0.52."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def ticks(most: float) -> list[float]:
    """Round numbers from 0 to at least `most`, about five of them."""
    step = 10 ** math.floor(math.log10(most / 4)) if most > 0 else 1.0
    for times in (1, 2, 5, 10):
        if most / (step * times) <= 5:
            step *= times
            break
    return [i * step for i in range(math.ceil(most / step - 1e-9) + 1)]


def lines(series: Sequence[tuple[str, Points]], xlabel: str, ylabel: str) -> str:
    """Lines over x, which is spaced by logarithm where it spans more than a factor of 8."""
    named = series if len(series) > 1 else ()
    height, top, bottom = 300.0 + 18 * len(named), 24.0, 44.0 + 18 * len(named)
    xs = sorted({x for _, points in series for x, _ in points})
    ys = ticks(max(y for _, points in series for _, y in points))
    scale = math.log2 if xs[0] > 0 and xs[-1] > 8 * xs[0] else float
    low, high = scale(xs[0]), scale(xs[-1])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (scale(x) - low) / (high - low or 1)
        return (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            height - bottom - y / ys[-1] * (height - top - bottom),
        )

    out = []
    for y in ys:
        at = place(xs[0], y)[1]
        out.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        out.append(text(LEFT - 8, at + 4, number(y), "end"))
    last = -math.inf
    for x in xs:
        at = place(x, 0)[0]
        if at - last > 40:  # room for a label
            out.append(text(at, height - bottom + 18, number(x), "middle"))
            last = at
    out.append(text((LEFT + WIDTH - RIGHT) / 2, height - bottom + 38, xlabel, "middle"))
    out.append(text(LEFT - 8, 12, ylabel, "end"))
    for i, (name, points) in enumerate(series):
        spots = [place(x, y) for x, y in sorted(points)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)
        kind = f"c{i % len(COLOURS)}"
        dash = f' stroke-dasharray="{4 * (i // len(COLOURS))}"' if i >= len(COLOURS) else ""
        out.append(f'<path class="line {kind}"{dash} d="M{path}"/>')
        out += [f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
                f"<title>{escape(f'{name}: {number(p[0])}: {number(p[1])}')}</title></circle>"
                for (x, y), p in zip(spots, sorted(points), strict=True)]  # fmt: skip
        if named:
            y = height - 18 * (len(named) - i) + 12
            out.append(f'<path class="line {kind}"{dash} d="M{LEFT} {y - 4:.0f}h24"/>')
            out.append(text(LEFT + 32, y, name))
    return picture("".join(out), height, f"{ylabel} over {xlabel}")


def bars(rows: Sequence[tuple[str, float, float | None]], unit: str, title: str) -> str:
    """Horizontal bars (name, value, floor); the floor is a darker bar within, where known."""
    step, top = 26.0, 8.0
    most = max([v for _, v, _ in rows] + [f or 0 for _, _, f in rows]) or 1.0
    room = WIDTH - LEFT - RIGHT
    out = []
    for i, (name, value, floor) in enumerate(rows):
        y = top + i * step
        out.append(text(LEFT - 8, y + 15, name, "end"))
        out.append(f'<rect class="c0" x="{LEFT}" y="{y:.0f}" width="{room * value / most:.1f}" '
                   'height="20"/>')  # fmt: skip
        words = f"{number(value)} {unit}"
        if floor is not None:
            out.append(f'<rect class="floor" x="{LEFT}" y="{y + 5:.0f}" '
                       f'width="{room * floor / most:.1f}" height="10"/>')  # fmt: skip
            words += f" ({100 * floor / value:.0f} %)" if value else ""
        out.append(text(LEFT + room * max(value, floor or 0) / most + 6, y + 15, words))
    return picture("".join(out), top + step * len(rows) + 4, title)


def dots(rows: Sequence[tuple[str, Sequence[float]]], title: str) -> str:
    """Samples of each row in percent of its median, in the order of time from top to bottom."""
    step, top, right = 30.0, 24.0, 40
    left = min(max(LEFT, 16 + LETTER * max(len(name) for name, _ in rows)), WIDTH * 2 / 3)
    parts = []
    for name, samples in rows:
        middle = median(samples)
        parts.append((name, [100 * s / middle - 100 for s in samples]))
    most = max(max(abs(p) for _, ps in parts for p in ps), 1.0)
    centre, half = (left + WIDTH - right) / 2, (WIDTH - left - right) / 2
    end = top + step * len(rows)
    out = [f'<path class="axis" d="M{centre} {top}V{end:.0f}"/>']
    for side in (-1, 1):
        out.append(text(centre + side * half, 14, f"{side * most:+.1f} %", "middle"))
    out.append(text(centre, 14, "median", "middle"))
    for i, (name, offsets) in enumerate(parts):
        y = top + i * step
        out.append(text(left - 8, y + 19, name, "end"))
        for k, p in enumerate(offsets):
            down = 4 + 22 * (k + 0.5) / len(offsets)
            out.append(f'<circle class="c0" cx="{centre + half * p / most:.1f}" '
                       f'cy="{y + down:.1f}" r="3"/>')  # fmt: skip
    return picture("".join(out), end + 6, title)
