"""Clocks of a GPU, where its driver tells them: MHz now and at most, of shaders and of memory.

AMD and Intel write them into files of /sys/class/drm, NVIDIA answers through its management
library (libnvidia-ml). What is not there is left out; nothing here fails, or waits for long.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import threading
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from .device_info import DeviceInfo

WAIT = 0.05  # seconds that a result may be waited for
DRM = Path("/sys/class/drm")
NVIDIA, AMD = 0x10DE, 0x1002
LIBRARY = "libnvidia-ml.so.1"
# nvmlClockType_t: of the graphics engine 0, of memory 2
_KINDS = {"graphics": 0, "memory": 2}
_LEVEL = re.compile(r"(\d+)\s*mhz\s*(\*?)", re.I)  # a line of pp_dpm_sclk: "1: 2475Mhz *"
# Files under a card's folder (i915, i915 by tile, xe), the first that exists counts
_NOW = ("gt_cur_freq_mhz", "gt/gt0/rps_cur_freq_mhz", "device/tile0/gt0/freq0/cur_freq")
_MOST = (
    "gt_RP0_freq_mhz", "gt/gt0/rps_RP0_freq_mhz", "device/tile0/gt0/freq0/rp0_freq",
    "gt_max_freq_mhz", "gt/gt0/rps_max_freq_mhz", "device/tile0/gt0/freq0/max_freq",
)  # fmt: skip

Clocks = dict[str, int]  # graphics_mhz, graphics_max_mhz, memory_mhz, memory_max_mhz


class Reading:
    """A reading that has begun. Drivers may take long to answer at first, so it has a thread."""

    def __init__(self, info: DeviceInfo, read: Callable[[DeviceInfo], Clocks] | None = None):
        self._found: Clocks = {}
        self._thread = threading.Thread(target=self._run, args=(info, read or clocks), daemon=True)
        self._thread.start()

    def _run(self, info: DeviceInfo, read: Callable[[DeviceInfo], Clocks]) -> None:
        # a file or function that is missing, not allowed or not as expected
        with contextlib.suppress(OSError, ValueError, AttributeError, ctypes.ArgumentError):
            self._found = read(info)

    def result(self, wait: float = WAIT) -> Clocks:
        """What is known after at most `wait` seconds; {} if nothing is."""
        self._thread.join(wait)
        return self._found


def clocks(info: DeviceInfo) -> Clocks:
    """The clocks of a device now. Raises OSError, ValueError or AttributeError."""
    if info.type == "cpu":
        return {}
    if info.ids[0] == NVIDIA:
        return nvml_clocks(_nvml(), info)
    return drm_clocks(DRM, info)


# --- files of the kernel ---------------------------------------------------------------------


def drm_clocks(folder: Path, info: DeviceInfo) -> Clocks:
    """From /sys/class/drm; {} unless exactly one card there can be this device."""
    cards = [c for c in sorted(folder.glob("card*")) if c.name[4:].isdecimal() and
             (_hex(c, "vendor"), _hex(c, "device")) == info.ids[:2]]  # fmt: skip
    if len(cards) > 1 and info.ids[0] == AMD:
        cards = [c for c in cards if (c / "device").resolve().name == _address(info.uuid)]
    if len(cards) != 1 or _text(cards[0] / "device/power/runtime_status") == "suspended":
        return {}  # reading would wake it
    found: Clocks = {}
    for name, file in (("graphics", "pp_dpm_sclk"), ("memory", "pp_dpm_mclk")):
        levels = _LEVEL.findall(_text(cards[0] / "device" / file))
        found |= {f"{name}_mhz": int(mhz) for mhz, now in levels if now}
        if levels:
            found[f"{name}_max_mhz"] = max(int(mhz) for mhz, _ in levels)
    for name, files in (("graphics_mhz", _NOW), ("graphics_max_mhz", _MOST)):
        texts = (_text(cards[0] / f) for f in files)
        if number := next((t for t in texts if t.isdecimal()), ""):
            found[name] = int(number)
    return found


def _text(path: Path) -> str:
    """A small file's text; "" where it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _hex(card: Path, name: str) -> int:
    text = _text(card / "device" / name)
    return int(text, 16) if re.fullmatch("0x[0-9a-fA-F]+", text) else -1


def _address(device: bytes) -> str:
    """PCI address of an AMD GPU: Mesa's UUID is domain, bus, device and function, 32 bits each
    (ac_compute_device_uuid)."""
    if len(device) != 16:
        return ""
    domain, bus, slot, function = (int.from_bytes(device[i : i + 4], "little")
                                   for i in range(0, 16, 4))  # fmt: skip
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


# --- NVIDIA's library ------------------------------------------------------------------------


@cache
def _nvml() -> Any:
    """The library, started. Raises OSError where there is none."""
    library = ctypes.CDLL(LIBRARY)
    if library.nvmlInit_v2():
        raise OSError(f"{LIBRARY} does not start")
    return library


def nvml_clocks(library: Any, info: DeviceInfo) -> Clocks:
    """From NVML's functions; {} for a device that it does not know."""
    handle = _handle(library, info)
    if handle is None:
        return {}
    found: Clocks = {}
    for name, kind in _KINDS.items():
        for key, function in (
            (f"{name}_mhz", library.nvmlDeviceGetClockInfo),
            (f"{name}_max_mhz", library.nvmlDeviceGetMaxClockInfo),
        ):
            mhz = ctypes.c_uint()
            if not function(handle, kind, ctypes.byref(mhz)):
                found[key] = mhz.value
    return found


def _handle(library: Any, info: DeviceInfo) -> Any:
    """NVML's handle of a device: by its UUID, which is Vulkan's, else by a name that is unique."""
    handle = ctypes.c_void_p()
    if len(info.uuid) == 16:
        name = f"GPU-{uuid.UUID(bytes=info.uuid)}".encode()
        if not library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)):
            return handle
    count, named = ctypes.c_uint(), []
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for i in range(count.value):
        other, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if library.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(other)):
            continue
        if not library.nvmlDeviceGetName(other, text, len(text)) and text.value == (
            info.name.encode()
        ):
            named.append(other)
    return named[0] if len(named) == 1 else None
