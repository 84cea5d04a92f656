"""`validate --bench`: times of primitives after their check, against the device's bandwidth."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..engine.runner import unheard
from .output import note
from .validate_choice import Chosen
from .validate_report import Report, Section
from .validate_run import Run

if TYPE_CHECKING:
    from ..engine.harness_bench import Timing
    from ..engine.roof_store import Roof

COLUMNS = ("primitive", "case", "device us", "call us", "MB", "GB/s", "% roof", "ms/expert")
RIGHT = "llrrrrrr"


def bench(run: Run, chosen: Chosen, report: Report) -> None:
    """Check, then time: the timed checks of each primitive, or all that --only names."""
    from ..engine.harness_bench import timed
    from ..engine.harness_bound import Loader
    from ..engine.harness_primitives import Checker, runnable
    from ..engine.roof_store import load_roof, roof_file

    device = run.device
    roof = load_roof(roof_file(device.info))
    if roof is None:
        note("note: the device's bandwidth is not known: 'bench --roof' measures it")
    loader, checker, found = Loader(device), Checker(device, run.seed), []
    for i, p in enumerate(chosen.primitives):
        checks = chosen.checks(p, runnable(device, p))
        checks = checks if chosen.patterns else [c for c in checks if c.timed]
        with run.group(p.name) as group:
            for k, check in enumerate(checks):
                if run.stop.pressed:
                    break
                run.tell(f"primitive {i + 1} of {len(chosen.primitives)}",
                         f"{p.name}: {k + 1} of {len(checks)}: {check.name}")  # fmt: skip
                for r in checker.results(p, [check], unheard, lambda: False):
                    run.add(group, r)
                chain = check.chain(run.seed, p.name)
                found.append(timed(device, p.name, check.name, chain, loader))
    run.status.show("")
    rows = [row(t, roof) for t in found]
    last = f"roof: {roof.read / 1e9:.0f} GB/s read, measured {roof.measured}" if roof else ""
    report.add(Section("bench", "Times", COLUMNS, rows, RIGHT, [record(t, roof) for t in found],
                       last))  # fmt: skip


def row(t: Timing, roof: Roof | None) -> tuple[str, ...]:
    """Times as cells."""
    share = f"{100 * t.rate / roof.read:.0f}" if roof else "n/a"
    each = f"{t.per_expert * 1e3:.4f}" if t.per_expert else ""
    micros = (f"{seconds * 1e6:.1f}" for seconds in (t.device, t.call))
    return (t.primitive, t.check, *micros, f"{t.bytes / 1e6:.1f}", f"{t.rate / 1e9:.1f}", share,
            each)  # fmt: skip


def record(t: Timing, roof: Roof | None) -> dict[str, Any]:
    """Times for JSON, in seconds and bytes."""
    return asdict(t) | {
        "bytes_per_second": t.rate, "seconds_per_expert": t.per_expert,
        "of_roof": t.rate / roof.read if roof else None,
    }  # fmt: skip
