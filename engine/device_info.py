"""The Vulkan devices of this machine: what they are, what they offer, which one to take."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..kernels.limits import Limits
from . import layer
from .errors import DeviceError, UsageError

# VkPhysicalDeviceType, and the order of preference: least is best.
_TYPES = ("other", "integrated", "discrete", "virtual", "cpu")
_RANK = {"discrete": 0, "integrated": 1, "virtual": 2, "other": 3, "cpu": 4}
_VENDORS = {
    0x1002: "AMD", 0x1010: "Imagination", 0x10DE: "NVIDIA", 0x106B: "Apple", 0x13B5: "Arm",
    0x5143: "Qualcomm", 0x8086: "Intel", 0x10005: "Mesa", 0x1414: "Microsoft",
}  # fmt: skip
_COMPUTE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT
# VkSubgroupFeatureFlagBits: basic 1, vote 2, arithmetic 4, ballot 8, shuffle 16.
_ARITHMETIC_SHUFFLE = 0x1 | 0x4 | 0x10
# VkComponentTypeKHR float16 0, float32 1 (factors, sums, result); VkScopeKHR subgroup 3.
_HALF_MATRIX = (0, 0, 1, 1, 3)
DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 1, 2, 4, 8
_SMALL_BAR = 256 << 20  # the window into VRAM that PCI gives without resizable BAR


@dataclass(frozen=True)
class Heap:
    """One memory heap, bytes. `budget` is what this process may have of it, 0 if unknown."""

    size: int
    budget: int
    used: int
    device_local: bool
    host_visible: bool  # some memory type of this heap can be mapped

    @property
    def free(self) -> int:
        """Bytes that can probably still be allocated."""
        return max((self.budget or self.size) - self.used, 0)


@dataclass(frozen=True)
class DeviceInfo:
    """One device as the loader lists it; `index` is what Kompute wants."""

    index: int
    name: str
    type: str  # "discrete", "integrated", "virtual", "cpu", "other"
    vendor: str
    driver: str
    api: tuple[int, int, int]
    limits: Limits
    heaps: tuple[Heap, ...]
    uuid: bytes
    cache_uuid: bytes
    ids: tuple[int, int, int]  # vendor, device, driver version
    bindings: int  # storage buffers that one shader may have
    queue_family: int  # that work is submitted to
    timestamp_period: float  # ns per tick
    timestamp_bits: int  # 0 = no timestamps
    matrix_shapes: tuple[tuple[int, ...], ...]  # M, N, K, types of A, B, C and result, scope
    int_dot: str  # products of 4 packed int8: "accelerated", "emulated" or "none"
    usable: str | None = None  # why not, or None
    duplicate: int | None = None  # the same GPU through another driver, listed before

    @property
    def unified(self) -> bool:
        """Whether CPU and device share one memory."""
        if self.type in ("discrete", "integrated", "cpu"):
            return self.type != "discrete"
        return all(h.device_local for h in self.heaps)

    @property
    def vram(self) -> int:
        """Bytes of the largest device-local heap."""
        return max((h.size for h in self.heaps if h.device_local), default=0)

    @property
    def bar(self) -> int:
        """Bytes of device-local memory that the CPU can map."""
        return max((h.size for h in self.heaps if h.device_local and h.host_visible), default=0)

    @property
    def small_bar(self) -> bool:
        """Whether the CPU sees VRAM through a small window only."""
        return not self.unified and 0 < self.bar <= _SMALL_BAR < self.vram


def _matrix_shape(raw: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """The largest cooperative product of f16 with f32 sums in a subgroup, as (M, N, K)."""
    fit = [s[:3] for s in raw.get("matrix_shapes", ()) if tuple(s[3:]) == _HALF_MATRIX]
    small = [(m, n, k) for m, n, k in fit if m in (8, 16) and n in (8, 16) and k <= 32]
    return max(small, key=lambda s: s[0] * s[1] * s[2], default=None)


def _limits(raw: Mapping[str, Any], cpu: bool) -> Limits:
    """`Limits` from a dict of `_layer.device_list`."""
    same = (
        "workgroup_invocations", "workgroup_size", "grid", "shared_bytes", "storage_range",
        "allocation", "push_bytes", "float16", "storage16", "int8",
    )  # fmt: skip
    size = raw["subgroup_size"]
    in_compute = bool(raw["subgroup_stages"] & _COMPUTE)
    operations = raw["subgroup_operations"] & _ARITHMETIC_SHUFFLE == _ARITHMETIC_SHUFFLE
    fixed = bool(raw["subgroup_size_stages"] & _COMPUTE) and raw["subgroup_control"]
    shape = _matrix_shape(raw) if raw["coopmat"] and raw["float16"] else None
    return Limits(
        **{k: raw[k] for k in same},
        subgroup_size=size,
        subgroup_min=raw["subgroup_min"] or size,
        subgroup_max=raw["subgroup_max"] or size,
        subgroup_count=raw["subgroup_count"],
        subgroup_arithmetic=in_compute and operations,
        full_subgroups=fixed and raw["full_subgroups"],
        # Vulkan 1.3 makes everybody offer the operation; only where it is fast it is worth it.
        int_dot=raw["int_dot"] and raw["int_dot_accelerated"],
        coopmat=shape is not None and fixed and raw["full_subgroups"],
        coopmat_shape=shape or Limits.coopmat_shape,
        software=cpu,
        compute_units=raw["compute_units"] or (os.cpu_count() or 1 if cpu else 1),
    )


def _int_dot(raw: Mapping[str, Any]) -> str:
    if not raw.get("int_dot"):
        return "none"
    return "accelerated" if raw["int_dot_accelerated"] else "emulated"


def _unusable(raw: Mapping[str, Any]) -> str | None:
    api = raw["api"]
    if api < (1, 2, 0):
        return f"Vulkan {api[0]}.{api[1]} only, 1.2 is needed"
    if not raw["compute"]:
        return "no compute queue"
    if raw["bindings"] < 4:
        return "fewer than 4 storage buffers per shader"
    return None


def _heaps(raw: Mapping[str, Any]) -> tuple[Heap, ...]:
    mapped = {heap for flags, heap in raw["types"] if flags & HOST_VISIBLE}
    return tuple(
        Heap(size, budget, used, bool(flags & DEVICE_LOCAL), i in mapped)
        for i, (size, budget, used, flags) in enumerate(raw["heaps"])
    )


def parse(index: int, raw: Mapping[str, Any]) -> DeviceInfo:
    """One entry of `_layer.device_list`. Devices before Vulkan 1.1 have few entries."""
    kind = _TYPES[raw["type"]] if raw["type"] < len(_TYPES) else "other"
    old = raw["api"] < (1, 1, 0)
    driver = " ".join(x for x in (raw.get("driver", ""), raw.get("driver_info", "")) if x)
    return DeviceInfo(
        index=index, name=raw["name"], type=kind,
        vendor=_VENDORS.get(raw["vendor_id"], f"vendor {raw['vendor_id']:#06x}"),
        driver=driver or f"driver {raw['driver_version']:#x}", api=raw["api"],
        limits=Limits() if old else _limits(raw, kind == "cpu"),
        heaps=() if old else _heaps(raw), uuid=raw.get("uuid", b""),
        cache_uuid=raw["cache_uuid"],
        ids=(raw["vendor_id"], raw["device_id"], raw["driver_version"]),
        bindings=raw["bindings"], queue_family=raw["queue_family"],
        timestamp_period=raw["timestamp_period"],
        timestamp_bits=raw["timestamp_bits"] if raw["timestamps"] else 0,
        matrix_shapes=tuple(raw.get("matrix_shapes", ())), int_dot=_int_dot(raw),
        usable=_unusable(raw),
    )  # fmt: skip


def mark_duplicates(infos: Sequence[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """Say of each GPU that an earlier usable entry is the same one (equal deviceUUID)."""
    first: dict[bytes, int] = {}
    out = []
    for info in infos:
        known = first.get(info.uuid) if info.uuid.strip(b"\0") and info.type != "cpu" else None
        if known is None and not info.usable:
            first[info.uuid] = info.index
        out.append(replace(info, duplicate=known))
    return tuple(out)


def list_devices() -> tuple[DeviceInfo, ...]:
    """All devices in Kompute's order; empty without Vulkan. Raises DeviceError without layer."""
    raw = layer.extension().device_list()
    return mark_duplicates([parse(i, entry) for i, entry in enumerate(raw)])


def choose(spec: str | None = None, infos: Sequence[DeviceInfo] | None = None) -> DeviceInfo:
    """The device with index or name part `spec`; None: the best, a GPU before software.

    Raises UsageError with the list of devices when none fits, DeviceError when no device is
    there or the one named is unusable.
    """
    infos = list_devices() if infos is None else infos
    if not infos:
        raise DeviceError(
            "No Vulkan device found. Install the driver of your GPU (Debian: mesa-vulkan-drivers "
            "or nvidia-driver) and libvulkan1, or use --device cpu."
        )
    known = "; ".join(
        f"{d.index}: {d.name}" + (f" (unusable: {d.usable})" if d.usable else "") for d in infos
    )
    if spec is None:
        fit = sorted(infos, key=lambda d: (_RANK[d.type], d.duplicate is not None, d.index))
    elif spec.isdecimal():
        fit = [d for d in infos if d.index == int(spec)]
    else:
        fit = [d for d in infos if spec.casefold() in f"{d.name} {d.driver}".casefold()]
    if not fit:
        raise UsageError(f"there is no device '{spec}'; devices: {known}")
    usable = [d for d in fit if not d.usable]
    if not usable:
        raise DeviceError(f"No usable Vulkan device. Devices: {known}")
    return usable[0]
