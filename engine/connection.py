"""Kompute on one Vulkan device, opened through the runtime layer. The only `import kp`.

Kompute ignores most results of Vulkan. The layer (engine/layer.c) remembers the first failure;
`call` and `checked` ask for it and raise DeviceError.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from . import device_errors, layer
from .device_info import DeviceInfo, Heap
from .errors import DeviceError


def _import_kp() -> Any:
    """Kompute, without the root logger's handler that its import installs."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    try:
        import kp
    except ImportError as e:
        raise DeviceError(f"Kompute cannot be loaded (is libvulkan.so.1 installed?): {e}") from e
    root.handlers[:] = handlers
    return kp


class Connection:
    """A `kp.Manager` under the runtime layer, until `close` or the first fatal error."""

    def __init__(self, info: DeviceInfo, validation: bool) -> None:
        self.info = info
        self.fatal: DeviceError | None = None
        self.closing: list[Callable[[], None]] = []  # called before the device goes
        self.running = threading.Lock()  # held by `Device.eval`, which other threads may use
        self.kp = _import_kp()
        self.layer = layer.extension()
        checked = self.layer.check_device(info.index)  # Kompute would crash on a failure
        if checked:
            result = device_errors.result_text(checked)
            raise DeviceError(f"{info.name} cannot be opened: {result}.")
        with layer.active(validation):
            self.manager = self.kp.Manager(info.index, [info.queue_family])
            self.id = self.layer.last_device()
        if not self.id:
            raise DeviceError(
                "The Vulkan loader did not load the runtime layer; VK_LOADER_DEBUG=all tells why."
            )
        actual = self.layer.device_facts(self.id)["name"]
        if actual != info.name:
            raise DeviceError(f"Device {info.index} is {actual} now, it was {info.name}.")
        self._cache = layer.PipelineCache(info.ids, info.driver, info.cache_uuid)
        if saved := self._cache.load():
            self.layer.pipeline_cache_load(self.id, saved)

    def heaps(self) -> tuple[Heap, ...]:
        """Memory heaps with what is free now."""
        now = self.layer.memory(self.id)
        return tuple(
            Heap(size, budget, used or ours, bool(flags & 1), known.host_visible)
            for (size, budget, used, flags, ours), known in zip(now, self.info.heaps, strict=True)
        )

    def counters(self) -> dict[str, int]:
        """What the layer did so far: submits, fences, dispatches, barriers, …"""
        return dict(self.layer.counters(self.id))

    def alive(self) -> None:
        """Raise the error that ended this connection, if one did."""
        if self.fatal:
            raise self.fatal
        if self.manager is None:
            raise DeviceError("The device is closed.")

    def call(self, what: str, function: Any, *args: Any) -> Any:
        """A call into Kompute whose own exceptions become DeviceError."""
        self.alive()
        try:
            return function(*args)
        except (RuntimeError, MemoryError) as e:
            self.layer.clear_hints()
            self.checked(None, what)
            raise DeviceError(f"{what}: {e} on {self.info.name}.") from e

    def checked(self, made: Any, what: str) -> Any:
        """`made`, or the first error that the layer remembered meanwhile."""
        error = self.layer.take_error(self.id)
        if error is None:
            return made
        failure = device_errors.failure(what, error, self.info, self.heaps())
        if self.layer.counters(self.id)["lost"]:
            self.fatal = failure
        if made is not None:
            made.destroy()
        raise failure

    def close(self) -> None:
        """Save compiled pipelines and free everything. Arrays of `data()` become invalid.

        Waits for an `eval` of another thread; what comes after that one raises DeviceError.
        """
        while self.closing:
            self.closing.pop()()
        with self.running:
            if self.manager is None:
                return
            if not self.fatal:
                self._cache.save(self.layer.pipeline_cache_data(self.id))
            self.manager.destroy()
            self.manager = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
