"""One open Vulkan device: buffers, algorithms, recorded sequences. The only `import kp`.

Everything goes through the runtime layer (engine/layer.c), which mends what is wrong with
Kompute 0.9.0. Kompute ignores most results of Vulkan; the layer remembers the first failure and
every method here that reaches the driver asks for it and raises DeviceError.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence as Many
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..kernels.limits import Limits
from . import device_info, layer
from .device_info import DeviceInfo, choose, list_devices
from .errors import DeviceError

Words = npt.NDArray[np.uint32]
DEVICE_LOST = -4  # VkResult
_RESULTS = {
    -1: "out of host memory", -2: "out of device memory", -3: "initialization failed",
    -4: "device lost", -5: "memory cannot be mapped", -7: "extension missing",
    -8: "feature missing", -9: "driver incompatible", -10: "too many objects",
    -12: "fragmented pool", -13: "unknown error", -1000069000: "out of pool memory",
    -1000012000: "invalid shader",
}  # fmt: skip
_LOST = (
    "The device stopped answering. If a long prompt was running, the driver's watchdog may have "
    "ended it: try a smaller batch (-b) or chunk. The device cannot be used further in this run."
)
_MEMORY = (
    "Try a smaller context (-c), a smaller or more strongly quantized model, or close other "
    "programs."
)


def _import_kp() -> Any:
    """Kompute, without the root logger's handler that its import installs."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    try:
        import kp
    except ImportError as e:
        raise DeviceError(f"Kompute cannot be loaded (is libvulkan.so.1 installed?): {e}") from e
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
    return kp


def result_text(result: int) -> str:
    """A VkResult in words."""
    return f"{_RESULTS.get(result, 'error')} ({result})"


class Sequence:
    """A recorded command buffer, replayed by `Device.eval`. Made by `Device.sequence`."""

    def __init__(self, handle: Any, timestamps: int) -> None:
        self.handle = handle
        self.timestamps = timestamps
        self.records = 0
        self.kept: list[Any] = []  # tensors that copies use, which Kompute does not know of

    def ticks(self) -> npt.NDArray[np.uint64]:
        """Timestamps of the last eval: (records + 1,), one before and one after each record."""
        return np.array(self.handle.get_timestamps(), np.uint64)


class Device:
    """An open device. Use from one thread at a time, except that `eval` may run in another.

    Tensors are Kompute's: `data()` is a uint32 array of the host copy, valid until `close`.
    """

    def __init__(self, info: DeviceInfo, validation: bool, limits: Limits | None) -> None:
        self.info = info
        self.limits = limits or info.limits
        self.fatal: DeviceError | None = None
        self._handles: weakref.WeakKeyDictionary[Any, tuple[int, ...]] = weakref.WeakKeyDictionary()
        self._sequences: weakref.WeakSet[Sequence] = weakref.WeakSet()
        self._kp = _import_kp()
        self._layer = layer.extension()
        checked = self._layer.check_device(info.index)  # Kompute would crash on a failure
        if checked:
            raise DeviceError(f"{info.name} cannot be opened: {result_text(checked)}")
        with layer.active(validation):
            self._manager = self._kp.Manager(info.index)
            self._id = self._layer.last_device()
        if not self._id:
            raise DeviceError(
                "The Vulkan loader did not load the runtime layer; VK_LOADER_DEBUG=all tells why."
            )
        actual = self._layer.device_facts(self._id)["name"]
        if actual != info.name:
            raise DeviceError(f"Device {info.index} is {actual} now, it was {info.name}")
        self._cache = layer.PipelineCache(*info.ids, info.cache_uuid)
        if saved := self._cache.load():
            self._layer.pipeline_cache_load(self._id, saved)
        # A tensor to hang copies on whose buffers the layer replaces (see `copy`).
        self._carrier = self.host(1, "copies")

    @classmethod
    def open(
        cls, info: DeviceInfo, validation: bool | None = None, limits: Limits | None = None
    ) -> Self:
        """Open a listed device. `validation` None: as KOMPUTE_LLM_VALIDATION says.

        `limits` replaces those of the device, to stand for a smaller one.
        """
        if info.usable:
            raise DeviceError(f"{info.name} cannot be used: {info.usable}")
        wanted = layer.validation_wanted() if validation is None else validation
        return cls(info, wanted, limits)

    @property
    def describe(self) -> str:
        """Name and driver, for people."""
        return f"{self.info.name} ({self.info.driver})"

    # -- buffers ------------------------------------------------------------------------------

    def storage(self, words: int, name: str) -> Any:
        """Device memory for `words` uint32, contents undefined, no copy on the host."""
        self._check_size(words, name)
        # Kompute reads the size but not the data: this array claims memory that it has not.
        size = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint32), (words,), (4,))
        return self._tensor(size, self._kp.TensorTypes.storage, name)

    def host(self, words: int, name: str = "host buffer") -> Any:
        """Host memory that shaders and copies can use, zeroed."""
        self._check_size(words, name)
        return self._tensor(np.zeros(words, np.uint32), self._kp.TensorTypes.host, name)

    def exchange(self, words: int, name: str = "exchange buffer") -> Any:
        """Device memory with a host copy; `sync_device` and `sync_local` move the data."""
        self._check_size(words, name)
        return self._tensor(np.zeros(words, np.uint32), self._kp.TensorTypes.device, name)

    def _check_size(self, words: int, name: str) -> None:
        limit = min(self.limits.allocation, self.limits.storage_range, (1 << 32) - 4)
        if not 0 < words * 4 <= limit:
            raise DeviceError(
                f"{name}: {words * 4} bytes asked for, one buffer may have {limit} on this device"
            )

    def _tensor(self, data: Words, kind: Any, name: str) -> Any:
        self._alive()
        self._layer.clear_hints()
        tensor = self._call(name, self._manager.tensor_t, data, kind)
        self._handles[tensor] = self._layer.created_buffers()
        try:
            self._raise_error(name)
        except DeviceError:
            tensor.destroy()
            raise
        return tensor

    # -- recording ----------------------------------------------------------------------------

    def algorithm(
        self, name: str, tensors: Many[Any], spirv: bytes, spec: Many[int] = (),
        push_words: int = 0, subgroup_size: int = 0,
    ) -> Any:
        """A pipeline with its bindings. `subgroup_size` is required of it when not 0."""
        self._alive()
        if len(tensors) > self.info.bindings:
            raise DeviceError(
                f"shader {name} has {len(tensors)} buffers, {self.info.name} allows "
                f"{self.info.bindings}"
            )
        if push_words * 4 > self.limits.push_bytes:
            raise DeviceError(f"shader {name} has {push_words * 4} bytes of push constants, "
                              f"{self.info.name} allows {self.limits.push_bytes}")
        self._layer.clear_hints()
        self._layer.next_pipeline(subgroup_size)
        made = self._call(
            f"shader {name}", self._manager.algorithm, list(tensors), spirv, [1, 1, 1],
            np.array(spec, np.uint32), np.zeros(push_words, np.uint32),
        )
        try:
            self._raise_error(f"shader {name}")
        except DeviceError:
            made.destroy()
            raise
        return made

    def sequence(self, timestamps: int = 0) -> Sequence:
        """An empty sequence; with `timestamps`, room for the ticks of that many records."""
        self._alive()
        if timestamps and not self.info.timestamp_bits:
            raise DeviceError(f"{self.info.name} has no timestamps")
        handle = self._call("sequence", self._manager.sequence, 0, timestamps)
        self._raise_error("sequence")
        made = Sequence(handle, timestamps)
        self._sequences.add(made)
        return made

    def record(
        self, seq: Sequence, algorithm: Any, push: Words | None, grid: tuple[int, int, int],
        independent: bool = False,
    ) -> None:
        """Append a dispatch of `grid` workgroups with these push constants.

        `independent`: it neither reads nor overwrites what dispatches wrote, nor writes what
        they read, since the last one that was recorded without this word.
        """
        if push is None or not len(push):
            op = self._kp.OpAlgoDispatch(algorithm)
        else:
            # Kompute compares dtypes by identity: a fresh array has the right object.
            op = self._kp.OpAlgoDispatch(algorithm, np.array(push, np.uint32))
        self._layer.next_dispatch(*grid, independent)
        self._record(seq, op)

    def sync_device(self, seq: Sequence, tensors: Many[Any]) -> None:
        """Append copies of the host sides of `exchange` tensors to the device."""
        self._record(seq, self._kp.OpTensorSyncDevice(list(tensors)))

    def sync_local(self, seq: Sequence, tensors: Many[Any]) -> None:
        """Append copies of `exchange` tensors back to their host sides."""
        self._record(seq, self._kp.OpTensorSyncLocal(list(tensors)))

    def copy(
        self, seq: Sequence, src: Any, dst: Any, src_word: int, dst_word: int, words: int
    ) -> None:
        """Append a copy of `words` words between two tensors of any kind."""
        if src_word + words > len(src) or dst_word + words > len(dst) or words <= 0:
            raise ValueError("copy outside of a tensor")
        handles = self._handles[src][0], self._handles[dst][0]
        self._layer.next_copy(*handles, src_word * 4, dst_word * 4, words * 4)
        # Kompute copies whole tensors of equal size only; the layer exchanges this one's buffers.
        seq.kept += [src, dst]
        self._record(seq, self._kp.OpTensorCopy([self._carrier, self._carrier]))

    def _record(self, seq: Sequence, op: Any) -> None:
        self._alive()
        if seq.timestamps and seq.records >= seq.timestamps:
            raise ValueError(f"the sequence has room for {seq.timestamps} timestamps only")
        try:
            seq.handle.record(op)
        except RuntimeError as e:
            self._layer.clear_hints()
            raise DeviceError(f"recording failed on {self.info.name}: {e}") from e
        seq.records += 1

    # -- running ------------------------------------------------------------------------------

    def eval(self, seq: Sequence) -> None:
        """Run a recorded sequence and wait for it. Other Python threads run meanwhile."""
        self._alive()
        try:
            seq.handle.eval()
        except RuntimeError as e:
            self._raise_error("running a sequence")
            raise DeviceError(f"running a sequence failed on {self.info.name}: {e}") from e
        self._raise_error("running a sequence")

    @property
    def timestamp_period(self) -> float:
        """Nanoseconds per tick."""
        return self.info.timestamp_period

    def elapsed(self, seq: Sequence) -> npt.NDArray[np.float64]:
        """Seconds of each record of the last eval: (records,). Counters may wrap around."""
        bits = self.info.timestamp_bits
        mask = np.uint64((1 << bits) - 1)
        return (np.diff(seq.ticks()) & mask).astype(np.float64) * self.timestamp_period * 1e-9

    def heaps(self) -> tuple[device_info.Heap, ...]:
        """Memory heaps with what is free now."""
        return tuple(
            device_info.Heap(size, budget, used or ours, bool(flags & 1), False)
            for size, budget, used, flags, ours in self._layer.memory(self._id)
        )

    def counters(self) -> dict[str, int]:
        """What the layer did so far: submits, fences, dispatches, barriers, …"""
        return dict(self._layer.counters(self._id))

    def spin(self, microseconds: int) -> None:
        """How long a wait polls before it blocks. Default: 2000 on a GPU, 0 on software."""
        self._layer.set_spin(self._id, microseconds)

    # -- errors and the end -------------------------------------------------------------------

    def _alive(self) -> None:
        if self.fatal:
            raise self.fatal
        if self._manager is None:
            raise DeviceError("the device is closed")

    def _call(self, what: str, function: Any, *args: Any) -> Any:
        """A call into Kompute whose own exceptions become DeviceError."""
        try:
            return function(*args)
        except (RuntimeError, MemoryError) as e:
            self._layer.clear_hints()
            self._raise_error(what)
            raise DeviceError(f"{what}: {e} on {self.info.name}") from e

    def _raise_error(self, what: str) -> None:
        error = self._layer.take_error(self._id)
        if error is None:
            return
        where, result, size = error
        text = f"{what}: {result_text(result)} in {where} on {self.info.name}."
        if result in (-1, -2):
            asked = f" {size / 2**20:.1f} MiB asked for." if size else ""
            text = f"{text}{asked} {self._heap_text()} {_MEMORY}"
        if self._layer.counters(self._id)["lost"]:
            self.fatal = DeviceError(f"{text} {_LOST}" if result == DEVICE_LOST else text)
            raise self.fatal
        raise DeviceError(text)

    def _heap_text(self) -> str:
        parts = [
            f"{'device' if h.device_local else 'host'} {h.free / 2**30:.2f} of "
            f"{h.size / 2**30:.2f} GiB free"
            for h in self.heaps()
        ]
        return "Memory: " + ", ".join(parts) + "."

    def close(self) -> None:
        """Save compiled pipelines and free everything. Arrays of `data()` become invalid."""
        if self._manager is None:
            return
        if not self.fatal:
            self._cache.save(self._layer.pipeline_cache_data(self._id))
        self._manager.destroy()
        self._manager = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_device(
    which: str | None = None, validation: bool | None = None, limits: Limits | None = None
) -> Device:
    """Open the device that `choose(which)` names. Use it in a `with` statement."""
    return Device.open(choose(which), validation, limits)


__all__ = ["Device", "DeviceInfo", "Sequence", "choose", "list_devices", "open_device"]
