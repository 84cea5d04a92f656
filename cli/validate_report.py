"""What `validate` found, as tables, as JSON and as Markdown that can be pasted into an issue."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.errors import FileError, UsageError
from . import environment
from .tables import markdown_row, markdown_rule, table

if TYPE_CHECKING:
    from ..engine.device_info import DeviceInfo
    from ..engine.harness import CaseResult

INTERRUPTED = "interrupted"  # the note of a run that Ctrl-C ended
LIMITS = ("subgroup_size", "shared_bytes", "workgroup_invocations", "storage_range",
          "compute_units", "int_dot", "coopmat", "subgroups")  # fmt: skip


@dataclass(frozen=True)
class Section:
    """One table: what it holds under `key` in JSON is `records`, what people see are the rows."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: str
    records: Sequence[dict[str, Any]] = ()
    last: str = ""  # a line below the table


@dataclass
class Report:
    """Everything of one run."""

    seed: int
    arguments: Sequence[str]
    device: DeviceInfo | None = None
    sections: list[Section] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: int = 0
    when: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))

    def add(self, section: Section, failed: int = 0, shown: bool = True) -> None:
        """Keep a table and show it."""
        self.sections.append(section)
        self.failed += failed
        if shown:
            show(section)

    def facts(self) -> dict[str, str]:
        """Device, driver and versions, the first lines of both files."""
        found = {}
        if self.device:
            found["device"] = f"{self.device.name} ({self.device.driver})"
            limits = self.device.limits
            found["limits"] = ", ".join(f"{n} {getattr(limits, n)}" for n in LIMITS)
        env = environment.report()
        found["kompute-llm"] = f"{env['version']} ({env['commit']})"
        found["versions"] = ", ".join(
            f"{n} {env[n]}" for n in ("python", *environment.PACKAGES)
        )  # fmt: skip
        found |= {"system": env["system"], "processor": f"{env['cpu']}, {env['cores']} cores"}
        if env["variables"]:
            found["variables"] = " ".join(f"{k}={v}" for k, v in env["variables"].items())
        return found | {"command": " ".join(("kompute-llm validate", *self.arguments)),
                        "seed": str(self.seed), "time": self.when}  # fmt: skip

    def as_json(self) -> str:
        """All figures; what is not finite is a text."""
        device = {"name": self.device.name, "driver": self.device.driver,
                  "type": self.device.type,
                  "limits": asdict(self.device.limits)} if self.device else None  # fmt: skip
        found: dict[str, Any] = {
            "environment": environment.report(), "device": device, "seed": self.seed,
            "arguments": list(self.arguments), "time": self.when, "failed": self.failed,
            "notes": self.notes,
        }  # fmt: skip
        found |= {s.key: list(s.records) for s in self.sections if s.records}
        return json.dumps(plain(found), indent=2, allow_nan=False) + "\n"

    def markdown(self) -> str:
        """Facts and tables; ready for an issue."""
        good = "interrupted, none failed" if INTERRUPTED in self.notes else "all passed"
        verdict = f"{self.failed} failed" if self.failed else good
        lines = [f"### kompute-llm validate: {verdict}", ""]
        lines += [f"- {name}: {text}" for name, text in self.facts().items()]
        lines += [f"- note: {text}" for text in self.notes]
        for s in (s for s in self.sections if s.rows):
            lines += ["", f"#### {s.title}", "", *markdown_table(s)]
            lines += ["", s.last] if s.last else []
        return "\n".join(lines) + "\n"


def plain(value: Any) -> Any:
    """The same with numbers that JSON lacks as texts."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def markdown_table(s: Section) -> list[str]:
    """The lines of a table; bars inside of cells are spelt out."""
    rows = [[c.replace("|", "\\|") for c in row] for row in (s.columns, *s.rows)]
    widths = [max(len(r[i]) for r in rows) for i in range(len(s.columns))]
    body = [markdown_row(row, widths, s.right) for row in rows]
    return [body[0], markdown_rule(widths, s.right), *body[1:]]


def show(s: Section) -> None:
    """A table on stdout, and the line below it."""
    if s.rows:
        table(s.columns, s.rows, right=s.right)
    if s.last:
        sys.stdout.write(s.last + "\n")
        sys.stdout.flush()


def record(r: CaseResult) -> dict[str, Any]:
    """One case for JSON."""
    return {
        "check": r.kernel, "case": r.case, "build": r.build, "nmse": r.nmse, "max_rel": r.max_rel,
        "limit": r.limit, "measure": r.measure, "ok": r.ok, "note": r.note,
    }  # fmt: skip


def targets(options: dict[str, Any]) -> dict[str, Path]:
    """Files to write by format. Raises, before anything runs, UsageError for names without a format
    and FileError for files that cannot be written."""
    found = {name: Path(options[name]) for name in ("json", "markdown")
             if options[name] is not None}  # fmt: skip
    if options["output"] is not None:
        path = Path(options["output"])
        kind = {".json": "json", ".md": "markdown"}.get(path.suffix.lower())
        if kind is None:
            raise UsageError(f"-o {path}: the name must end in .md or .json")
        if kind in found:
            raise UsageError(f"-o {path}: a {kind} file is given already")
        found[kind] = path
    for path in found.values():
        if path.is_dir():
            raise FileError(f"{path} is a folder")
        if not path.parent.is_dir():
            raise FileError(f"{path}: the folder {path.parent} does not exist")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise FileError(f"{path} cannot be written")
    return found


def write(report: Report, files: dict[str, Path]) -> None:
    """Write the report; FileError where that fails."""
    for kind, path in files.items():
        text = report.as_json() if kind == "json" else report.markdown()
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as e:
            raise FileError(f"{path} cannot be written: {e.strerror}") from e
