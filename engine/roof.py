"""What a Vulkan device can do at best: bandwidth, rates of its arithmetic, cost of a dispatch.

Each probe (kernels/roof_*.py) is one recorded sequence. All are warmed up, then run in turn for
some rounds, so that a change of clocks meets all of them alike; the best round counts. Times
come from the device's own stamps where it has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..kernels import fill, roof_coop, roof_copy, roof_dot, roof_fma, roof_read
from ..kernels.kernel import Kernel
from .device import Device
from .harness import can_run
from .layout import binding_limit
from .plan import Buf
from .recorder import Algorithms
from .roof_store import Roof

ROUNDS = 7
LONG = 0.01  # seconds that a probe of arithmetic should take; software devices have no more
SIZES = (64 << 20, 256 << 20, 1 << 30)  # bytes; caches of GPUs end below 256 MiB
SOFT_SIZES = (32 << 20, 64 << 20, 128 << 20)
LAUNCHES = 256  # the shorter of two chains of dispatches

Told = Callable[[str], None]


@dataclass
class Probe:
    """A sequence and what one run of it does: `amount` bytes, operations or dispatches."""

    name: str
    seq: Any
    amount: float
    best: float = 0.0  # seconds

    @property
    def rate(self) -> float:
        """Amount per second."""
        return self.amount / self.best if self.best else 0.0


class Measurement:
    """Buffers, algorithms and probes of one device."""

    def __init__(self, device: Device, told: Told) -> None:
        self.device, self.told = device, told
        self.algorithms = Algorithms(device)
        self.units = device.limits.units
        room = min(binding_limit(device), max((h.free for h in device.heaps()), default=0) // 4)
        sizes = SOFT_SIZES if device.limits.software else SIZES
        self.sizes = [s for s in sizes if s <= room] or [max(1 << 20, room & ~0xFFFFF)]
        words = self.sizes[-1] // 4
        self.x, self.y = (device.storage(words, f"roof {n}") for n in "xy")
        self.small = device.storage(1 << 22, "roof results")
        self.fill(self.x, words)  # untouched pages of software devices are all the same one

    def probe(
        self, kernel: Kernel, params: dict[str, int | float], amount: float, name: str, **ops: Any
    ) -> Probe:
        """One dispatch, recorded."""
        shapes = {n: Buf(n, (len(t),), "U32") for n, t in ops.items()}
        stamps = 1 if self.device.info.timestamp_bits else 0
        seq = self.device.sequence(stamps)
        self.algorithms.record(seq, kernel, ops, shapes, params, 1)
        return Probe(name, seq, amount)

    def fill(self, dst: Any, words: int) -> None:
        """Write to all of a buffer."""
        seq = self.device.sequence()
        params: dict[str, int | float] = {"word": 0, "count": words, "value": 0x9E3779B9}
        self.algorithms.record(seq, fill.KERNEL, {"dst": dst}, {}, params, 1)
        self.device.eval(seq)

    def run(self, probe: Probe) -> float:
        """Seconds of one run."""
        start = time.perf_counter()
        self.device.eval(probe.seq)
        wall = time.perf_counter() - start
        if probe.seq.timestamps:
            return float(self.device.elapsed(probe.seq).sum()) or wall
        return wall

    def memory(self) -> Iterator[Probe]:
        """Read and copy of every size, by few invocations that take much and by many."""
        for size in self.sizes:
            count = size // 16
            mib = size >> 20
            for threads in {min(self.units * 2048, count // 8), count // 16}:
                params: dict[str, int | float] = {"count": count, "threads": threads}
                yield self.probe(roof_read.KERNEL, params, size + 4 * threads, f"read {mib} MiB",
                                 x=self.x, y=self.y)  # fmt: skip
                yield self.probe(roof_copy.KERNEL, params, 2 * size, f"copy {mib} MiB",
                                 x=self.x, y=self.y)  # fmt: skip

    def arithmetic(self) -> Iterator[Probe]:
        """Rates, each with as many rounds as take long enough."""
        threads = self.units * (64 if self.device.limits.software else 2048)

        def fma(rounds: int) -> Probe:
            params = {"threads": threads, "rounds": rounds, "factor": 0.5, "term": 1.0}
            return self.probe(roof_fma.KERNEL, params, threads * rounds * roof_fma.OPS, "fma",
                              y=self.small)  # fmt: skip

        def dot(rounds: int) -> Probe:
            params: dict[str, int | float] = {
                "threads": threads, "rounds": rounds, "factor": 0x0102FE80,
            }  # fmt: skip
            return self.probe(roof_dot.KERNEL, params, threads * rounds * roof_dot.OPS, "dot",
                              y=self.small)  # fmt: skip

        def matrix(rounds: int) -> Probe:
            m, n, k = self.device.limits.coopmat_shape
            groups = self.units * 2048 // self.device.limits.subgroup_size
            count = groups * roof_coop.TILES * m * n
            params = {"count": count, "depth": rounds * k, "left": 1.0, "right": 2.0**-12}
            results = self.device.storage(count, "roof matrices")
            return self.probe(roof_coop.KERNEL, params, 2.0 * count * rounds * k, "matrix",
                              y=results)  # fmt: skip

        yield self.long_enough(fma)
        if can_run(self.device, roof_dot.KERNEL):
            yield self.long_enough(dot)
        if can_run(self.device, roof_coop.KERNEL):
            yield self.long_enough(matrix)

    def long_enough(self, make: Callable[[int], Probe]) -> Probe:
        """A probe with so many rounds that it takes LONG."""
        rounds = 4
        while True:
            probe = make(rounds)
            self.run(probe)
            seconds = self.run(probe)
            if seconds >= LONG / 2 or rounds >= 1 << 20:
                return probe
            rounds *= max(2, min(64, int(LONG / max(seconds, 1e-7))))

    def chain(self, length: int) -> Probe:
        """Dispatches that wait for each other, without stamps in between."""
        seq = self.device.sequence()
        params: dict[str, int | float] = {"word": 0, "count": 1, "value": 0}
        for _ in range(length):
            self.algorithms.record(seq, fill.KERNEL, {"dst": self.small}, {}, params, 1)
        return Probe(f"{length} dispatches", seq, length)

    def measure(self) -> list[Probe]:
        """All probes with their best times."""
        probes = [*self.memory(), *self.arithmetic(), self.chain(LAUNCHES),
                  self.chain(2 * LAUNCHES)]  # fmt: skip
        for probe in probes:  # pages, clocks and pipelines
            self.told(f"{probe.name}: warm-up")
            self.run(probe)
            self.run(probe)
        for i in range(ROUNDS):
            for probe in probes:
                self.told(f"{probe.name}: {i + 1}/{ROUNDS}")
                seconds = self.run(probe)
                probe.best = min(seconds, probe.best or seconds)
        return probes


def measure(device: Device, told: Told) -> tuple[Roof, list[Probe]]:
    """The roof of an open device and every probe; bandwidth is that of the largest buffer."""
    probes = Measurement(device, told).measure()
    largest = [p for p in probes if p.name.endswith(" MiB")][-1].name.split()[1]

    def best(name: str) -> float:
        return max((p.rate for p in probes if p.name.startswith(name)), default=0.0)

    short, long = probes[-2:]
    launch = max(long.best - short.best, 0.0) / (long.amount - short.amount)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Roof(
        device.info.name, device.info.driver, best(f"read {largest}"), best(f"copy {largest}"),
        best("fma"), best("dot"), best("matrix"), launch, now,
    ), probes  # fmt: skip
