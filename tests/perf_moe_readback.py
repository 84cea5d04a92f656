"""Groups of a token's experts: in chains, and with results that Python reads (perf_moe.py)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from perf_bench import Bench, Step

from kompute_llm.engine.plan import Buf
from kompute_llm.kernels import experts_q8_down, experts_q8_swiglu

EXPERTS, FORMAT = 32, "INT4_G64"
WIDTH, INNER = 6144, 2048
GROUPS = 4  # with a result of their own, one after another
CHAIN = 16  # groups of a chain in one submit
ROUNDS, TURNS, EVALS = 9, 16, 200  # of groups in flight; of single groups


class Results:
    """A tensor for each of GROUPS results, whose host sides Python reads."""

    def __init__(self, make: Callable[[int, str], Any], n: int) -> None:
        self.tensors = [make(n, "result") for _ in range(GROUPS)]
        self.views = [tensor.data() for tensor in self.tensors]
        self.array = np.zeros_like(self.views[0])

    def look(self, at: int) -> None:
        """Read the last value of a result in its place."""
        _ = self.views[at][-1]

    def look_all(self, at: int) -> None:
        """Read the last value of each."""
        for view in self.views:
            _ = view[-1]

    def take(self, at: int) -> None:
        """Put a result into an array."""
        self.array[:] = self.views[at]


class Experts:
    """A stack of EXPERTS experts; groups of `used` take all of them in turn."""

    def __init__(self, b: Bench, shrink: int) -> None:
        self.b, self.n, self.f = b, WIDTH // shrink, INNER // shrink
        self.gates = b.weight(2 * EXPERTS * self.f, self.n, FORMAT)
        self.downs = b.weight(EXPERTS * self.n, self.f, FORMAT)
        self.gain, self.x = b.weight(1, self.n, "F32"), b.vector(self.n)
        self.inner = b.vector(EXPERTS * self.f)
        self.y = b.storage(self.n)
        self.nbytes = (self.gates[1].nbytes + self.downs[1].nbytes) / EXPERTS

    def routes(self, used: int) -> list[tuple[Any, Buf]]:
        """Routes of GROUPS groups one after another: neighbours share no expert, if they can."""
        made = []
        for first in range(EXPERTS // used):
            route = np.zeros((1, used, 2), np.float32)
            route[0, :, 0] = np.arange(used) * (EXPERTS // used) + first
            route[0, :, 1] = 1 / used
            made.append((self.b.exchange(route), Buf("route", route.shape)))
        return [made[i % len(made)] for i in range(GROUPS)]

    def gate(self, route: tuple[Any, Buf]) -> Step:
        """Gates and ups of a group."""
        params = {"cols": self.n, "rows": self.f, "eps": 1e-5, "experts": EXPERTS, "first": 0}
        ops = {"w": self.gates, "xq": self.x["q"], "xs": self.x["s"], "ssq": self.x["ssq"]}
        ops |= {"route": route, "yq": self.inner["q"], "ys": self.inner["s"]}
        return lambda seq: self.b.add(seq, experts_q8_swiglu.KERNEL, params, **ops)

    def down(self, route: tuple[Any, Buf], y: Any) -> Step:
        """Downs of a group into the tensor y, and the next input."""
        params = {"cols": self.f, "rows": self.n, "experts": EXPERTS, "first": 0}
        ops = {"w": self.downs, "xq": self.inner["q"], "xs": self.inner["s"], "route": route}
        ops |= {"g": self.gain, "y": (y, Buf("y", (1, self.n)))}
        ops |= {"yq": self.x["q"], "ys": self.x["s"], "ssq": self.x["ssq"]}
        return lambda seq: self.b.add(seq, experts_q8_down.KERNEL, params, **ops)

    def groups(self, used: int, results: Sequence[Any]) -> list[Step]:
        """GROUPS groups with a result each."""

        def group(route: tuple[Any, Buf], y: Any) -> Step:
            def record(seq: Any) -> None:
                self.gate(route)(seq)
                self.down(route, y)(seq)

            return record

        return [group(*each) for each in zip(self.routes(used), results, strict=True)]


def alone(b: Bench, sequences: Sequence[Any], see: Callable[[int], None]) -> list[float]:
    """Microseconds of evals in turn, each before the next, with a look at the result; sorted."""
    times = []
    b.warm(sequences[0])
    for i in range(EVALS):
        start = time.perf_counter()
        b.device.eval(sequences[i % len(sequences)])
        see(i % len(sequences))
        times.append((time.perf_counter() - start) * 1e6)
    return sorted(times)


def in_flight(b: Bench, groups: Sequence[Any], see: Callable[[int], None]) -> list[float]:
    """Microseconds of a group of which each result is read, while all others are on their way."""
    times = []
    b.warm(groups[0])
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for i in range(TURNS * len(groups)):
            at = i % len(groups)
            if i >= len(groups):
                b.device.finish([groups[at]])
                see(at)
            b.device.start(groups[at])
        b.device.finish(groups)
        times.append((time.perf_counter() - start) * 1e6 / (TURNS * len(groups)))
    return sorted(times)


def readback(e: Experts, used: int) -> None:
    """Lines of groups whose results Python reads."""
    b = e.b
    host, side = Results(b.device.host, e.n), Results(b.device.exchange, e.n)
    steps = e.groups(used, host.tensors)
    direct, together = [b.chain([step], 1) for step in steps], b.chain(steps, 1)
    copied = [b.chain([step], 1) for step in e.groups(used, side.tensors)]
    for seq, y in zip(copied, side.tensors, strict=True):
        b.device.sync_local(seq, [y])
    for what, times, count in (
        ("one a submit, result in host memory", alone(b, direct, host.look), 1),
        ("the same, and put into an array", alone(b, direct, host.take), 1),
        ("one a submit, result copied to a host side", alone(b, copied, side.look), 1),
        ("host memory, the next submitted before", in_flight(b, direct, host.look), 1),
        (f"{GROUPS} a submit, results in host memory", alone(b, [together], host.look_all), GROUPS),
    ):
        least, middle = times[0] / count / used, statistics.median(times) / count / used
        b.say(f"  {what}", middle, e.nbytes, "expert", least)


def experts(b: Bench, shrink: int) -> None:
    """Groups of 8 and of all experts."""
    e = Experts(b, shrink)
    for used in (8, EXPERTS):
        name = f"experts {e.n} → {e.f} → {e.n}, {used} of {EXPERTS}"
        chain = b.chain(e.groups(used, [e.y] * GROUPS), CHAIN // GROUPS)
        b.say(name, b.best(chain) / CHAIN / used, e.nbytes, "expert")
        readback(e, used)
