"""Plans as recorded sequences: each recorded once, by a key, and replayed."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from .buffers import Buffers
from .device import Device
from .plan import Plan
from .profile import HOST, Profile
from .recorder import Algorithms, Hazards, Prepared, offsets

Key = tuple[Any, ...]  # what the sequence is for ("prompt", "feed", "decode", "score"), its sizes


class Recordings:
    """Sequences of the plans of one model; while profiling, others, with timestamps."""

    def __init__(
        self, device: Device, algorithms: Algorithms, buffers: Buffers, profile: Profile
    ) -> None:
        self.device, self._algorithms, self._buffers = device, algorithms, buffers
        self._profile = profile
        self.replays = True  # else everything is recorded anew each time
        self._ready: dict[Key, list[Prepared]] = {}
        self._sequences: dict[Key, Any] = {}
        self._timed: dict[Key, list[str]] = {}

    def known(self, key: Key) -> bool:
        """Whether there is a recording."""
        return (*key, self._profile.on) in self._sequences

    def clear(self) -> None:
        """Forget all sequences."""
        self._sequences.clear()

    def prepared(self, plan: Plan, rows: int) -> list[Prepared]:
        """The dispatches of a plan for a batch of up to `rows`, made once."""
        key = plan.name, len(plan.dispatches), rows
        if key not in self._ready:
            hazards = Hazards()
            self._ready[key] = [
                self._algorithms.prepare(
                    d.kernel, {name: self._buffers.tensor(op) for name, op in d.operands.items()},
                    d.operands, offsets(d, self._buffers.places), rows, hazards.admit(d),
                )
                for d in plan.dispatches
            ]  # fmt: skip
        return self._ready[key]

    def record(self, seq: Any, plan: Plan, rows: int) -> list[str]:
        """Record a plan for a batch of up to `rows`; returns the phase of every dispatch."""
        for prepared in self.prepared(plan, rows):
            prepared.record(self.device, seq)
        return [d.phase.value for d in plan.dispatches]

    def sequence(self, key: Key, plan: Plan, rows: int, steps: int = 1) -> Any:
        """The recorded sequence of a plan; while profiling, one with a timestamp per dispatch."""
        key = (*key, self._profile.on)
        if key not in self._sequences or not self.replays:
            inputs = [self._buffers["step"], self._buffers["tokens"]]
            uploads = inputs if key[0] != "decode" else []
            results = self._buffers["all_logits" if key[0] == "score" else "out"]
            stamps = len(plan.dispatches) * steps + 2 if self._profile.on else 0
            seq = self.device.sequence(stamps)
            if uploads:
                self.device.sync_device(seq, uploads)
            phases: list[str] = [HOST] if uploads else []
            for _ in range(steps):
                phases += self.record(seq, plan, rows)
            if key[0] != "feed":
                self.device.sync_local(seq, [results])
            self._sequences[key], self._timed[key] = seq, phases
        return self._sequences[key]

    def eval(self, key: Key, seq: Any) -> None:
        """Run a sequence of `sequence`; while profiling, add up the time of its phases."""
        start = time.perf_counter()
        self.device.eval(seq)
        if not self._profile.on:
            return
        wall = time.perf_counter() - start
        spans: defaultdict[str, float] = defaultdict(float)
        for phase, span in zip(self._timed[(*key, True)], self.device.elapsed(seq), strict=False):
            if phase != HOST:
                spans[phase] += float(span)
        self._profile.took(spans, wall)
