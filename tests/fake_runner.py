"""A Runner that plays a script: for tests of the command line and of generation.

`Script.ids` is what it draws, one id after the other; faults are injected by call number.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kompute_llm.engine.errors import DeviceError
from kompute_llm.engine.runner import Opened, RunnerConfig
from kompute_llm.engine.step import StopReason
from kompute_llm.engine.work import Work


@dataclass
class Script:
    """What the runner does; shared by all runners opened with it."""

    ids: Sequence[int] = ()  # drawn in turn, then again from the start
    bad: Sequence[int] = ()  # non-finite logits of each drawn token
    not_finite_at: int | None = None  # draw number at which no logit is finite
    lose_prefill: int | None = None  # call number (from 0) at which the device is lost
    lose_decode: int | None = None
    prefill_seconds: float = 0.0
    step_seconds: float = 0.0
    batch: int = 4
    chunk: int = 3
    notes: tuple[str, ...] = ()
    calls: list[str] = field(default_factory=list)  # "prefill 4", "decode 3", "close"
    configs: list[RunnerConfig] = field(default_factory=list)
    samplings: list[Any] = field(default_factory=list)
    roof_file: Path = Path("/nonexistent/roof.json")

    def open(
        self, container: Any, spec: Any, config: RunnerConfig, progress: Any, *_: Any
    ) -> Opened:
        """Stands in for engine.runner.open_runner."""
        self.configs.append(config)
        progress(1, 2)
        progress(2, 2)
        return Opened(FakeRunner(self, spec, config.n_ctx), "CPU", self.notes)


class FakeRunner:
    """Implements engine.runner.Runner."""

    describe = "fake (cpu, f32 products, f16 KV)"

    def __init__(self, script: Script, spec: Any, n_ctx: int) -> None:
        self.script, self.spec, self.n_ctx = script, spec, n_ctx
        self.batch, self.chunk = script.batch, script.chunk
        self.prefills = self.decodes = 0
        self.pos = self.drawn = self.limit = 0
        self.end_ids: Collection[int] = ()
        self.new: list[int] = []
        self.reason, self.bad = StopReason.RUNNING, 0

    def begin(self, sampling: Any, end_ids: Collection[int], limit: int) -> None:
        self.script.samplings.append(sampling)
        self.pos = self.drawn = 0
        self.limit, self.end_ids, self.new = limit, end_ids, []
        self.reason, self.bad = StopReason.RUNNING, 0

    def prefill(self, ids: Sequence[int], *, sample: bool) -> None:
        assert 0 < len(ids) <= self.batch
        self.script.calls.append(f"prefill {len(ids)}")
        if self.prefills == self.script.lose_prefill:
            raise DeviceError("device lost (watchdog?): lower --batch")
        self.prefills += 1
        time.sleep(self.script.prefill_seconds)
        self.pos += len(ids)
        assert self.pos <= self.n_ctx
        if sample:
            self._draw()

    def decode(self, steps: int) -> None:
        assert 0 < steps <= self.chunk
        self.script.calls.append(f"decode {steps}")
        if self.decodes == self.script.lose_decode:
            raise DeviceError("device lost (watchdog?): lower --batch")
        self.decodes += 1
        for _ in range(steps):
            if self.reason is not StopReason.RUNNING:
                return
            time.sleep(self.script.step_seconds)
            self.pos += 1
            assert self.pos <= self.n_ctx
            self._draw()

    def _draw(self) -> None:
        s = self.script
        if self.drawn == s.not_finite_at:
            self.reason, self.bad = StopReason.NOT_FINITE, self.spec.n_vocab
            return
        token = s.ids[self.drawn % len(s.ids)]
        self.bad += s.bad[self.drawn] if self.drawn < len(s.bad) else 0
        self.drawn += 1
        self.new.append(token)
        if token in self.end_ids:
            self.reason = StopReason.END_TOKEN
        elif self.pos >= self.limit:
            self.reason = StopReason.LIMIT

    def poll(self) -> tuple[list[int], StopReason, int]:
        new, self.new = self.new, []
        return new, self.reason, self.bad

    def logits(self, ids: Sequence[int], pos: int = 0) -> np.ndarray:
        out = np.zeros((len(ids), self.spec.n_vocab), np.float32)
        out[np.arange(len(ids)), np.asarray(ids)] = 1
        return out

    def profile(self, on: bool) -> None:
        pass

    def phases(self) -> dict[str, float]:
        return {"embed": 0.0, "ffn": 0.0, "host": 0.0}

    def work(self) -> dict[str, Work]:
        return {"embed": Work(1e3, {}, 1), "ffn": Work(1e6, {"fma": 2e6}, 2)}

    @property
    def roof_file(self) -> Path:
        return self.script.roof_file

    def replay(self, on: bool) -> None:
        self.script.calls.append(f"replay {on}")

    def memory(self) -> dict[str, int]:
        return {"weights": 1 << 20, "kv": 4096, "scratch": 64}

    def close(self) -> None:
        self.script.calls.append("close")
