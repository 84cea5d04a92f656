"""Where weights and caches lie on the device: a few large buffers, filled once.

A weight's planes lie one after another in an arena (engine/blocks.py); a cache is a range of
words. Arenas are as large as one binding may be, so a model needs few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels import repack
from .blocks import Matrix
from .device import Device
from .errors import DeviceError
from .grids import grid_words
from .plan import Buf, Weight
from .recorder import Algorithms

STAGING_BYTES = 16 << 20  # one upload: copied to the device, then repacked there
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


class CacheArena:
    """Key and value caches of all layers."""

    def __init__(self, device: Device, bufs: Iterable[Buf]) -> None:
        layout = Layout(binding_limit(device))
        self.places = {b.name: layout.place([-(-b.words // 4) * 4], b.name) for b in bufs}
        self.tensors = [device.storage(n, f"KV cache {i}") for i, n in enumerate(layout.sizes)]
        self.bytes = 4 * sum(layout.sizes)


class WeightArena:
    """Weights on the device. `load` uploads them in file order, STAGING_BYTES at a time."""

    def __init__(self, device: Device, weights: Iterable[Weight]) -> None:
        self._weights = list(weights)
        layout = Layout(binding_limit(device))
        self.places = {w.name: layout.place(weight_words(w), w.name) for w in self._weights}
        self.tensors = [device.storage(n, f"weights {i}") for i, n in enumerate(layout.sizes)]
        self.bytes = 4 * sum(layout.sizes)

    def load(self, upload: Upload, progress: Callable[[int, int], None] | None) -> None:
        """Fill the arenas. `progress(done, total)` counts bytes; what it raises ends the load."""
        total = sum(m.nbytes for w in self._weights for m in w.parts)
        done = 0
        for w in self._weights:
            place = self.places[w.name]
            block = 0
            for m in w.parts:
                for piece, count in upload.pieces(m):
                    upload.add(piece, w, block, place, self.tensors[place.arena])
                    block += count
                    done += piece.nbytes
                    if progress:
                        progress(done, total)
                m.forget()
            if w.fmt.grid:
                upload.words(grid_words(w.fmt.name), self.tensors[place.arena], place.words[-1])
        upload.flush()


class Upload:
    """Collects pieces in the staging buffer, then copies and repacks them in one submit."""

    def __init__(self, device: Device, algorithms: Algorithms) -> None:
        self._device, self._algorithms = device, algorithms
        self._size = min(STAGING_BYTES, binding_limit(device) - 4)
        self._staging = device.exchange(self._size // 4 + 1, "staging")
        self._bytes = self._staging.data().view(np.uint8)
        self._used = 0
        self._jobs: list[tuple[Any, dict[str, int]]] = []

    def pieces(self, m: Matrix) -> Iterable[tuple[Any, int]]:
        """Bytes of a matrix in runs of whole blocks that fit into the staging buffer.

        A run is a multiple of 32 blocks, so that every plane of the next starts on a whole word.
        """
        flat = m.raw.reshape(-1)
        blocks = flat.size // m.fmt.bytes
        most = self._size // m.fmt.bytes // 32 * 32
        for start in range(0, blocks, most):
            count = min(most, blocks - start)
            yield flat[start * m.fmt.bytes : (start + count) * m.fmt.bytes], count

    def add(self, piece: Any, w: Weight, block: int, place: Place, arena: Any) -> None:
        """Queue blocks `block`, `block` + 1, … of a weight for its planes in `arena`."""
        if self._used + piece.size > self._size:
            self.flush()
        self._bytes[self._used : self._used + piece.size] = piece
        count = piece.size // w.fmt.bytes
        for plane, start in zip(w.fmt.planes, place.words, strict=False):
            self._jobs.append((arena, {
                "src_byte": self._used, "block_bytes": w.fmt.bytes, "offset": plane.offset,
                "size": plane.size, "stride": plane.stride, "plane_bytes": count * plane.stride,
                "dst_word": start + block * plane.stride // 4,
            }))  # fmt: skip
        self._used += -(-piece.size // 4) * 4

    def words(self, data: npt.NDArray[np.uint32], dst: Any, first: int) -> None:
        """Copy words as they are to word `first` of a buffer."""
        self.flush()
        most = self._size // 4
        for start in range(0, len(data), most):
            part = data[start : start + most]
            self._staging.data()[: len(part)] = part
            seq = self._device.sequence()
            self._device.sync_device(seq, [self._staging])
            self._device.copy(seq, self._staging, dst, 0, first + start, len(part))
            self._device.eval(seq)

    def flush(self) -> None:
        """Run what is queued. Planes of one flush never overlap, so one barrier is enough."""
        if not self._jobs:
            return
        seq = self._device.sequence()
        self._device.sync_device(seq, [self._staging])
        for i, (arena, params) in enumerate(self._jobs):
            self._algorithms.record(
                seq, repack.KERNEL, {"src": self._staging, "dst": arena}, {}, params, 1,
                independent=i > 0,
            )
        self._device.eval(seq)
        self._jobs.clear()
        self._used = 0
