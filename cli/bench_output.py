"""Results in the formats of llama-bench: Markdown, CSV, JSON, JSON lines, SQL."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .bench_options import MOST_BATCH, Arm
from .environment import environment
from .results import FIELDS, Result, model_type, record
from .tables import count, markdown_row, markdown_rule, size

Write = Callable[[str], None]
EXTRA = ("test", "device", "math", "record", "median_ts", "min_ts", "max_ts")  # more of CSV


class Output(ABC):
    """Writes results one by one as they come; `end` completes the file, also after Ctrl-C."""

    def __init__(self, write: Write) -> None:
        self.write = write
        self.rows = 0

    @abstractmethod
    def row(self, result: Result) -> None:
        """One more result."""

    def add(self, result: Result) -> None:
        """Write a result and count it."""
        self.row(result)
        self.rows += 1

    def end(self) -> None:  # noqa: B027
        """Nothing more comes."""


def cell(value: Any) -> str:
    """A value as llama-bench's CSV and SQL have it: booleans as 0 and 1."""
    return str(int(value)) if isinstance(value, bool) else f"{value}"


class Csv(Output):
    """A header, then a line per result, every field in quotes."""

    def row(self, result: Result) -> None:
        found = record(result)
        names = [*FIELDS, *EXTRA]
        if not self.rows:
            self.write(",".join(names))
        text = io.StringIO()
        csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="").writerow(
            [cell(found[name]) for name in names]
        )
        self.write(text.getvalue())


class Json(Output):
    """One list at the end, with the samples and the versions of everything."""

    def __init__(self, write: Write) -> None:
        super().__init__(write)
        self.found: list[dict[str, Any]] = []

    def row(self, result: Result) -> None:
        self.found.append(record(result) | {"environment": environment()})

    def end(self) -> None:
        if self.found:
            self.write(json.dumps(self.found, indent=2))


class JsonLines(Output):
    """An object per line, at once."""

    def row(self, result: Result) -> None:
        self.write(json.dumps(record(result) | {"environment": environment()}))


class Sql(Output):
    """Statements for sqlite3, into llama-bench's table."""

    def row(self, result: Result) -> None:
        found = record(result)
        if not self.rows:
            columns = ",\n".join(f"  {name} {kind}" for name, kind in FIELDS.items())
            self.write(f"CREATE TABLE IF NOT EXISTS llama_bench (\n{columns}\n);\n")
        values = ", ".join("'" + cell(found[n]).replace("'", "''") + "'" for n in FIELDS)
        self.write(f"INSERT INTO llama_bench ({', '.join(FIELDS)}) VALUES ({values});")


@dataclass(frozen=True)
class Column:
    """Header, width in characters (llama-bench's), alignment ("r" or "l") and content."""

    name: str
    width: int
    align: str
    text: Callable[[Result], str]


class Markdown(Output):
    """llama-bench's table; settings that vary or are unusual get columns."""

    def __init__(self, write: Write, arms: Sequence[Arm], records: Sequence[str] = ()) -> None:
        super().__init__(write)
        self.arms, self.records = arms, records
        self.columns: list[Column] = []

    def row(self, result: Result) -> None:
        if not self.rows:
            self.columns = self.choose(result)
            names, widths = [c.name for c in self.columns], [c.width for c in self.columns]
            align = "".join(c.align for c in self.columns)
            self.write(markdown_row(names, widths, align))
            self.write(markdown_rule(widths, align))
        cells = [c.text(result) for c in self.columns]
        self.write(markdown_row(cells, [c.width for c in self.columns],
                                "".join(c.align for c in self.columns)))  # fmt: skip

    def unusual(self, values: Sequence[Any], default: Any) -> bool:
        """Whether a setting needs a column."""
        return any(v != default for v in values)

    def choose(self, first: Result) -> list[Column]:
        """The columns; the first result tells the backend where it was not chosen."""
        configs = [a.config for a in self.arms]
        mixed = len({c.device for c in configs}) > 1
        out = [
            Column("model", 30, "l", lambda r: model_type(r.setup.model)),
            Column("size", 10, "r", lambda r: size(r.setup.model.spec.weight_bytes)),
            Column("params", 10, "r", lambda r: count(r.setup.model.spec.n_params)),
            Column("backend", 10, "l", lambda r: r.setup.opened.backend),
        ]
        if mixed or not first.setup.on_cpu:  # llama-bench's word for "layers on the GPU"
            out.append(Column("ngl", 3, "r", lambda r: "0" if r.setup.on_cpu else "99"))
        if mixed or first.setup.on_cpu:
            out.append(Column("threads", 7, "r", lambda r: str(r.setup.threads)))
        for name, attribute, width, default in (
            ("n_batch", "batch", 7, MOST_BATCH), ("type_k", "cache_k", 6, "f16"),
            ("type_v", "cache_v", 6, "f16"), ("math", "math", 6, "auto"),
        ):  # fmt: skip
            if self.unusual([getattr(c, attribute) for c in configs], default):
                out.append(Column(
                    name, width, "r", lambda r, a=attribute: str(getattr(r.setup.arm.config, a))  # type: ignore[misc]
                ))  # fmt: skip
        if self.unusual([a.ubatch for a in self.arms], MOST_BATCH):
            out.append(Column("n_ubatch", 8, "r", lambda r: str(r.setup.arm.ubatch)))
        if mixed:
            out.append(Column("dev", 12, "l", lambda r: r.setup.arm.config.device or "auto"))
        if self.unusual(self.records, "reuse"):
            out.append(Column("record", 6, "l", lambda r: r.record))
        out.append(Column("test", 15, "r", lambda r: r.test.name.replace("@d", " @ d")))
        out.append(Column("t/s", 20, "r",
                          lambda r: f"{r.summary.mean:.2f} ± {r.summary.sd:.2f}"))  # fmt: skip
        return out


def make_output(
    kind: str, write: Write, arms: Sequence[Arm], records: Sequence[str] = ()
) -> Output:
    """The output of a format's name."""
    if kind == "md":
        return Markdown(write, arms, records)
    makers: dict[str, Callable[[Write], Output]] = {
        "csv": Csv, "json": Json, "jsonl": JsonLines, "sql": Sql,
    }  # fmt: skip
    return makers[kind](write)
