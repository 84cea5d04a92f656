"""Which range of which arena a weight or a cache gets.

A weight's planes lie one after another (engine/blocks.py); a cache is a range of words. Arenas are
as large as one binding may be, so a model needs few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .device import Device
from .errors import DeviceError
from .plan import Weight

ARENA_BYTES = 1 << 31
ALIGN_WORDS = 64  # 256 bytes, the largest minStorageBufferOffsetAlignment; also 16-byte vectors


@dataclass(frozen=True)
class Place:
    """A range of an arena: word offsets of the planes (weights) or of the start (caches)."""

    arena: int
    words: tuple[int, ...]


def weight_words(w: Weight) -> tuple[int, ...]:
    """Words of each plane of a weight."""
    return w.fmt.plane_words(w.rows * w.cols // w.fmt.elems)


class Layout:
    """Assigns ranges in arenas of at most `limit_bytes`, in order of arrival."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit = min(limit_bytes, ARENA_BYTES) // 4
        self.sizes: list[int] = []

    def place(self, planes: Sequence[int], name: str) -> Place:
        """Room for planes of that many words. Raises DeviceError if they fit into no arena."""
        total = sum(planes)
        if total > self.limit:
            raise DeviceError(
                f"{name} takes {total * 4} bytes, more than the {self.limit * 4} bytes that one "
                "buffer may have on this device"
            )
        if not self.sizes or self.sizes[-1] + total > self.limit:
            self.sizes.append(0)
        start = self.sizes[-1]
        offsets = [start + sum(planes[:i]) for i in range(len(planes))]
        self.sizes[-1] = min(-(-(start + total) // ALIGN_WORDS) * ALIGN_WORDS, self.limit)
        return Place(len(self.sizes) - 1, tuple(offsets))


def binding_limit(device: Device) -> int:
    """Bytes of the largest buffer that can be allocated and bound whole."""
    return min(device.limits.storage_range, device.limits.allocation, ARENA_BYTES)
