"""Where weights and caches lie on the device: a few large buffers, filled once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .device import Device
from .grids import grid_words
from .layout import Layout, Place, binding_limit, weight_words
from .plan import Buf, Weight
from .random_fill import RandomFill
from .random_matrix import RandomMatrix
from .upload import Upload


class CacheArena:
    """Key and value caches of all layers."""

    def __init__(self, device: Device, bufs: Iterable[Buf]) -> None:
        layout = Layout(binding_limit(device))
        self.places = {b.name: layout.place([-(-b.words // 4) * 4], b.name) for b in bufs}
        self.tensors = [device.storage(n, f"KV cache {i}") for i, n in enumerate(layout.sizes)]
        self.bytes = 4 * sum(layout.sizes)


class WeightArena:
    """Weights on the device. `load` uploads them in file order, STAGING_BYTES at a time, and has
    random ones made there."""

    def __init__(self, device: Device, weights: Iterable[Weight]) -> None:
        self._device, self._weights = device, list(weights)
        layout = Layout(binding_limit(device))
        self.places = {w.name: layout.place(weight_words(w), w.name) for w in self._weights}
        self.tensors = [device.storage(n, f"weights {i}") for i, n in enumerate(layout.sizes)]
        self.bytes = 4 * sum(layout.sizes)

    def load(self, upload: Upload, progress: Callable[[int, int], None] | None) -> None:
        """Fill the arenas. `progress(done, total)` counts bytes; what it raises ends the load."""
        parts = [m for w in self._weights for m in w.parts]
        total, done = sum(m.nbytes for m in parts), 0
        random = RandomFill(upload, {m.fmt for m in parts if isinstance(m, RandomMatrix)})
        for w in self._weights:
            place = self.places[w.name]
            arena = self.tensors[place.arena]
            for blocks in _fill(w, place, arena, upload, random):
                done += blocks * w.fmt.bytes
                if progress:
                    progress(done, total)
            if w.fmt.grid:
                upload.words(grid_words(w.fmt.name), arena, place.words[-1])
        upload.flush()
        random.flush()


def _fill(
    w: Weight, place: Place, arena: Any, upload: Upload, random: RandomFill
) -> Iterator[int]:
    """Queue the parts of a weight piece by piece; yields the blocks of each."""
    first = 0
    for m in w.parts:
        way = random if isinstance(m, RandomMatrix) else upload
        for blocks in way.write(m, first, place, arena):
            first += blocks
            yield blocks
        m.forget()
