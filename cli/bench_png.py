"""`bench --plot out.png`: t/s over the length of the prompt or the depth, through matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..engine.errors import FileError, UsageError
from ..engine.stats import summarize
from .bench_files import Row, name_of, rates


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Median t/s of every test with the range of its samples. Raises UsageError without
    matplotlib, FileError where the file cannot be written."""
    try:
        import matplotlib
    except ImportError as e:
        raise UsageError(f"--plot {path}: .png needs matplotlib (pip install matplotlib); "
                         ".svg needs nothing") from e  # fmt: skip
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = [(name_of(r), summarize(rates(r))) for r in rows]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    places = range(len(found))
    middle = [s.median for _, s in found]
    around = [[s.median - s.min for _, s in found], [s.max - s.median for _, s in found]]
    axes.errorbar(places, middle, yerr=around, fmt="o-", capsize=3)
    axes.set_xticks(places, [name for name, _ in found], rotation=45, ha="right")
    axes.set_ylabel("t/s: median, least and most")
    axes.set_ylim(bottom=0)
    axes.set_title(", ".join(dict.fromkeys(str(r["model_type"]) for r in rows)))
    axes.grid(alpha=0.3)
    try:
        figure.savefig(path)
    except OSError as e:
        raise FileError(f"--plot {path}: {e.strerror}") from e
    finally:
        plt.close(figure)
