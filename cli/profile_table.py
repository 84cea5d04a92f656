"""`--profile`: time of each phase, against what the device could do at best."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from .tables import table

if TYPE_CHECKING:
    from ..engine.roof_store import Roof
    from ..engine.runner import Runner
    from ..engine.work import Work

ABOVE = 1.1  # times the roof: more than noise
HINT = "'kompute-llm bench --roof' measures what the device can do; then each phase gets its floor"


@dataclass(frozen=True)
class Phases:
    """What one profiled run gave: seconds by the clock, seconds and work per phase, the roof."""

    wall: float
    seconds: Mapping[str, float]
    work: Mapping[str, Work]
    roof: Roof | None

    @classmethod
    def of(cls, runner: Runner, wall: float) -> Phases:
        """What a runner measured since `profile(True)`."""
        from ..engine.roof_store import load_roof

        return cls(wall, runner.phases(), runner.work(), load_roof(runner.roof_file))

    @property
    def device(self) -> dict[str, float]:
        """Seconds per phase, without the host's."""
        return {name: s for name, s in self.seconds.items() if name != "host"}

    @property
    def host(self) -> float:
        """What the phases leave of the wall clock: recording, submits, waiting."""
        return max(self.wall - sum(self.device.values()), 0.0)

    def floor(self, name: str) -> float | None:
        """Least seconds of a phase; None without a roof."""
        work = self.work.get(name)
        return self.roof.floor(work) if self.roof and work else None

    def lost(self) -> dict[str, float]:
        """Seconds of each phase above its floor; empty without a roof."""
        floors = {name: self.floor(name) for name in self.device}
        return {n: max(self.seconds[n] - f, 0.0) for n, f in floors.items() if f is not None}

    def as_json(self) -> dict[str, Any]:
        """Everything, per phase."""
        phases: dict[str, dict[str, float | None]] = {}
        for name, seconds in self.device.items():
            phases[name] = {"seconds": seconds}
            if work := self.work.get(name):
                phases[name] |= {
                    "bytes": work.bytes, "ops": work.all_ops, "dispatches": work.dispatches,
                    "floor_s": self.floor(name),
                }  # fmt: skip
        return {"wall_s": self.wall, "host_s": self.host, "phases": phases}


def phase_table(found: Phases, stream: TextIO | None = None) -> None:
    """The table on `stream` (stderr), and the line that says where most time is lost."""
    stream = stream or sys.stderr
    unit, scale = flop_unit(found)
    rows = [_row(found, name, scale) for name in found.device]
    rows.append(("host", f"{found.host * 1e3:.2f}", _share(found.host, found.wall), *[""] * 4))
    rows.append(_total(found, scale))
    columns, right = ["phase", "ms", "%", "GB/s", unit, "floor ms", "% of roof"], "lrrrrrr"
    if not found.roof:
        columns, right, rows = columns[:5], right[:5], [r[:5] for r in rows]
    table(columns, rows, right=right, stream=stream)
    stream.write(verdict(found) + "\n")
    stream.flush()


def flop_unit(found: Phases) -> tuple[str, float]:
    """TFLOP/s, or GFLOP/s where nothing reaches one TFLOP/s."""
    rates = [w.all_ops / found.seconds.get(n, 0.0) for n, w in found.work.items()
             if found.seconds.get(n, 0.0) > 0]  # fmt: skip
    return ("TFLOP/s", 1e12) if max(rates, default=0.0) >= 1e12 else ("GFLOP/s", 1e9)


def _row(found: Phases, name: str, scale: float) -> tuple[str, ...]:
    return _cells(name, found, found.seconds[name], found.work.get(name), found.floor(name), scale)


def _total(found: Phases, scale: float) -> tuple[str, ...]:
    """Sums; the rates are those of the wall clock."""
    from ..engine.work import Work

    work = Work()
    for each in found.work.values():
        work.add(each)
    floors = [f for f in map(found.floor, found.device) if f is not None]
    return _cells("total", found, found.wall, work, sum(floors) if floors else None, scale)


def _cells(
    name: str, found: Phases, seconds: float, work: Work | None, floor: float | None, scale: float
) -> tuple[str, ...]:
    """A row; what is not known, or nothing, is an empty cell."""
    known = work is not None and seconds > 0
    bytes_, ops = (work.bytes, work.all_ops) if work else (0.0, 0.0)
    return (
        name,
        f"{seconds * 1e3:.2f}",
        _share(seconds, found.wall),
        f"{bytes_ / seconds / 1e9:.1f}" if known and bytes_ else "",
        f"{ops / seconds / scale:.2f}" if known and ops else "",
        f"{floor * 1e3:.2f}" if floor is not None else "",
        _percent(floor / seconds) if floor is not None and seconds > 0 else "",
    )


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole if whole else 0:.1f}"


def _percent(part: float) -> str:
    """Above 100 where data came from a cache; far above, the clock was too coarse."""
    return f"{100 * part:.0f}" if part < 10 else "> 999"


def verdict(found: Phases) -> str:
    """Which phase loses most time against its floor, or how to find out."""
    lost = found.lost()
    if not lost:
        return HINT
    worst = max(lost, key=lambda name: lost[name])
    if found.host > lost[worst]:
        return (f"most is lost on the host: {found.host * 1e3:.2f} of {found.wall * 1e3:.2f} ms "
                "pass outside of the phases")  # fmt: skip
    floor = found.floor(worst) or 0.0
    if not lost[worst]:
        return "no phase is above its floor: the weights fit into a cache, or the roof is old"
    return (
        f"{worst} loses most: {lost[worst] * 1e3:.2f} of its {found.seconds[worst] * 1e3:.2f} ms "
        f"are above its floor of {floor * 1e3:.2f} ms{_faster(found)}"
    )


def _faster(found: Phases) -> str:
    """A remark where phases beat the roof by more than noise."""
    if any((found.floor(n) or 0.0) > ABOVE * found.seconds[n] > 0 for n in found.device):
        return ("; above 100 % data came from a cache, or the roof was measured on a busy machine "
                "('bench --roof' measures it anew)")  # fmt: skip
    return ""
