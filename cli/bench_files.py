"""Result files of `bench` (or llama-bench): reading, matching tests, what differs in settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..engine.errors import FileError

Row = dict[str, Any]
# What makes two results comparable at all
SAME = ("model_type", "model_size", "model_n_params", "gpu_info", "cpu_info")
TEST = ("n_prompt", "n_gen", "n_depth")
# Settings that may be what is compared; they tell rows of one file apart
SETTINGS = ("n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "flash_attn", "math", "record")
LONGEST = 1e18  # ns: 30 years
# Measured, or of no interest as a difference
QUIET = frozenset((
    "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "median_ts", "min_ts", "max_ts",
    "samples_ns", "samples_ts", "cpu_ms_per_token", "thread_ms_per_token", "profile",
    "build_number", "test", *TEST,
))  # fmt: skip


def read_rows(path: Path) -> list[Row]:
    """The results of a JSON or JSON lines file. Raises FileError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise FileError(f"{path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise FileError(f"{path}: {e}") from e
    try:
        found = json.loads(text)
    except ValueError:
        try:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as e:
            raise FileError(f"{path}: neither JSON nor JSON lines ({e})") from e
    rows = found if isinstance(found, list) else [found]
    for row in rows:
        check(path, row)
    if not rows:
        raise FileError(f"{path}: no results")
    return rows


def check(path: Path, row: Any) -> None:
    """Raise FileError for what is no result with samples."""
    if not isinstance(row, dict):
        raise FileError(f"{path}: a result must be an object, it is {row!r:.60}")
    missing = [name for name in (*TEST, "model_type", "samples_ns") if name not in row]
    if missing:
        raise FileError(f"{path}: a result without {', '.join(missing)}; 'bench -o json' has it")
    odd = next((n for n in (*SAME, *SETTINGS) if isinstance(row.get(n), list | dict)), None)
    if odd or not isinstance(row["model_type"], str):
        odd = odd or "model_type"
        raise FileError(f"{path}: a result with {odd} {row[odd]!r:.60}")
    samples = row["samples_ns"]
    good = isinstance(samples, list) and samples and all(
        isinstance(s, int | float) and 0 < s < LONGEST for s in samples
    )  # fmt: skip
    sizes = [row[n] for n in TEST]
    if not good or any(type(n) is not int or not 0 <= n < LONGEST for n in sizes):
        raise FileError(f"{path}: a result with samples {samples!r:.60} of {sizes!r:.60} tokens "
                        f"({', '.join(TEST)})")  # fmt: skip
    if not tokens(row):
        raise FileError(f"{path}: a result of no tokens")


def tokens(row: Row) -> int:
    """Tokens that were timed."""
    return int(row["n_prompt"] + row["n_gen"])


def rates(row: Row) -> list[float]:
    """Tokens per second of each sample."""
    return [tokens(row) * 1e9 / ns for ns in row["samples_ns"]]


def name_of(row: Row) -> str:
    """The test's name, as llama-bench's table has it."""
    parts = [f"pp{row['n_prompt']}"] * bool(row["n_prompt"])
    parts += [f"tg{row['n_gen']}"] * bool(row["n_gen"])
    return "+".join(parts) + (f" @ d{row['n_depth']}" if row["n_depth"] else "")


def distinctions(rows: Sequence[Row]) -> list[str]:
    """What tells the row of a test from others of it: model, device and settings, as they vary."""
    names = ("model_type", "gpu_info", *SETTINGS)
    varied = [n for n in names if len({key(r, (n,)) for r in rows}) > 1]
    plain = ("model_type", "gpu_info", "record")

    def word(row: Row, name: str) -> str:
        value = str(row.get(name, ""))
        if name == "gpu_info" and not value:
            return "CPU"
        return value if name in plain else f"{name} {value}"

    return [", ".join(word(r, n) for n in varied) for r in rows]


def labels(rows: Sequence[Row]) -> list[str]:
    """A name of each row: its test, and what distinguishes it."""
    found = zip(rows, distinctions(rows), strict=True)
    return [", ".join(filter(None, (name_of(r), words))) for r, words in found]


def key(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    """Values of some fields."""
    return tuple(row.get(n) for n in names)


def matched(a: Sequence[Row], b: Sequence[Row], anyway: bool) -> list[tuple[Row, Row]]:
    """Pairs of results of one test, model and device, in a's order.

    Settings may differ where they are not needed to tell the rows of a file apart. Raises
    FileError for runs that are not alike; with `anyway` only the tests must be.
    """
    alike = TEST if anyway else (*TEST, *SAME)
    for more in (SETTINGS, SAME):
        if any(len({key(r, alike) for r in rows}) < len(rows) for rows in (a, b)):
            alike = (*alike, *more)
    others = {key(r, alike): r for r in b}
    pairs = [(r, others[key(r, alike)]) for r in a if key(r, alike) in others]
    if len(pairs) == len(a) == len(b) or (anyway and pairs):
        return pairs
    raise FileError(
        f"the runs are not alike: {unlike(a, b)} (--anyway compares what they have in common)"
    )


def unlike(a: Sequence[Row], b: Sequence[Row]) -> str:
    """In words, what keeps two files from being compared."""
    for names, what in ((SAME, "model or device"), (TEST, "tests"), (SETTINGS, "settings")):
        x, y = ({key(r, names) for r in rows} for rows in (a, b))
        if x == y:
            continue
        if what == "tests":
            left, right = (", ".join(dict.fromkeys(map(name_of, rows))) for rows in (a, b))
            return f"tests {left} and {right}"
        first, second = sorted(x - y, key=str), sorted(y - x, key=str)
        # where one file has all that the other has, anything of it shows what is new
        one, other = (first or sorted(x, key=str))[0], (second or sorted(y, key=str))[0]
        unequal = [n for n, p, q in zip(names, one, other, strict=True) if p != q]
        values = dict(zip(names, one, strict=True)), dict(zip(names, other, strict=True))
        if first and second:
            found = ", ".join(f"{n} {values[0][n]!r} and {values[1][n]!r}" for n in unequal)
            return f"{what} differ in {found}"
        which, has = ("first", values[0]) if first else ("second", values[1])
        return f"only the {which} has results of {', '.join(f'{n} {has[n]!r}' for n in unequal)}"
    return "they have different numbers of results"


def same_value(name: str, x: Any, y: Any) -> bool:
    """Whether two values of a field are the same; clocks never are, to a few MHz."""
    if name == "clocks" and isinstance(x, int) and isinstance(y, int):
        return abs(x - y) <= 0.05 * max(x, y)
    return bool(x == y)


def differences(pairs: Sequence[tuple[Row, Row]]) -> list[str]:
    """Every option, version or machine that is not the same, each once."""
    out: dict[str, None] = {}
    for a, b in pairs:
        for name in dict.fromkeys((*a, *b)):
            x, y = a.get(name), b.get(name)
            if name in QUIET or x == y:
                continue
            if isinstance(x, dict) and isinstance(y, dict):
                for part in dict.fromkeys((*x, *y)):
                    if part == "commit" and "build_commit" in a:
                        continue  # the same once more
                    if not same_value(name, x.get(part), y.get(part)):
                        out[f"{part}: {x.get(part)} -> {y.get(part)}"] = None
            elif name in a and name in b:
                out[f"{name}: {x} -> {y}"] = None
    return list(out)
