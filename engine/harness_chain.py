"""Chains: one or several dispatches over named operands, on a device and through references.

The primitives of `validate` (primitives.py) are chains. On the device the operands lie as models
have them: weights in planes that `repack` has written, everything else as it is. What a chain
only writes is poison beforehand, on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..kernels import cache_rows, q8
from ..kernels.kernel import Access, Array, Kernel, Params
from .arena import Place, Upload
from .blocks import Matrix
from .device import Device
from .grids import grid_words
from .harness import POISON, Errors, device_words, measure, push_values, shape_of
from .plan import Weight
from .recorder import Algorithms, Prepared

Operand = Array | Matrix
SMALL = 1 << 20  # bytes; larger weights go through the loader's staging buffer


@dataclass(frozen=True)
class Link:
    """One dispatch: `uses` names the operand of each binding that is not called like it."""

    kernel: Kernel
    params: Params
    rows: int = 1
    uses: Mapping[str, str] = field(default_factory=dict)

    def operand(self, binding: str) -> str:
        """The name of a binding's operand in the chain."""
        return self.uses.get(binding, binding)


@dataclass(frozen=True)
class Output:
    """An operand to compare. `scales`: it holds int8 groups of 16, and these are their scales;
    `mask`: of the elements that count; `exact`: equal words."""

    name: str
    scales: str = ""
    mask: Array | None = None
    exact: bool = False


@dataclass(frozen=True)
class Chain:
    """Dispatches in order. `operands` holds initial contents, and shapes of what is written.

    `traffic`: bytes that have to be moved, where that is not once every operand; `experts`: how
    many experts work in it.
    """

    operands: Mapping[str, Operand]
    links: tuple[Link, ...]
    outputs: tuple[Output, ...]
    traffic: int = 0
    experts: int = 0

    def operands_of(self, link: Link) -> dict[str, Operand]:
        """Operands of a link by binding."""
        return {
            b.name: self.operands[link.operand(b.name)] for b in link.kernel.interface.bindings
        }

    @property
    def poisoned(self) -> frozenset[str]:
        """Operands whose first use is to be written."""
        seen: dict[str, bool] = {}
        for link in self.links:
            for b in link.kernel.interface.bindings:
                seen.setdefault(link.operand(b.name), b.access is Access.WRITE)
        return frozenset(name for name, written in seen.items() if written)

    @property
    def bytes(self) -> int:
        """Bytes moved: `traffic`, or what the operands take in memory."""
        return self.traffic or sum(_bytes(v) for v in self.operands.values())


def _bytes(value: Operand) -> int:
    return int(value.nbytes)


class Loader(Upload):
    """The way of weights to the device, for one chain after another."""

    def __init__(self, device: Device) -> None:
        super().__init__(device, Algorithms(device))

    def load(self, name: str, value: Matrix) -> Any:
        """A buffer with the planes of a weight."""
        self._algorithms = Algorithms(self._device)  # the last chain's buffers can be freed
        w = Weight(name, (value,))
        sizes = value.fmt.plane_words(value.rows * value.cols // value.fmt.elems)
        tensor = self._device.storage(sum(sizes), name)
        place = Place(0, tuple(sum(sizes[:i]) for i in range(len(sizes))))
        block = 0
        for piece, count in self.pieces(value):
            self.add(piece, w, block, place, tensor)
            block += count
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


def reference(chain: Chain) -> dict[str, Array]:
    """Everything that the references write, in order."""
    poisoned = chain.poisoned
    values: dict[str, Any] = {}
    for name, value in chain.operands.items():
        if isinstance(value, Matrix):
            values[name] = value
            continue
        values[name] = value.copy()
        if name in poisoned and not value.dtype.names:
            values[name].fill(POISON if value.dtype == np.uint32 else np.nan)
    for link in chain.links:
        ops = {b.name: values[link.operand(b.name)] for b in link.kernel.interface.bindings}
        with np.errstate(invalid="ignore", over="ignore"):
            link.kernel.reference(**ops, **link.params)
    return values


def compare(
    chain: Chain, want: Mapping[str, Array], got: Mapping[str, Array]
) -> tuple[Errors, Errors]:
    """Errors of the float outputs, and of those in int8 groups as the values they stand for."""
    floats, rounded = Errors(), Errors()
    for o in chain.outputs:
        if o.scales:
            a, b = (q8.values(v[o.name].reshape(-1), v[o.scales].reshape(-1, 2))
                    for v in (want, got))  # fmt: skip
            rounded = rounded.worst(measure(o.name, a, b))
            continue
        mask = np.ones(want[o.name].shape, bool) if o.mask is None else o.mask
        a, b = (cache_rows.comparable(v[o.name][mask]) for v in (want, got))
        floats = floats.worst(measure(o.name, a, b, o.exact))
    return floats, rounded


def same(a: Mapping[str, Array], b: Mapping[str, Array]) -> Errors:
    """Whether all outputs are equal bit by bit."""
    found = Errors()
    for name, value in a.items():
        words = [np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in (value, b[name])]
        wrong = int(np.count_nonzero(words[0] != words[1]))
        if wrong:
            found = found.worst(Errors(np.inf, 0.0, f"{name}: {wrong} bytes differ"))
    return found


def chain_of(operands: Mapping[str, Operand], links: Sequence[Link], *outputs: Output | str,
             **facts: int) -> Chain:  # fmt: skip
    """A chain; outputs by name count as a whole."""
    made = tuple(Output(o) if isinstance(o, str) else o for o in outputs)
    return Chain(dict(operands), tuple(links), made, **facts)
