"""What to tell a user when Vulkan fails: the result in words, the memory there is, what to try."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .device_info import DeviceInfo, Heap
from .errors import DeviceError

OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_LOST = -1, -2, -4  # VkResult
_RESULTS = {
    OUT_OF_HOST_MEMORY: "out of host memory", OUT_OF_DEVICE_MEMORY: "out of device memory",
    -3: "initialization failed", DEVICE_LOST: "device lost", -5: "memory cannot be mapped",
    -7: "extension missing", -8: "feature missing", -9: "driver incompatible",
    -10: "too many objects", -12: "fragmented pool", -13: "unknown error",
    -1000069000: "out of pool memory", -1000012000: "invalid shader",
}  # fmt: skip
_LOST = (
    "The device stopped answering. If it was busy with a long prompt, the driver's watchdog may "
    "have ended that: try a smaller batch (-b). The device cannot be used further in this run."
)
_MEMORY = (
    "Try a smaller context (-c), a smaller or more strongly quantized model, or close other "
    "programs that use the device."
)


def result_text(result: int) -> str:
    """A VkResult in words."""
    return f"{_RESULTS.get(result, 'error')} ({result})"


def heap_text(heaps: Sequence[Heap]) -> str:
    """The memory of a device in one sentence."""
    parts = (
        f"{'device' if h.device_local else 'host'} {h.free / 2**30:.2f} of "
        f"{h.size / 2**30:.2f} GiB free"
        for h in heaps
    )
    return f"Memory: {', '.join(parts)}."


def failure(
    what: str, error: tuple[str, int, int], info: DeviceInfo, heaps: Sequence[Heap]
) -> DeviceError:
    """The exception for an error of the layer: (Vulkan function, VkResult, bytes asked for)."""
    where, result, size = error
    text = f"{what}: {result_text(result)} in {where} on {info.name}."
    if result in (OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY):
        asked = f" {size / 2**20:.1f} MiB asked for." if size else ""
        text = f"{text}{asked} {heap_text(heaps)} {_MEMORY}"
    if result == DEVICE_LOST:
        text = f"{text} {_LOST}"
    return DeviceError(text)


def too_large(what: str, size: int, limit: int, info: DeviceInfo) -> DeviceError:
    """The exception for a buffer that no device memory call would grant."""
    return DeviceError(
        f"{what}: {size / 2**20:.1f} MiB asked for, one buffer may have {limit / 2**20:.1f} MiB "
        f"on {info.name}."
    )


def no_room(what: str, size: int, info: DeviceInfo, heaps: Sequence[Heap]) -> DeviceError:
    """The exception for a buffer larger than what is free."""
    return DeviceError(
        f"{what}: {size / 2**20:.1f} MiB asked for, more than {info.name} has left. "
        f"{heap_text(heaps)} {_MEMORY}"
    )


def available_host_memory() -> int | None:
    """Bytes that programs can still get on this machine; None where Linux's figure is missing."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
