"""What the CPU executor's threads can do at best: bandwidth and rate of float32 multiply-adds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from ..kernels import cpu_roof
from .roof import ROUNDS, Probe, Told
from .roof_store import Roof, cpu_name

SIZES = (64 << 20, 256 << 20)  # bytes of all threads together
SECONDS = 0.05  # of the arithmetic


class CpuMeasurement:
    """Buffers and probes; every thread works on its own part."""

    def __init__(self, threads: int, told: Told) -> None:
        self.threads, self.told = threads, told
        self.source = np.ones(SIZES[-1] // 4, np.float32)
        self.target = np.zeros_like(self.source)
        self.rounds = 1 << 14

    def together(self, work: Callable[[int], object]) -> float:
        """Seconds until every thread has done `work(number)`, from a common start."""
        gate = threading.Barrier(self.threads + 1)

        def member(me: int) -> None:
            gate.wait()
            work(me)

        team = [threading.Thread(target=member, args=(i,)) for i in range(self.threads)]
        for thread in team:
            thread.start()
        gate.wait()
        start = time.perf_counter()
        for thread in team:
            thread.join()
        return time.perf_counter() - start

    def part(self, size: int) -> int:
        """Bytes of one thread."""
        return size // self.threads // cpu_roof.STEP * cpu_roof.STEP

    def read(self, size: int) -> float:
        """Seconds to read `size` bytes."""
        base, part = self.source.ctypes.data, self.part(size)
        return self.together(lambda me: cpu_roof.read(base + me * part, part))

    def copy(self, size: int) -> float:
        """Seconds to copy `size` bytes."""
        a, b, part = self.source.ctypes.data, self.target.ctypes.data, self.part(size)
        return self.together(lambda me: cpu_roof.copy(a + me * part, b + me * part, part))

    def multiply_add(self) -> float:
        """Seconds of the arithmetic."""
        return self.together(lambda me: cpu_roof.multiply_add(self.rounds, me))

    def probes(self) -> list[tuple[Probe, Callable[[], float]]]:
        """What is measured, each with its run."""
        while self.multiply_add() < SECONDS / 2 and self.rounds < 1 << 32:
            self.rounds *= 2
        n = self.threads
        out: list[tuple[Probe, Callable[[], float]]] = [
            (Probe("fma", None, n * self.rounds * cpu_roof.OPS), self.multiply_add)
        ]
        for size in SIZES:
            whole, mib = n * self.part(size), size >> 20
            out.append((Probe(f"read {mib} MiB", None, whole), lambda s=size: self.read(s)))  # type: ignore[misc]
            out.append((Probe(f"copy {mib} MiB", None, 2 * whole), lambda s=size: self.copy(s)))  # type: ignore[misc]
        return out


def measure_cpu(threads: int, told: Told) -> tuple[Roof, list[Probe]]:
    """The roof with that many threads, and every probe."""
    probes = CpuMeasurement(threads, told).probes()
    for _, run in probes:
        run()
    for i in range(ROUNDS):
        for probe, run in probes:
            told(f"{probe.name}: {i + 1}/{ROUNDS}")
            seconds = run()
            probe.best = min(seconds, probe.best or seconds)
    found = [probe for probe, _ in probes]
    rates = {probe.name.split()[0]: probe.rate for probe in found}  # the largest size comes last
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = f"{cpu_name()}, {threads} thread{'s' * (threads > 1)}"
    return Roof(
        name, "Numba", rates["read"], rates["copy"], rates["fma"], 0.0, 0.0, 0.0, now
    ), found  # fmt: skip
