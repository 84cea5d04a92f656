"""Buffers lent to one case after another: a driver of a GPU takes a millisecond or two to allocate
one, map it and free it again, longer than most cases run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .device import Device
from .errors import DeviceError

LEAST = 64  # words
LARGEST = 4 << 20  # words of a buffer with a host side that is kept
KEPT = 2 << 30  # bytes of device memory that wait for the next case, at most
SLACK = 1.5  # a buffer serves for what is not smaller by more than this


class Pool:
    """Buffers of one device. Lending is for any thread, giving back what nothing uses any more."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._exchange: dict[int, list[Any]] = {}  # by words, powers of two
        self._storage: list[Any] = []  # in the order in which they came back
        heap = max((h.size for h in device.heaps() if h.device_local), default=0)
        self._kept = min(KEPT, heap // 8) // 4
        self.dropped = 0  # buffers that were freed: what is bound to them should go as well

    def exchange(self, words: int, name: str) -> Any:
        """A buffer with a host side of `words` or more, contents undefined."""
        size = max(LEAST, 1 << (words - 1).bit_length())
        if size > LARGEST:
            return self._device.exchange(words, name)
        try:
            return self._exchange.setdefault(size, []).pop()
        except IndexError:
            return self._made(self._device.exchange, size, name)

    def storage(self, words: int, name: str) -> Any:
        """A buffer on the device of `words` or more, contents undefined."""
        fits = [t for t in self._storage if words <= len(t) <= words * SLACK]
        if not fits:
            return self._made(self._device.storage, words, name)
        found = min(fits, key=len)
        self._storage = [t for t in self._storage if t is not found]
        return found

    def _made(self, make: Any, words: int, name: str) -> Any:
        """A new buffer; where there is no room, at the cost of those that wait."""
        try:
            return make(words, name)
        except DeviceError:
            if not self._storage:
                raise
            self.clear()
            return make(words, name)

    def give_back(self, exchange: Iterable[Any] = (), storage: Iterable[Any] = ()) -> None:
        """Buffers that are free for others."""
        for tensor in exchange:
            if len(tensor) <= LARGEST:
                self._exchange.setdefault(len(tensor), []).append(tensor)
        self._storage += storage
        while sum(map(len, self._storage)) > self._kept:
            self._storage.pop(0)
            self.dropped += 1

    def clear(self) -> None:
        """Free the large ones."""
        self.dropped += len(self._storage)
        self._storage.clear()
