"""Random weights made on the device, as fast as it writes: no bytes of theirs cross the bus.

Planes of quants take any bits and are hashes. Planes with scales are drawn from a table, the
planes of a few thousand valid blocks, uploaded once per format.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from typing import Any

from ..kernels import random_planes
from .blocks import Format, Matrix, Plane
from .layout import Layout, Place, binding_limit
from .random_matrix import RandomMatrix, random_blocks
from .upload import Upload

ANY_BITS = ("qs", "qh", "ql")  # planes that are valid whatever their bits are
TABLE = 1 << 12  # blocks; small enough for the caches of a device
SUBMIT_BYTES = 64 << 20  # filled by one submit; a software device takes 0.2 s for them


class RandomFill:
    """Fills the planes of random weights of the given formats; their tables go up at once."""

    def __init__(self, upload: Upload, formats: Collection[Format]) -> None:
        self._device, self._algorithms = upload.device, upload.algorithms
        layout = Layout(binding_limit(self._device))
        self._tables = {f: layout.place(f.plane_words(TABLE), f.name) for f in formats}
        self._tensors = [self._device.storage(n, "random scales") for n in layout.sizes]
        for fmt, place in self._tables.items():
            m = Matrix.of(fmt, random_blocks(fmt, TABLE), fmt.elems)
            for _ in upload.write(m, 0, place, self._tensors[place.arena]):
                pass
        upload.flush()
        self._jobs: list[tuple[Any, Any, dict[str, int]]] = []
        self._bytes = 0

    def write(self, m: Matrix, first: int, place: Place, arena: Any) -> Iterator[int]:
        """Queue a RandomMatrix as the blocks from number `first` on of the planes at `place`.

        Yields the blocks of each piece; a piece is a multiple of 32 blocks, as with `Upload`.
        """
        assert isinstance(m, RandomMatrix)
        most = max(SUBMIT_BYTES // m.fmt.bytes // 32 * 32, 32)
        for start in range(0, m.blocks, most):
            count = min(most, m.blocks - start)
            for plane, word in zip(m.fmt.planes, place.words, strict=False):
                at = word + (first + start) * plane.stride // 4
                self._add(m, plane, start, count, at, arena)
            self._bytes += count * m.fmt.bytes
            if self._bytes >= SUBMIT_BYTES:
                self.flush()
            yield count

    def _add(
        self, m: RandomMatrix, plane: Plane, start: int, count: int, word: int, arena: Any
    ) -> None:
        """Queue blocks `start`, … of a matrix for one plane, whose words begin at `word`."""
        table = self._tables[m.fmt]
        unit = 0 if plane.name in ANY_BITS else max(plane.stride // 4, 1)
        self._jobs.append((arena, self._tensors[table.arena], {
            "dst_word": word, "count": -(-count * plane.stride // 4),
            "first": (m.first + start) * plane.stride // 4,
            "seed": zlib.crc32(f"{m.label} {plane.name}".encode()),
            "unit": unit, "units": TABLE * plane.stride // 4 // max(unit, 1),
            "table_word": table.words[m.fmt.planes.index(plane)],
        }))  # fmt: skip

    def flush(self) -> None:
        """Run what is queued; nothing in it overlaps."""
        if not self._jobs:
            return
        seq = self._device.sequence()
        for i, (arena, table, params) in enumerate(self._jobs):
            self._algorithms.record(
                seq, random_planes.KERNEL, {"table": table, "dst": arena}, {}, params, 1,
                independent=i > 0,
            )  # fmt: skip
        self._device.eval(seq)
        self._jobs.clear()
        self._bytes = 0
