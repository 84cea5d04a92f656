"""Chains on a device: operands lie as models have them, dispatches are recorded or sent one by one.

Weights lie in planes that `repack` has written, everything else as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..kernels import experts_gather, repack
from ..kernels.kernel import Array
from ..kernels.reference import step_words
from .blocks import Matrix
from .device import Device
from .grids import grid_words
from .harness import POISON, device_words, fill_words, push_values, shape_of, word_count
from .harness_chain import Chain
from .harness_pool import Pool
from .layout import Place, binding_limit
from .recorder import Algorithms, Prepared
from .repeated import Repeated
from .upload import Upload

LARGE = 256 << 20  # bytes; two such buffers need not fit a small device
SMALL = 1 << 20  # bytes; larger weights go through the loader's staging buffer


class Loader(Upload):
    """The way of weights to the device, for one chain after another, in buffers of a pool."""

    def __init__(self, device: Device) -> None:
        super().__init__(device, Algorithms(device))
        self.pool = Pool(device)
        self._dropped = 0
        self._own: dict[str, Any] = {}  # buffers that stay, so that algorithms are made once

    def load(self, name: str, value: Matrix) -> Any:
        """A buffer with the planes of a weight."""
        if self._dropped != self.pool.dropped:  # what algorithms are bound to cannot be freed
            self._dropped, self.algorithms = self.pool.dropped, Algorithms(self.device)
        sizes = value.fmt.plane_words(value.rows * value.cols // value.fmt.elems)
        tensor = self.pool.storage(sum(sizes), name)
        place = Place(0, tuple(sum(sizes[:i]) for i in range(len(sizes))))
        if isinstance(value, Repeated) and self._fits(value):
            self._repeat(value, place, tensor)
        else:
            for _ in self.write(value, 0, place, tensor):
                pass
        if value.fmt.grid:
            self.words(grid_words(value.fmt.name), tensor, place.words[-1])
        self.flush()
        return tensor

    def _fits(self, value: Repeated) -> bool:
        """Whether the rows that are repeated fit the staging buffer, in whole vectors."""
        whole = value.fmt.row_bytes(value.cols) % 16 == 0
        room = binding_limit(self.device)
        if value.nbytes > LARGE and not self.device.limits.software:  # needs as much once more
            free = max((h.free for h in self.device.heaps() if h.device_local), default=0)
            room = min(room, free // 4)
        return whole and value.base.nbytes <= self._size and value.nbytes <= room

    def _repeat(self, value: Repeated, place: Place, tensor: Any) -> None:
        """Send the rows that are repeated, spread them on the device, then repack them."""
        self.flush()
        raw = value.base.raw.reshape(-1)
        self._bytes[: raw.size] = raw
        small = {"start": np.array([value.rows], np.uint32), "step": step_words(1, 0),
                 "order": value.index.astype(np.uint32)}  # fmt: skip
        for name, words in small.items():
            fill_words(self._room(name, words.size, self.pool.exchange), words)
        spread = self._room("y", value.nbytes // 4, self.pool.storage)
        seq = self.device.sequence()
        self.stage(seq, raw.size)
        self.device.sync_device(seq, [self._own[name] for name in small])
        params = {"words": value.fmt.row_bytes(value.cols) // 4, "slots": 1, "experts": 0}
        rows = self._own | {"x": self._staging}
        self.algorithms.record(seq, experts_gather.KERNEL, rows, {}, params, value.rows)
        blocks = value.nbytes // value.fmt.bytes
        for i, (plane, word) in enumerate(zip(value.fmt.planes, place.words, strict=False)):
            self.algorithms.record(
                seq, repack.KERNEL, {"src": spread, "dst": tensor}, {},
                {"src_byte": 0, "block_bytes": value.fmt.bytes, "offset": plane.offset,
                 "size": plane.size, "stride": plane.stride, "plane_bytes": blocks * plane.stride,
                 "dst_word": word}, 1, independent=i > 0,
            )  # fmt: skip
        self.device.eval(seq)

    def _room(self, name: str, words: int, lend: Callable[[int, str], Any]) -> Any:
        """The buffer of this name, a larger one where it is too small."""
        kept = self._own.get(name)
        if kept is None or len(kept) < words:
            self._own.pop(name, None)
            self.algorithms = Algorithms(self.device)
            kept = self._own[name] = lend(words, name)
        return kept


class Bound:
    """A chain with its buffers on a device; `copies` of its weights lie at different places."""

    def __init__(
        self, device: Device, chain: Chain, loader: Loader | None = None, copies: int = 1
    ) -> None:
        self.device, self.chain = device, chain
        self._algorithms, self._loader = Algorithms(device), loader or Loader(device)
        self._weights: list[Any] = []
        self.tensors: list[dict[str, Any]] = []
        for i in range(copies):
            self.tensors.append(self._place(i))
        self.prepared = [self._prepare(tensors) for tensors in self.tensors]

    @property
    def builds(self) -> str:
        """The kernels with their builds, in order, each once."""
        names: dict[str, None] = {}
        for link in self.chain.links:
            ops = {n: shape_of(n, v) for n, v in self.chain.operands_of(link).items()}
            build = link.kernel.launch(ops, link.params, link.rows, self.device.limits).build
            names[f"{link.kernel.name} {build}".strip()] = None
        return ", ".join(names)

    def _place(self, copy: int) -> dict[str, Any]:
        """Tensors by operand; the first copy has all of them, the others their own weights."""
        found: dict[str, Any] = dict(self.tensors[0]) if copy else {}
        for name, value in self.chain.operands.items():
            if isinstance(value, Matrix) and value.nbytes > SMALL:
                found[name] = self._loader.load(name, value)
                self._weights.append(found[name])
            elif not copy:
                found[name] = self._loader.pool.exchange(word_count(value), name)
        return found

    def _prepare(self, tensors: Mapping[str, Any]) -> list[Prepared]:
        made = []
        for link in self.chain.links:
            ops = self.chain.operands_of(link)
            bound = {name: tensors[link.operand(name)] for name in ops}
            shapes = {name: shape_of(name, value) for name, value in ops.items()}
            values = push_values(link.kernel, ops, link.params)
            made.append(self._algorithms.prepare(link.kernel, bound, shapes, values, link.rows))
        return made

    @property
    def exchanged(self) -> dict[str, Any]:
        """The tensors with a host side, by operand."""
        small = (n for n, v in self.chain.operands.items()
                 if not (isinstance(v, Matrix) and v.nbytes > SMALL))  # fmt: skip
        return {name: self.tensors[0][name] for name in small}

    def reset(self) -> None:
        """Initial contents into the host sides of the buffers, poison where they are written."""
        poisoned = self.chain.poisoned
        for name, tensor in self.exchanged.items():
            words = device_words(self.chain.operands[name])
            if name in poisoned:
                words.fill(POISON)
            fill_words(tensor, words)

    @property
    def _results(self) -> list[str]:
        """Operands to bring back."""
        outputs = self.chain.outputs
        return list(dict.fromkeys(n for o in outputs for n in (o.name, o.scales) if n))

    def _bring(self, seq: Any) -> None:
        """Append their way back."""
        self.device.sync_local(seq, [self.tensors[0][name] for name in self._results])

    def read(self) -> dict[str, Array]:
        """The outputs, and the scales that they need, from the host sides."""
        return self._read(self._results)

    def everything(self) -> dict[str, Array]:
        """All operands but weights, as the last run left them."""
        seq = self.device.sequence()
        self.device.sync_local(seq, list(self.exchanged.values()))
        self.device.eval(seq)
        return self._read([n for n in self.exchanged
                           if not isinstance(self.chain.operands[n], Matrix)])  # fmt: skip

    def _read(self, names: Iterable[str]) -> dict[str, Array]:
        found = {}
        for name in names:
            value: Any = self.chain.operands[name]
            raw = self.tensors[0][name].data().view(np.uint8)[: value.nbytes]
            found[name] = raw.view(value.dtype).reshape(value.shape).copy()
        return found

    def free(self) -> None:
        """Give all buffers back to the loader's pool."""
        self._loader.pool.give_back(self.exchanged.values(), self._weights)
        self.tensors, self.prepared, self._weights = [], [], []

    def run(self) -> dict[str, Array]:
        """All dispatches in one submit, waited for."""
        self.reset()
        seq = self.device.sequence()
        exchanged = list(self.exchanged.values())
        self.device.sync_device(seq, exchanged)
        for prepared in self.prepared[0]:
            prepared.record(self.device, seq)
        self._bring(seq)
        self.device.eval(seq)
        return self.read()

    def run_in_flight(self) -> dict[str, Array]:
        """Each dispatch a submit of its own, none waited for before all are on their way."""
        self.reset()
        exchanged = list(self.exchanged.values())
        first, last = self.device.sequence(), self.device.sequence()
        self.device.sync_device(first, exchanged)
        self.device.eval(first)
        submits = [self.device.submit(p.algorithm, p.push, p.grid) for p in self.prepared[0]]
        self.device.finish(submits)
        self._bring(last)
        self.device.eval(last)
        return self.read()
