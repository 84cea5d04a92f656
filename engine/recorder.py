"""Dispatches into recorded sequences: algorithms made once, push words, barriers left out.

A barrier is needed only where a dispatch touches what an earlier one since the last barrier
wrote (or writes what one read). The shaders' own declarations say who reads and writes what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..kernels.kernel import Access, Array, Kernel, Launch, Params, Shaped
from .ahead import Ahead
from .device import Device
from .plan import Buf, Dispatch, Plan, Weight

Region = tuple[str, int, int]  # buffer, first and one past the last column
WHOLE = 1 << 62
FIRST = 16  # tokens of a first prompt, for which pipelines are compiled ahead


def push_words(kernel: Kernel, values: Mapping[str, int | float]) -> Array:
    """The push constants of a kernel as uint32 words, floats by their bits."""
    words = np.zeros(len(kernel.interface.push), np.uint32)
    for i, (name, kind) in enumerate(kernel.interface.push):
        if kind == "float":
            words[i : i + 1].view(np.float32)[0] = values[name]
        else:
            words[i] = int(values[name]) & 0xFFFFFFFF
    return words


@dataclass(frozen=True)
class Prepared:
    """One dispatch, ready to be recorded any number of times."""

    algorithm: Any
    push: Array
    grid: tuple[int, int, int]
    independent: bool

    def record(self, device: Device, seq: Any) -> None:
        """Append it to a sequence."""
        device.record(seq, self.algorithm, self.push, self.grid, self.independent)


class Algorithms:
    """kp algorithms by (kernel, build, constants, bindings), made when first needed."""

    def __init__(self, device: Device, ahead: Ahead | None = None) -> None:
        self.device = device
        self._ahead = ahead  # compiles some of them before they are asked for
        # the tensors are kept beside the algorithm: their ids are part of the key
        self._made: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}

    def compile(self, plan: Plan) -> None:
        """Have the pipelines of a plan compiled in the background, for a short prompt too."""
        if not self._ahead or not self._ahead.works:
            return
        for d in plan.dispatches:
            for rows in {min(n, plan.rows) for n in (FIRST, plan.rows)}:
                launch = d.kernel.launch(d.operands, d.params, rows, self.device.limits)
                self._ahead.add(d.kernel, launch)

    def get(self, kernel: Kernel, launch: Launch, tensors: list[Any]) -> Any:
        """The algorithm for these bindings, compiled on the first request."""
        key = (kernel.name, launch.build, launch.spec, launch.subgroup_size, *map(id, tensors))
        if key not in self._made:
            if self._ahead:
                self._ahead.wait(kernel, launch)
            algorithm = self.device.algorithm(
                kernel.stem(launch.build), tensors, kernel.spirv(launch.build), launch.spec,
                len(kernel.interface.push), launch.subgroup_size,
            )  # fmt: skip
            self._made[key] = algorithm, tensors
        return self._made[key][0]

    def prepare(
        self, kernel: Kernel, tensors: Mapping[str, Any], shapes: Mapping[str, Shaped],
        params: Params, rows: int, independent: bool = False,
    ) -> Prepared:
        """What one launch records. `params` has all push words, also offsets of weights, caches."""
        launch = kernel.launch(shapes, params, rows, self.device.limits)
        bound = [tensors[b.name] for b in kernel.interface.bindings]
        algorithm = self.get(kernel, launch, bound)
        return Prepared(algorithm, push_words(kernel, params), launch.grid, independent)

    def record(
        self, seq: Any, kernel: Kernel, tensors: Mapping[str, Any], shapes: Mapping[str, Shaped],
        params: Params, rows: int, independent: bool = False,
    ) -> None:
        """Record one launch."""
        self.prepare(kernel, tensors, shapes, params, rows, independent).record(self.device, seq)


@dataclass
class Hazards:
    """Regions read and written since the last barrier of a sequence."""

    reads: set[Region] = field(default_factory=set)
    writes: set[Region] = field(default_factory=set)
    started: bool = False

    def admit(self, d: Dispatch) -> bool:
        """Whether `d` may run beside what came since the last barrier; takes note of it."""
        reads, writes = regions(d)
        clash = _overlap(writes, self.reads | self.writes) or _overlap(reads, self.writes)
        independent = self.started and not clash
        if not independent:
            self.reads, self.writes = set(), set()
        self.reads |= reads
        self.writes |= writes
        self.started = True
        return independent


def regions(d: Dispatch) -> tuple[set[Region], set[Region]]:
    """What a dispatch reads and writes. Products fill the columns y_off … y_off + rows of y."""
    reads: set[Region] = set()
    writes: set[Region] = set()
    for b in d.kernel.interface.bindings:
        op = d.operands[b.name]
        if not isinstance(op, Buf):
            continue
        first, stop = 0, WHOLE
        if b.name == "y" and "y_off" in d.params:
            first = int(d.params["y_off"])
            stop = first + int(d.params["rows"])
        region = (op.name, first, stop)
        if b.access is not Access.WRITE:
            reads.add(region)
        if b.access is not Access.READ:
            writes.add(region)
    return reads, writes


def _overlap(a: set[Region], b: set[Region]) -> bool:
    return any(x[0] == y[0] and x[1] < y[2] and y[1] < x[2] for x in a for y in b)


def offsets(d: Dispatch, places: Mapping[str, tuple[int, ...]]) -> dict[str, int | float]:
    """All push words of a dispatch: its own, weight planes NAME_p0 …, cache starts NAME_base."""
    values = dict(d.params)
    for b in d.kernel.interface.bindings:
        op = d.operands[b.name]
        if isinstance(op, Weight):
            planes = places[op.name]
            for i in range(4):
                values[f"{b.name}_p{i}"] = planes[i] if i < len(planes) else 0
        elif op.name in places:
            values[f"{b.name}_base"] = places[op.name][0]
    return values
