"""One open Vulkan device: buffers, algorithms, recorded sequences.

Everything that reaches the driver goes through the runtime layer (engine/layer.c), which mends
what is wrong with Kompute 0.9.0, and raises DeviceError where Vulkan failed.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence as Many
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..kernels.limits import Limits
from . import device_errors, layer
from .connection import Connection
from .device_info import DeviceInfo, choose, list_devices
from .errors import DeviceError

Words = npt.NDArray[np.uint32]


class Sequence:
    """A recorded command buffer, replayed by `Device.eval`. Made by `Device.sequence`."""

    def __init__(self, handle: Any, timestamps: int) -> None:
        self.handle = handle
        self.timestamps = timestamps
        self.records = 0
        self.reads = False  # has copies to host sides, which Kompute takes when an eval returns
        self.started = False  # by `Device.start`, and not finished
        self.fence = 0  # that ends it
        self.kept: list[Any] = []  # tensors of copies, which Kompute does not know of

    def ticks(self) -> npt.NDArray[np.uint64]:
        """Timestamps of the last eval: (records + 1,), one before and one after each record."""
        return np.array(self.handle.get_timestamps(), np.uint64)


class Device(Connection):
    """An open device. For one thread at a time; while `eval` waits, other threads run.

    Tensors are Kompute's: `data()` is a uint32 array of the host side, valid until `close`.
    """

    def __init__(self, info: DeviceInfo, validation: bool, limits: Limits | None) -> None:
        super().__init__(info, validation)
        self.limits = limits or info.limits
        self._handles: weakref.WeakKeyDictionary[Any, tuple[int, ...]] = weakref.WeakKeyDictionary()
        self._started: list[Sequence] = []  # they live until they are finished
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
            raise DeviceError(f"{info.name} cannot be used: {info.usable}.")
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
        return self._tensor(size, self.kp.TensorTypes.storage, name)

    def host(self, words: int, name: str = "host buffer") -> Any:
        """Host memory that shaders and copies can use, zeroed."""
        self._check_size(words, name)
        return self._tensor(np.zeros(words, np.uint32), self.kp.TensorTypes.host, name)

    def exchange(self, words: int, name: str = "exchange buffer") -> Any:
        """Device memory with a host side; `sync_device` and `sync_local` move the data."""
        self._check_size(words, name)
        return self._tensor(np.zeros(words, np.uint32), self.kp.TensorTypes.device, name)

    def _check_size(self, words: int, name: str) -> None:
        self.alive()
        if words <= 0:
            raise ValueError(f"{name}: a buffer of {words} words")
        limit = min(self.limits.allocation, self.limits.storage_range, (1 << 32) - 4)
        if words * 4 > limit:
            raise device_errors.too_large(name, words * 4, limit, self.info)
        heaps = self.heaps()
        # Software's heaps say nothing of what the machine has left; real ones do by their budget.
        if self.info.type == "cpu":
            free = device_errors.available_host_memory() or words * 4
        else:
            free = max(h.free for h in heaps if h.device_local or self.info.unified)
        if words * 4 > free:
            raise device_errors.no_room(name, words * 4, self.info, heaps)

    def _tensor(self, data: Words, kind: Any, name: str) -> Any:
        self.layer.clear_hints()
        self.layer.host_buffers(kind == self.kp.TensorTypes.host)
        tensor = self.call(name, self.manager.tensor_t, data, kind)
        self._handles[tensor] = self.layer.created_buffers()
        self.layer.clear_hints()
        return self.checked(tensor, name)

    # -- recording ----------------------------------------------------------------------------

    def algorithm(
        self, name: str, tensors: Many[Any], spirv: bytes, spec: Many[int] = (),
        push_words: int = 0, subgroup_size: int = 0,
    ) -> Any:
        """A pipeline with its bindings. `subgroup_size` is required of it when not 0."""
        for count, limit, what in (
            (len(tensors), self.info.bindings, "buffers"),
            (push_words * 4, self.limits.push_bytes, "bytes of push constants"),
        ):
            if count > limit:
                raise DeviceError(
                    f"Shader {name} has {count} {what}, {self.info.name} allows {limit}."
                )
        self.layer.clear_hints()
        self.layer.next_pipeline(subgroup_size)
        what = f"shader {name}"
        made = self.call(
            what, self.manager.algorithm, list(tensors), spirv, [1, 1, 1],
            np.array(spec, np.uint32), np.zeros(push_words, np.uint32),
        )
        return self.checked(made, what)

    def compile(
        self, name: str, bindings: int, spirv: bytes, spec: Many[int] = (), push_words: int = 0,
        subgroup_size: int = 0,
    ) -> None:
        """Compile a pipeline into the cache, for `algorithm` to find. Any thread may call this."""
        some = [self._carrier] * bindings
        self.algorithm(name, some, spirv, spec, push_words, subgroup_size).destroy()

    def sequence(self, timestamps: int = 0) -> Sequence:
        """An empty sequence; with `timestamps`, room for the ticks of that many records."""
        if timestamps and not self.info.timestamp_bits:
            raise DeviceError(f"{self.info.name} has no timestamps.")
        handle = self.call("sequence", self.manager.sequence, 0, timestamps)
        return Sequence(self.checked(handle, "sequence"), timestamps)

    def record(
        self, seq: Sequence, algorithm: Any, push: Words | None, grid: tuple[int, int, int],
        independent: bool = False,
    ) -> None:
        """Append a dispatch of `grid` workgroups with these push constants.

        `independent`: it neither reads nor overwrites what dispatches wrote, nor writes what
        they read, since the last one that was recorded without this word.
        """
        op = self._dispatch(algorithm, push)
        self.layer.next_dispatch(*grid, independent)
        self._record(seq, op)

    def _dispatch(self, algorithm: Any, push: Words | None) -> Any:
        if push is None or not len(push):
            return self.kp.OpAlgoDispatch(algorithm)
        # Kompute compares dtypes by identity: a fresh array has the right object.
        return self.kp.OpAlgoDispatch(algorithm, np.array(push, np.uint32))

    def sync_device(self, seq: Sequence, tensors: Many[Any]) -> None:
        """Append copies of the host sides of `exchange` tensors to the device."""
        self._record(seq, self.kp.OpTensorSyncDevice(list(tensors)))

    def sync_local(self, seq: Sequence, tensors: Many[Any]) -> None:
        """Append copies of `exchange` tensors back to their host sides."""
        self._record(seq, self.kp.OpTensorSyncLocal(list(tensors)))
        seq.reads = True

    def copy(
        self, seq: Sequence, src: Any, dst: Any, src_word: int, dst_word: int, words: int
    ) -> None:
        """Append a copy of `words` words between two tensors of any kind."""
        fits = src_word + words <= len(src) and dst_word + words <= len(dst)
        if min(src_word, dst_word) < 0 or words <= 0 or not fits:
            raise ValueError("copy outside of a tensor")
        handles = self._handles[src][0], self._handles[dst][0]
        # Kompute copies whole tensors of equal size only; the layer exchanges this one's buffers.
        op = self.kp.OpTensorCopy([self._carrier, self._carrier])
        self.layer.next_copy(*handles, src_word * 4, dst_word * 4, words * 4)
        seq.kept += [src, dst]
        self._record(seq, op)

    def _record(self, seq: Sequence, op: Any) -> None:
        if seq.timestamps and seq.records >= seq.timestamps:
            raise ValueError(f"the sequence has room for {seq.timestamps} timestamps only")
        self.call("recording", seq.handle.record, op)
        seq.records += 1

    # -- running ------------------------------------------------------------------------------

    def eval(self, seq: Sequence) -> None:
        """Run a recorded sequence and wait for it. Other Python threads run meanwhile."""
        if seq.started:
            raise ValueError("the sequence was started and not finished")
        with self.running:
            self.call("running", seq.handle.eval)
            self.checked(None, "running")

    def start(self, seq: Sequence) -> None:
        """Submit a recorded sequence and return at once; `finish` waits. Later submits see its
        results, Python those in `host` buffers. ValueError: it runs already, or has copies to host
        sides (`sync_local`)."""
        if seq.started or seq.reads:
            raise ValueError("a sequence to start that runs already, or copies to host sides")
        with self.running:
            self.layer.leave_wait(self.id, True)
            try:
                self.call("submitting", seq.handle.eval)
            finally:
                seq.fence = self.layer.leave_wait(self.id, False)
            self.checked(None, "submitting")
            seq.started = True
            self._started.append(seq)

    def submit(self, algorithm: Any, push: Words | None, grid: tuple[int, int, int]) -> Sequence:
        """Submit one dispatch and return at once; `finish` waits. Later submits see its results."""
        seq, op = self.sequence(), self._dispatch(algorithm, push)
        self.layer.next_dispatch(*grid, False)
        with self.running:
            self.call("submitting", seq.handle.eval_async, op)
            self.checked(None, "submitting")
        return seq

    def finish(self, submits: Many[Sequence]) -> None:
        """Wait for what `submit` and `start` submitted, in this order."""
        with self.running:
            for seq in submits:
                if seq.started:
                    seq.started = False
                    self._started.remove(seq)
                    self.call("running", self.layer.finish_wait, self.id, seq.fence)
                else:
                    self.call("running", seq.handle.eval_await)
                self.checked(None, "running")

    def close(self) -> None:
        """As `Connection.close`, behind what was started; its failure is raised when all is
        closed."""
        try:
            if not self.fatal:
                self.finish(list(self._started))
        finally:
            super().close()

    @property
    def timestamp_period(self) -> float:
        """Nanoseconds per tick."""
        return self.info.timestamp_period

    def elapsed(self, seq: Sequence) -> npt.NDArray[np.float64]:
        """Seconds of each record of the last eval: (records,). Counters may wrap around."""
        mask = np.uint64((1 << self.info.timestamp_bits) - 1)
        return (np.diff(seq.ticks()) & mask).astype(np.float64) * self.timestamp_period * 1e-9

    def spin(self, microseconds: int) -> None:
        """How long a wait polls before it blocks. Default: 2000 on a GPU, 0 on software."""
        self.layer.set_spin(self.id, microseconds)


def open_device(
    which: str | None = None, validation: bool | None = None, limits: Limits | None = None
) -> Device:
    """Open the device that `choose(which)` names. Use it in a `with` statement."""
    return Device.open(choose(which), validation, limits)


__all__ = ["Device", "DeviceInfo", "Sequence", "choose", "list_devices", "open_device"]
