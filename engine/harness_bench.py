"""Times of primitives: on the device alone, by its own stamps, and per call with the results read.

Weights lie in several copies that take turns, so that no cache keeps them from one run to the
next: the memory is what is measured, as in a model whose layers follow one another.
"""

from __future__ import annotations

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
ROUNDS, CALLS = 9, 15
SECONDS = 2.0  # a check is not timed for much longer


@dataclass(frozen=True)
class Timing:
    """Seconds of a chain: `device` without and `call` with submit and readback; `bytes` moved.

    `device` is None where the device has no stamps.
    """

    primitive: str
    check: str
    build: str
    device: float | None
    call: float
    bytes: int
    experts: int
    copies: int

    @property
    def rate(self) -> float:
        """Bytes per second, of the device's time if known."""
        return self.bytes / (self.device or self.call)

    @property
    def per_expert(self) -> float | None:
        """Seconds per expert."""
        return (self.device or self.call) / self.experts if self.experts else None


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
    """Median times over rounds, the first of which is left out."""
    bound = Bound(device, chain, loader, copies_of(device, chain))
    bound.run()
    alone = _alone(bound) if device.info.timestamp_bits else None
    return Timing(primitive, name, bound.builds, alone, _calls(bound), chain.bytes, chain.experts,
                  len(bound.tensors))  # fmt: skip


def _alone(bound: Bound) -> float:
    """Median over copies and rounds of the device's time for all dispatches of a chain."""
    links, device = len(bound.chain.links), bound.device
    seq = device.sequence(links * len(bound.prepared))
    for copy in bound.prepared:
        for prepared in copy:
            prepared.record(device, seq)
    found: list[float] = []
    end = time.perf_counter() + SECONDS
    for i in range(ROUNDS + 1):
        device.eval(seq)
        spans = device.elapsed(seq).reshape(-1, links).sum(axis=1)
        if i:
            found += spans.tolist()
        if i and time.perf_counter() > end:
            break
    return statistics.median(found)


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
        start = time.perf_counter()
        device.eval(sequences[i % len(sequences)])
        found.append(time.perf_counter() - start)
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
