"""A plan bound to NumPy arrays: programs for the team between calls of references."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels import cache_rows
from ..kernels.fast_team import LINE
from .cpu_team import Program, Team
from .plan import Buf, Dispatch, Plan, Role

DTYPES: dict[str, Any] = {"F32": np.float32, "F16": np.float16, "U32": np.uint32}
Array = npt.NDArray[Any]


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of zeros whose data start on a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + LINE, np.uint8)
    skip = -raw.ctypes.data % LINE
    out: Array = raw[skip : skip + size].view(dtype).reshape(shape)
    return out


def array_type(buf: Buf) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of the array of a buffer."""
    if buf.dtype in cache_rows.QUANTIZED:
        return cache_rows.array_type(buf.dtype, buf.shape)
    return buf.shape, DTYPES[buf.dtype]


class Storage:
    """The arrays of all buffers of some plans, by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._bufs: dict[str, Buf] = {}

    def allocate(self, plan: Plan) -> None:
        """Make the arrays that a plan needs and that are not there yet. Pages of zeros take no
        memory until they are written, so a long cache costs what is used of it."""
        for d in plan.dispatches:
            for op in d.operands.values():
                if isinstance(op, Buf) and op.name not in self.arrays:
                    self.arrays[op.name] = aligned_zeros(*array_type(op))
                    self._bufs[op.name] = op

    def clear(self, role: Role) -> None:
        """Zero all buffers of a role."""
        for name, buf in self._bufs.items():
            if buf.role is role:
                self.arrays[name][...] = 0

    def bytes(self, role: Role | None = None) -> int:
        """Bytes of all buffers, or of those of one role."""
        return sum(
            self.arrays[name].nbytes
            for name, buf in self._bufs.items()
            if role is None or buf.role is role
        )


class Compiled:
    """A plan ready to run: without a team, everything goes through the references."""

    def __init__(self, plan: Plan, arrays: dict[str, Array], team: Team | None) -> None:
        self.plan, self._arrays, self._team = plan, arrays, team
        self._parts: list[Program | Sequence[Dispatch]] = []
        for fast, group in groupby(plan.dispatches, self._is_fast):
            dispatches = tuple(group)
            if fast and team:
                self._parts.append(Program(dispatches, arrays, team.members))
            else:
                self._parts.append(dispatches)

    def _is_fast(self, d: Dispatch) -> bool:
        if self._team is None:
            return False
        from ..kernels.fast import FAST  # imports Numba

        return d.kernel.name in FAST

    @property
    def scratch_bytes(self) -> int:
        """Memory that belongs to this plan alone."""
        return sum(p.scratch.nbytes for p in self._parts if isinstance(p, Program))

    def run(self, timed: bool) -> dict[str, float]:
        """Run everything once; returns seconds by phase when `timed`."""
        spent: defaultdict[str, float] = defaultdict(float)
        for part in self._parts:
            if isinstance(part, Program):
                self._replay(part, spent if timed else None)
            else:
                for d in part:
                    start = time.perf_counter()
                    self._refer(d)
                    spent[d.phase.value] += time.perf_counter() - start
        return dict(spent)

    def _replay(self, program: Program, spent: defaultdict[str, float] | None) -> None:
        assert self._team is not None
        if spent is None:
            self._team.run(program.ops, len(program.dispatches))
            return
        self._team.run(program.ops, len(program.dispatches), program.times)
        for d, nanoseconds in zip(program.dispatches, np.diff(program.times[2:]), strict=True):
            spent[d.phase.value] += int(nanoseconds) * 1e-9

    def _refer(self, d: Dispatch) -> None:
        operands = {
            name: self._arrays[op.name] if isinstance(op, Buf) else op
            for name, op in d.operands.items()
        }
        # what damaged weights lead to is said by the logits, not by NumPy
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            d.kernel.reference(**operands, **d.params)
