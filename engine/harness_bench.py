"""Times of primitives: on the device alone, and per call with the results read.

A chain is recorded many times in a row, weights in several copies that take turns, so that no
cache keeps them from one run to the next: the memory is what is measured, as in a model whose
layers follow one another. What a run takes on the device is the difference between a sequence and
one twice as long, divided by its runs: submitting and waiting cancel out, and no stamp lies between
dispatches, where each would cost a microsecond or two.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

from .blocks import Matrix
from .device import Device
from .harness_bound import SMALL, Bound, Loader
from .harness_chain import Chain

CACHE, SOFT_CACHE = 256 << 20, 32 << 20  # bytes of weights that no cache holds
MOST = 32  # copies
WARM = 0.2  # seconds of the same work beforehand: clocks fall while references are computed
SPAN = 4e-3  # seconds of work in a sequence, beside which jitter of the host's clock is small
DISPATCHES = 1024  # in a sequence, at most
ROUNDS, CALLS = 9, 15
SECONDS = 2.0  # a check is not timed for much longer


@dataclass(frozen=True)
class Timing:
    """Seconds of a chain: `device` without and `call` with submit and readback; `bytes` moved."""

    primitive: str
    check: str
    build: str
    device: float
    call: float
    bytes: int
    experts: int
    copies: int

    @property
    def rate(self) -> float:
        """Bytes per second, of the device's time."""
        return self.bytes / self.device

    @property
    def per_expert(self) -> float | None:
        """Seconds per expert."""
        return self.device / self.experts if self.experts else None


def copies_of(device: Device, chain: Chain) -> int:
    """So many sets of weights that a cache is passed by, as far as memory goes."""
    size = sum(v.nbytes for v in chain.operands.values()
               if isinstance(v, Matrix) and v.nbytes > SMALL)  # fmt: skip
    if not size:
        return 1
    wanted = -(-(SOFT_CACHE if device.limits.software else CACHE) // size) + 1
    free = max((h.free for h in device.heaps() if h.device_local), default=0)
    if device.limits.software:
        free = max(h.size for h in device.heaps())
    return max(1, min(wanted, MOST, int(free * 0.5) // size))


def timed(device: Device, primitive: str, name: str, chain: Chain, loader: Loader) -> Timing:
    """Median times over rounds, on a device that is warm."""
    bound = Bound(device, chain, loader, copies_of(device, chain))
    bound.run()
    found = Timing(primitive, name, bound.builds, _alone(bound), _calls(bound), chain.bytes,
                   chain.experts, len(bound.tensors))  # fmt: skip
    bound.free()
    return found


def _alone(bound: Bound) -> float:
    """The device's time for one run of a chain, by sequences of some runs and of twice as many."""
    device, copies = bound.device, len(bound.prepared)
    once = _sequence(bound, copies)
    start = time.perf_counter()
    device.eval(once)  # the first eval of buffers that are new takes longer
    while (now := time.perf_counter()) < start + WARM:
        device.eval(once)
    start = now
    device.eval(once)
    passes = math.ceil(SPAN / (time.perf_counter() - start))
    passes = max(1, min(passes, DISPATCHES // (copies * len(bound.chain.links))))
    pair = [_sequence(bound, n * passes * copies) for n in (1, 2)]
    found: list[float] = []
    end = time.perf_counter() + SECONDS
    for i in range(ROUNDS + 1):
        one, two = (_seconds(device, seq) for seq in pair)
        if i:  # the first round follows the recording
            found.append((two - one) / (passes * copies))
        if i and time.perf_counter() > end:
            break
    return max(statistics.median(found), 1e-9)


def _sequence(bound: Bound, runs: int) -> Any:
    """A sequence of that many runs of the chain, which take its copies in turn."""
    seq = bound.device.sequence()
    for i in range(runs):
        for prepared in bound.prepared[i % len(bound.prepared)]:
            prepared.record(bound.device, seq)
    return seq


def _seconds(device: Device, seq: Any) -> float:
    """One eval by the host's clock."""
    start = time.perf_counter()
    device.eval(seq)
    return time.perf_counter() - start


def _calls(bound: Bound) -> float:
    """Median time of a submit that sends the inputs, computes and brings the results back."""
    device, sequences = bound.device, []
    inputs = [bound.tensors[0][name] for name in _inputs(bound.chain)]
    outputs = [bound.tensors[0][o.name] for o in bound.chain.outputs]
    for copy in bound.prepared:
        seq: Any = device.sequence()
        device.sync_device(seq, inputs)
        for prepared in copy:
            prepared.record(device, seq)
        device.sync_local(seq, outputs)
        sequences.append(seq)
    for seq in sequences:
        device.eval(seq)
    found, end = [], time.perf_counter() + SECONDS
    for i in range(max(CALLS, len(sequences))):
        found.append(_seconds(device, sequences[i % len(sequences)]))
        if time.perf_counter() > end:
            break
    return statistics.median(found)


def _inputs(chain: Chain) -> list[str]:
    """What a caller would send: activations and step words, no weights, caches or results."""
    poisoned = chain.poisoned
    return [
        name for name, v in chain.operands.items()
        if not isinstance(v, Matrix) and name not in poisoned and name not in ("k", "v", "rope")
    ]  # fmt: skip
