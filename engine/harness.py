"""Shader against reference: one case of a kernel on a device, outputs poisoned beforehand."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import kernels
from ..kernels import cache_rows
from ..kernels.kernel import Access, Array, Case, Kernel, Params
from .blocks import Matrix, pack_planes
from .device import Device
from .harness_errors import errors_of, other_way
from .harness_pool import Pool
from .plan import Buf, Weight
from .recorder import Algorithms, push_words

POISON = 0xFFC0DEAD  # a NaN, as float32 and as a pair of float16


@dataclass(frozen=True)
class CaseResult:
    """What one case gave: errors over all outputs, the limit, the verdict and why it failed."""

    kernel: str
    case: str
    build: str
    nmse: float
    max_rel: float
    limit: float
    ok: bool
    note: str = ""
    measure: str = "NMSE"  # what `limit` bounds: "NMSE", "max rel", or "exact"


def all_kernels() -> list[Kernel]:
    """Every kernel of the package, by name."""
    found = {}
    for module in pkgutil.iter_modules(kernels.__path__):
        kernel = getattr(
            importlib.import_module(f"{kernels.__name__}.{module.name}"), "KERNEL", None
        )
        if isinstance(kernel, Kernel):
            found[kernel.name] = kernel
    return [found[name] for name in sorted(found)]


def word_count(value: Array | Matrix) -> int:
    """How many words `device_words` gives."""
    size = value.nbytes
    if isinstance(value, Matrix):
        size = 4 * sum(value.fmt.plane_words(value.nbytes // value.fmt.bytes))
    return max(4, -(-size // 16) * 4)


def device_words(value: Array | Matrix) -> npt.NDArray[np.uint32]:
    """An operand as the device holds it, at least one word and whole vectors of 16 bytes."""
    raw: Any = pack_planes(value) if isinstance(value, Matrix) else value
    flat = np.ascontiguousarray(raw).reshape(-1).view(np.uint8)
    out = np.zeros(max(16, -(-flat.size // 16) * 16), np.uint8)
    out[: flat.size] = flat
    return out.view(np.uint32)


def shape_of(name: str, value: Array | Matrix) -> Any:
    """The operand as launches see it."""
    if isinstance(value, Matrix):
        return Weight(name, (value,))
    if value.dtype.names:
        return Buf(name, value.shape, cache_rows.kind_of(value))
    kind = {"float32": "F32", "float16": "F16", "uint32": "U32"}[value.dtype.name]
    return Buf(name, value.shape, kind)


def shapes_of(case: Case) -> dict[str, Any]:
    """The operands of a case as launches see them."""
    return {n: shape_of(n, v) for n, v in case.operands.items()}


def push_values(
    kernel: Kernel, operands: Mapping[str, Array | Matrix], params: Params
) -> dict[str, int | float]:
    """Push words of a dispatch: its own, planes of weights at the start of their buffer."""
    values = dict(params)
    for b in kernel.interface.bindings:
        op = operands[b.name]
        if isinstance(op, Matrix):
            sizes = op.fmt.plane_words(op.nbytes // op.fmt.bytes)
            for i in range(4):
                values[f"{b.name}_p{i}"] = sum(sizes[:i]) if i < len(sizes) else 0
    for name, _ in kernel.interface.push:
        if name.endswith("_base"):
            values.setdefault(name, 0)
    return values


class Shader:
    """A case on a device, ready to run. May be made on any thread: compiling takes the time.

    `pool` lends the buffers, until `free`; without it they are as large as their operands.
    """

    def __init__(
        self, device: Device, kernel: Kernel, case: Case, pool: Pool | None = None
    ) -> None:
        self.device, self._kernel, self._case, self._pool = device, kernel, case, pool
        self._tensors = {}
        for b in kernel.interface.bindings:
            words = device_words(case.operands[b.name])
            tensor = (pool or device).exchange(words.size, b.name)
            if b.access is Access.WRITE:
                words.fill(POISON)
            fill_words(tensor, words)
            self._tensors[b.name] = tensor
        self._launch = kernel.launch(shapes_of(case), case.params, case.rows, device.limits)
        self._bound = [self._tensors[b.name] for b in kernel.interface.bindings]
        self._algorithm = Algorithms(device).get(kernel, self._launch, self._bound)
        self._outs = [
            b.name for b in kernel.interface.bindings
            if b.access in (Access.WRITE, Access.UPDATE)
        ]  # fmt: skip

    def record(self, seq: Any) -> None:
        """Append the operands' way to the device, the dispatch, and the results' way back."""
        device, case = self.device, self._case
        device.sync_device(seq, self._bound)
        push = push_words(self._kernel, push_values(self._kernel, case.operands, case.params))
        device.record(seq, self._algorithm, push, self._launch.grid)
        device.sync_local(seq, [self._tensors[n] for n in self._outs])

    def read(self) -> tuple[dict[str, Array], str]:
        """The outputs (shapes and dtypes of the operands) and the build."""
        results = {}
        for n in self._outs:
            value: Any = self._case.operands[n]
            raw = self._tensors[n].data().view(np.uint8)[: value.nbytes]
            results[n] = raw.view(value.dtype).reshape(value.shape).copy()
        return results, self._launch.build

    def free(self) -> None:
        """Give the buffers back to the pool."""
        if self._pool:
            self._pool.give_back(self._bound)
        self._bound, self._algorithm = [], None


def fill_words(tensor: Any, words: npt.NDArray[np.uint32]) -> None:
    """Words into the host side of a buffer, zeros behind them."""
    data = tensor.data()
    data[: words.size] = words
    data[words.size :] = 0


def run_shader(device: Device, kernel: Kernel, case: Case) -> tuple[dict[str, Array], str]:
    """Run the shader of a case; returns the outputs (shapes and dtypes of the operands), build."""
    shader, seq = Shader(device, kernel, case), device.sequence()
    shader.record(seq)
    device.eval(seq)
    return shader.read()


def run_reference(kernel: Kernel, case: Case) -> dict[str, Array]:
    """Outputs of the NumPy reference; WRITE bindings start as NaN or poison words."""
    operands: dict[str, Any] = {}
    outs = []
    for b in kernel.interface.bindings:
        value: Any = case.operands[b.name]
        if b.access in (Access.WRITE, Access.UPDATE):
            value = value.copy()
            if b.access is Access.WRITE:
                value.fill(POISON if value.dtype == np.uint32 else np.nan)
            outs.append(b.name)
        operands[b.name] = value
    kernel.reference(**operands, **case.params)
    return {n: operands[n] for n in outs}


def compare(
    kernel: Kernel, case: Case, want: dict[str, Array], got: dict[str, Array], build: str
) -> CaseResult:
    """The errors over all outputs of a case, which should be `want`, or `other_way`."""
    found = errors_of(case, want, got)
    if found.nmse > case.limit and (other := other_way(case, want, got)):
        found = errors_of(case, other, got)
    ok = found.nmse <= case.limit and not found.note
    return CaseResult(
        kernel.name, case.name, build, found.nmse, found.max_rel, case.limit, ok, found.note,
        "exact" if case.exact else "NMSE",
    )


def can_run(device: Device, kernel: Kernel) -> bool:
    """Whether a device can run a kernel, be it without hardware for it (emulated dot products)."""
    return kernel.needs(device.limits.with_(int_dot=device.info.int_dot != "none"))


def run_case(device: Device, kernel: Kernel, case: Case) -> CaseResult:
    """Run one case on a device and compare it with the reference."""
    got, build = run_shader(device, kernel, case)
    return compare(kernel, case, run_reference(kernel, case), got, build)
