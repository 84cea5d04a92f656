"""`validate` at work: kernels through their own cases, primitives in the shapes of models."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from .interrupt import Interrupt
from .output import StatusLine, note
from .validate_choice import Chosen
from .validate_report import Report, Section, record

if TYPE_CHECKING:
    from ..engine.device import Device
    from ..engine.harness import CaseResult
    from ..engine.primitives import Check, Primitive
    from ..kernels.kernel import Kernel

ALL, SAMPLE, NONE = "all", "sample", "none"
COLUMNS = ("check", "cases", "NMSE", "max rel", "limit", "seconds", "verdict")
RIGHT = "lrrrrrl"
CASES = ("check", "case", "build", "NMSE", "max rel", "limit", "verdict", "note")
CASES_RIGHT = "lllrrrll"


@dataclass
class Group:
    """The results of one kernel or primitive, and the seconds that they took."""

    name: str
    results: list[CaseResult] = field(default_factory=list)
    seconds: float = 0.0

    def cells(self) -> tuple[str, ...]:
        """A line of the summary: the case nearest to its limit stands for all."""
        bad = sum(not r.ok for r in self.results)
        verdict = "FAIL" if bad == len(self.results) else f"{bad} FAIL" if bad else "ok"
        worst = max(self.results, key=ratio)
        return (self.name, str(len(self.results)), *figures(worst), f"{self.seconds:.1f}", verdict)


class Run:
    """Collects results on one open device."""

    def __init__(self, device: Device, seed: int, stop: Interrupt) -> None:
        self.device, self.seed, self.stop = device, seed, stop
        self.groups: list[Group] = []
        self.left_out = 0  # cases that a sample is without
        self.status = StatusLine()

    @property
    def results(self) -> list[CaseResult]:
        """All of them."""
        return [r for group in self.groups for r in group.results]

    def kernels(self, kernels: Sequence[Kernel], shapes: str = ALL) -> list[str]:
        """Every case of each kernel, or those of a few pipelines (SAMPLE); returns the names of
        those that the device cannot run."""
        from ..engine.harness import can_run
        from ..engine.harness_ahead import TOGETHER, cases_ready, results
        from ..engine.harness_sample import Sample

        able = [k for k in kernels if can_run(self.device, k)]
        some = Sample(self.device.limits, self.seed) if shapes == SAMPLE else None
        ready = cases_ready(self.device, able, self.seed, some)
        found = results(ready, 1 if self.device.limits.software else TOGETHER)
        for i, (name, cases) in enumerate(groupby(found, key=lambda r: r[0].kernel.name)):
            with self.group(name) as group:
                for item, result in cases:
                    self.tell(f"kernel {i + 1} of {len(able)}", f"{name}: {item.case.name}")
                    self.add(group, result)
                    if self.stop.pressed:
                        break
            if self.stop.pressed:
                break
        self.left_out += some.left_out if some else 0
        return [k.name for k in kernels if k not in able]

    def primitives(self, chosen: Chosen, shapes: str) -> None:
        """Checks of primitives, all or a SAMPLE of each."""
        from ..engine.harness_primitives import SAMPLE as COUNT
        from ..engine.harness_primitives import Checker, runnable, sample

        todo: list[tuple[Primitive, Check]] = []
        for primitive in chosen.primitives:
            checks = chosen.checks(primitive, runnable(self.device, primitive))
            if shapes == SAMPLE:
                self.left_out += sum(c.results for c in checks)
                checks = sample(checks, primitive, self.seed, COUNT)
                self.left_out -= sum(c.results for c in checks)
            todo += [(primitive, check) for check in checks]
        names = list(dict.fromkeys(primitive.name for primitive, _ in todo))

        def tell(primitive: Primitive, name: str) -> None:
            number = names.index(primitive.name) + 1
            self.tell(f"primitive {number} of {len(names)}", f"{primitive.name}: {name}")

        checker = Checker(self.device, self.seed)
        found = checker.all_results(todo, tell, lambda: self.stop.pressed)
        for name, results in groupby(found, key=lambda item: item[0].name):
            with self.group(name) as group:
                for _, r in results:
                    self.add(group, r)

    @contextmanager
    def group(self, name: str) -> Iterator[Group]:
        """A kernel or primitive at work."""
        start = time.perf_counter()
        self.groups.append(Group(name))
        try:
            yield self.groups[-1]
        finally:
            self.groups[-1].seconds = time.perf_counter() - start

    def tell(self, where: str, what: str) -> None:
        """The line of progress."""
        bad = sum(not r.ok for r in self.results)
        self.status.show(f"{where}{f', {bad} failed' if bad else ''}: {what}")

    def add(self, group: Group, r: CaseResult) -> None:
        """Keep a result; failures are said at once."""
        group.results.append(r)
        if not r.ok:
            self.status.show("")
            note(f"failed: {r.kernel}: {r.case}: {reason(r)}")

    def report(self, report: Report, every: bool) -> None:
        """The tables: a line for each kernel and primitive, then cases: all, or the failed ones."""
        self.status.show("")
        if not self.results:
            return
        bad = [r for r in self.results if not r.ok]
        records = [record(r) for r in self.results]
        every_one = f" of {len(records) + self.left_out}" if self.left_out else ""
        last = f"{len(records)}{every_one} cases, {len(bad)} failed"
        shown = self.results if every else bad
        lines = [g.cells() for g in self.groups if g.results]
        summary = Section("summary", "Kernels and primitives", COLUMNS, lines, RIGHT, (),
                          "" if shown else last)  # fmt: skip
        report.add(summary, len(bad))
        title = "Cases" if every else "Failed cases"
        rows = [row(r) for r in shown]
        cases = Section("cases", title, CASES, rows, CASES_RIGHT, records, last if shown else "")
        report.add(cases, shown=bool(shown))


def ratio(r: CaseResult) -> float:
    """How near to its limit a case came; failures are beyond all others."""
    error = r.max_rel if r.measure == "max rel" else r.nmse
    return float("inf") if not r.ok else error / r.limit if r.limit else 0.0


def figures(r: CaseResult) -> tuple[str, str, str]:
    """Errors and limit as cells."""
    limit = "exact" if r.measure == "exact" else f"{r.limit:.0e} {r.measure}"
    return f"{r.nmse:.1e}", f"{r.max_rel:.1e}", limit


def reason(r: CaseResult) -> str:
    """Why a case failed."""
    error = r.max_rel if r.measure == "max rel" else r.nmse
    return r.note or f"{r.measure} {error:.1e} exceeds {r.limit:.0e}"


def row(r: CaseResult) -> tuple[str, ...]:
    """One case as table cells."""
    return (r.kernel, r.case, r.build, *figures(r), "ok" if r.ok else "FAIL", r.note)
