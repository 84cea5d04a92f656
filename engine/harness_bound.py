"""Chains on a device: operands lie as models have them, dispatches are recorded or sent one by one.

Weights lie in planes that `repack` has written, everything else as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..kernels.kernel import Array
from .blocks import Matrix
from .device import Device
from .grids import grid_words
from .harness import POISON, device_words, push_values, shape_of
from .harness_chain import Chain
from .layout import Place
from .recorder import Algorithms, Prepared
from .upload import Upload

SMALL = 1 << 20  # bytes; larger weights go through the loader's staging buffer


class Loader(Upload):
    """The way of weights to the device, for one chain after another."""

    def __init__(self, device: Device) -> None:
        super().__init__(device, Algorithms(device))

    def load(self, name: str, value: Matrix) -> Any:
        """A buffer with the planes of a weight."""
        self.algorithms = Algorithms(self.device)  # the last chain's buffers can be freed
        sizes = value.fmt.plane_words(value.rows * value.cols // value.fmt.elems)
        tensor = self.device.storage(sum(sizes), name)
        place = Place(0, tuple(sum(sizes[:i]) for i in range(len(sizes))))
        for _ in self.write(value, 0, place, tensor):
            pass
        if value.fmt.grid:
            self.words(grid_words(value.fmt.name), tensor, place.words[-1])
        self.flush()
        return tensor


class Bound:
    """A chain with its buffers on a device; `copies` of its weights lie at different places."""

    def __init__(
        self, device: Device, chain: Chain, loader: Loader | None = None, copies: int = 1
    ) -> None:
        self.device, self.chain = device, chain
        self._algorithms, self._loader = Algorithms(device), loader or Loader(device)
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
            elif not copy:
                found[name] = self.device.exchange(device_words(value).size, name)
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
            tensor.data()[: words.size] = POISON if name in poisoned else words

    def read(self) -> dict[str, Array]:
        """The outputs, and the scales that they need, from the host sides."""
        names = {o.name for o in self.chain.outputs} | {
            o.scales for o in self.chain.outputs if o.scales
        }  # fmt: skip
        found = {}
        for name in names:
            value: Any = self.chain.operands[name]
            raw = self.tensors[0][name].data().view(np.uint8)[: value.nbytes]
            found[name] = raw.view(value.dtype).reshape(value.shape).copy()
        return found

    def run(self) -> dict[str, Array]:
        """All dispatches in one submit, waited for."""
        self.reset()
        seq = self.device.sequence()
        exchanged = list(self.exchanged.values())
        self.device.sync_device(seq, exchanged)
        for prepared in self.prepared[0]:
            prepared.record(self.device, seq)
        self.device.sync_local(seq, exchanged)
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
        self.device.sync_local(last, exchanged)
        self.device.eval(last)
        return self.read()
