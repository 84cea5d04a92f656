"""Bytes of the host to the device: through one staging buffer, weights into planes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels import repack
from .blocks import Format, Matrix
from .device import Device
from .layout import Place, binding_limit
from .recorder import Algorithms

STAGING_BYTES = 16 << 20  # one upload: copied to the device, then repacked there


class Upload:
    """Collects pieces in the staging buffer, then copies and repacks them in one submit."""

    def __init__(self, device: Device, algorithms: Algorithms) -> None:
        self.device, self.algorithms = device, algorithms
        self._size = min(STAGING_BYTES, binding_limit(device) - 4)
        self._host = device.host(self._size // 4 + 1, "staging")
        self._staging = device.storage(self._size // 4 + 1, "staging")
        self._bytes = self._host.data().view(np.uint8)
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

    def add(self, piece: Any, fmt: Format, block: int, place: Place, arena: Any) -> None:
        """Queue the blocks of a piece as blocks `block`, … of the planes at `place`."""
        if self._used + piece.size > self._size:
            self.flush()
        self._bytes[self._used : self._used + piece.size] = piece
        count = piece.size // fmt.bytes
        for plane, start in zip(fmt.planes, place.words, strict=False):
            self._jobs.append((arena, {
                "src_byte": self._used, "block_bytes": fmt.bytes, "offset": plane.offset,
                "size": plane.size, "stride": plane.stride, "plane_bytes": count * plane.stride,
                "dst_word": start + block * plane.stride // 4,
            }))  # fmt: skip
        self._used += -(-piece.size // 4) * 4

    def write(self, m: Matrix, first: int, place: Place, arena: Any) -> Iterator[int]:
        """Queue a matrix as the blocks from number `first` on; yields the blocks of each piece."""
        for piece, blocks in self.pieces(m):
            self.add(piece, m.fmt, first, place, arena)
            first += blocks
            yield blocks

    def words(self, data: npt.NDArray[np.uint32], dst: Any, first: int) -> None:
        """Copy words as they are to word `first` of a buffer."""
        self.flush()
        most = self._size // 4
        for start in range(0, len(data), most):
            part = data[start : start + most]
            self._host.data()[: len(part)] = part
            seq = self.device.sequence()
            self.device.copy(seq, self._host, dst, 0, first + start, len(part))
            self.device.eval(seq)

    def stage(self, seq: Any, nbytes: int) -> None:
        """Append the way of the first bytes of the staging buffer to the device."""
        self.device.copy(seq, self._host, self._staging, 0, 0, -(-nbytes // 4))

    def flush(self) -> None:
        """Run what is queued. Planes of one flush never overlap, so one barrier is enough."""
        if not self._jobs:
            return
        seq = self.device.sequence()
        self.stage(seq, self._used)
        for i, (arena, params) in enumerate(self._jobs):
            self.algorithms.record(
                seq, repack.KERNEL, {"src": self._staging, "dst": arena}, {}, params, 1,
                independent=i > 0,
            )
        self.device.eval(seq)
        self._jobs.clear()
        self._used = 0
