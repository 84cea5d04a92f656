"""Where time went, phase by phase, and what had to be done in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from .plan import Plan
from .work import Work, plan_work

HOST = "host"  # wall-clock time that no phase has


@dataclass
class Profile:
    """Seconds and work per `Phase.value` since `start(True)`; collects nothing while not `on`."""

    on: bool = False
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _log: list[tuple[Plan, int, int, int]] = field(default_factory=list)  # as `did` was told

    def start(self, on: bool) -> None:
        """Start anew, or stop and keep what was measured."""
        self.on = on
        if on:
            self.seconds.clear()
            self._log.clear()

    def took(self, spans: Mapping[str, float], wall: float) -> None:
        """Take note of one submit: seconds per phase, and of all of it by the clock."""
        for phase, seconds in spans.items():
            self.seconds[phase] += seconds
        self.seconds[HOST] += max(wall - sum(spans.values()), 0.0)

    def did(self, plan: Plan, n: int, pos: int, steps: int = 1) -> None:
        """Take note of `steps` runs of a plan for n tokens each, the first token at `pos`."""
        if not self.on:
            return
        if self._log:
            last, m, start, before = self._log[-1]
            if last is plan and m == n and start + n * before == pos:
                self._log[-1] = plan, n, start, before + steps
                return
        self._log.append((plan, n, pos, steps))

    def work(self) -> dict[str, Work]:
        """Work per phase. It grows evenly with the position: the middle step stands for all."""
        out: dict[str, Work] = {}
        for plan, n, pos, steps in self._log:
            for phase, work in plan_work(plan, n, pos + n * (steps - 1) // 2).items():
                out.setdefault(phase, Work()).add(work, steps)
        return out
