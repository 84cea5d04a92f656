"""Chains: one or several dispatches over named operands, and what references make of them.

The primitives of `validate` (primitives.py) are chains; harness_bound.py runs them on a device.
What a chain only writes is poison beforehand, on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..kernels import cache_rows, q8
from ..kernels.kernel import Access, Array, Kernel, Params
from .blocks import Matrix
from .harness import POISON
from .harness_errors import Errors, measure

Operand = Array | Matrix


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


def initial(chain: Chain) -> dict[str, Any]:
    """Operands before the first dispatch: copies, poison where the first use is to be written."""
    poisoned = chain.poisoned
    values: dict[str, Any] = {}
    for name, value in chain.operands.items():
        if isinstance(value, Matrix):
            values[name] = value
            continue
        values[name] = value.copy()
        if name in poisoned and not value.dtype.names:
            values[name].fill(POISON if value.dtype == np.uint32 else np.nan)
    return values


def run_link(link: Link, values: Mapping[str, Any]) -> None:
    """The reference of one dispatch, on the operands of its chain."""
    ops = {b.name: values[link.operand(b.name)] for b in link.kernel.interface.bindings}
    with np.errstate(invalid="ignore", over="ignore"):
        link.kernel.reference(**ops, **link.params)


def reference(chain: Chain) -> dict[str, Array]:
    """Everything that the references write, in order."""
    values = initial(chain)
    for link in chain.links:
        run_link(link, values)
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
