"""The device memory of one model: weights, caches and the buffers that its plans name.

Host memory stays small: weights and tables go through one staging buffer, and only what the host
exchanges with the device at run time has a host side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..kernels import fill
from .arena import CacheArena, WeightArena
from .device import Device
from .plan import Buf, Plan, Role, Weight
from .recorder import Algorithms
from .rope import RopeSpec, rope_name, rope_table
from .upload import Upload

EXCHANGED = ("step", "tokens", "settings", "out")  # read or written by the host between sequences
ROPE_ROWS = 4096  # positions of the rope table computed and uploaded at a time


class Buffers:
    """Everything on the device that plans use, by operand.

    `places` maps weights to the word offsets of their planes and caches to their start.
    """

    def __init__(
        self, device: Device, algorithms: Algorithms, plans: Iterable[Plan],
        weights: Iterable[Weight],
    ) -> None:
        self._device, self._algorithms = device, algorithms
        self.bufs = _named(plans)
        caches = [b for b in self.bufs.values() if b.role is Role.CACHE]
        self._cache = CacheArena(device, caches)
        self._tensors = {b.name: self._make(b) for b in self.bufs.values() if b not in caches}
        self._weights = WeightArena(device, weights)
        placed = self._cache.places | self._weights.places
        self.places = {name: place.words for name, place in placed.items()}

    def _make(self, b: Buf) -> Any:
        exchanged = b.role in (Role.INPUT, Role.OUTPUT) or b.name in EXCHANGED
        make = self._device.exchange if exchanged else self._device.storage
        return make(b.words, b.name)

    def require(self, plan: Plan) -> None:
        """Make the buffers of a plan that earlier plans did not use. Its caches exist."""
        for name, b in _named([plan]).items():
            if name not in self.bufs:
                self.bufs[name] = b
                self._tensors[name] = self._make(b)

    def load(
        self, ropes: Sequence[RopeSpec], progress: Callable[[int, int], None] | None
    ) -> None:
        """Fill constants and weights; `progress` as in WeightArena.load."""
        upload = Upload(self._device, self._algorithms)
        for index, rope in enumerate(ropes):
            name = rope_name(index)
            if name in self.bufs:
                self._load_rope(upload, name, rope.within(self.bufs[name].rows))
        self._weights.load(upload, progress)

    def _load_rope(self, upload: Upload, name: str, rope: RopeSpec) -> None:
        n_ctx = self.bufs[name].rows
        for start in range(0, n_ctx, ROPE_ROWS):
            rows = rope_table(rope, min(n_ctx, start + ROPE_ROWS), start)
            words = rows.reshape(-1).view(np.uint32)
            upload.words(words, self._tensors[name], start * rows[0].size)

    def starter(self) -> Any:
        """The sequence that begins a generation: settings uploaded, state cleared."""
        seq = self._device.sequence()
        self._device.sync_device(seq, [self._tensors["settings"]])
        for b in self.bufs.values():
            if b.role is Role.STATE and b.name not in EXCHANGED:
                params = {"word": 0, "count": b.words, "value": 0}
                dst = {"dst": self._tensors[b.name]}
                self._algorithms.record(seq, fill.KERNEL, dst, {}, params, 1)
        return seq

    def tensor(self, op: Buf | Weight) -> Any:
        """The Kompute tensor that an operand lies in."""
        if isinstance(op, Weight):
            return self._weights.tensors[self._weights.places[op.name].arena]
        if op.role is Role.CACHE:
            return self._cache.tensors[self._cache.places[op.name].arena]
        return self._tensors[op.name]

    def __getitem__(self, name: str) -> Any:
        """The tensor of a buffer that is no cache."""
        return self._tensors[name]

    def memory(self) -> dict[str, int]:
        """Bytes of weights, KV cache and everything else on the device."""
        scratch = sum(4 * b.words for b in self.bufs.values() if b.role is not Role.CACHE)
        return {"weights": self._weights.bytes, "kv": self._cache.bytes, "scratch": scratch}


def _named(plans: Iterable[Plan]) -> dict[str, Buf]:
    """The buffers of plans by name; of several sizes the largest."""
    out: dict[str, Buf] = {}
    for op in (op for p in plans for d in p.dispatches for op in d.operands.values()):
        if isinstance(op, Buf) and (op.name not in out or out[op.name].words < op.words):
            out[op.name] = op
    return out
