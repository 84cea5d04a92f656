"""`devices`: the Vulkan devices of this machine, one line each, as tables or as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import click

from .options import Command, option
from .output import note, warn
from .tables import size, table

if TYPE_CHECKING:
    from ..engine.device_info import DeviceInfo

EXAMPLES = """\
The index, or a part of the name, is what --device of the other commands takes.
Free memory is what the driver would still give to one more program, where it tells that.

Examples:
  kompute-llm devices
  kompute-llm devices --verbose
  kompute-llm devices --json | jq '.[] | select(.type == "discrete") | .name'
"""
# VkComponentTypeKHR: the value types of cooperative matrices.
_COMPONENTS = dict(
    enumerate(("f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"))
) | {1000141000: "bf16", 1000491002: "e4m3", 1000491003: "e5m2"}


@click.command(cls=Command, after_help=lambda: EXAMPLES)
@option("-v", "--verbose", section="Output", is_flag=True, help="A table of all that matters.")
@option("--json", "as_json", section="Output", is_flag=True, help="Everything, as JSON.")
def devices(verbose: bool, as_json: bool) -> int:
    """List the Vulkan devices.

    The list goes to stdout, warnings go to stderr.
    """
    from ..engine.device_info import choose, list_devices

    found = list_devices()
    if as_json:
        click.echo(json.dumps([_plain(d) for d in found], indent=2))
        return 0
    if not found:
        note(
            "No Vulkan device: there is no Vulkan loader (libvulkan.so.1) or no driver. "
            "Models run on the CPU."
        )
        return 0
    usable = [d for d in found if not d.usable]
    first = choose(None, found).index if usable else -1
    for info in found:
        if verbose:
            table((f"device {info.index}", info.name), _rows(info, info.index == first))
        else:
            click.echo(_line(info))
    for info in found:
        _warn(info)
    return 0


def _line(d: DeviceInfo) -> str:
    """One device on one line, with the figures that llama.cpp's Vulkan backend prints."""
    limits = d.limits
    parts = (
        f"{d.index} = {d.name} ({d.driver})", d.type, f"uma: {d.unified:d}",
        f"fp16: {limits.float16:d}", f"subgroup size: {limits.subgroup_size}",
        f"shared memory: {limits.shared_bytes}", f"int dot: {limits.int_dot:d}",
        f"matrix cores: {'KHR_coopmat' if limits.coopmat else 'none'}",
        f"memory: {_memory(d)}",
    )  # fmt: skip
    return " | ".join(parts)


def _memory(d: DeviceInfo) -> str:
    """The largest device-local heap."""
    heap = max((h for h in d.heaps if h.device_local), key=lambda h: h.size, default=None)
    if heap is None:
        return "unknown"
    return f"{size(heap.free)} free of {size(heap.size)}" if heap.budget else size(heap.size)


def _use(d: DeviceInfo, first: bool) -> str:
    """Whether commands take this device."""
    if d.usable:
        return f"no: {d.usable}"
    return "by default" if first and d.type != "cpu" else "if asked for"


def _rows(d: DeviceInfo, first: bool) -> list[tuple[str, str]]:
    """Attribute and value, in the order of interest."""
    limits = d.limits
    subgroup = f"{limits.subgroup_size} (can be {limits.subgroup_min} to {limits.subgroup_max})"
    rows = [
        ("used", _use(d, first)),
        ("type", d.type),
        ("vendor, driver", f"{d.vendor}, {d.driver}"),
        ("Vulkan", ".".join(map(str, d.api))),
        ("memory of CPU and device", "one (unified)" if d.unified else "separate"),
    ]
    for i, heap in enumerate(d.heaps):
        kind = "device" if heap.device_local else "host"
        mapped = ", visible to the CPU" if heap.host_visible else ""
        known = f"{size(heap.free)} free of " if heap.budget else ""
        rows.append((f"heap {i}", f"{kind}: {known}{size(heap.size)}{mapped}"))
    rows += [
        ("resizable BAR", _bar(d)),
        ("largest allocation", size(limits.allocation)),
        ("largest buffer of a shader", size(limits.storage_range)),
        ("buffers of a shader", str(d.bindings)),
        ("shared memory", size(limits.shared_bytes)),
        ("workgroup", f"{limits.workgroup_invocations} invocations"),
        ("subgroup size", subgroup),
        ("subgroup arithmetic", _yes(limits.subgroup_arithmetic)),
        ("full subgroups on demand", _yes(limits.full_subgroups)),
        ("compute units", str(limits.compute_units) if limits.compute_units > 1 else "unknown"),
        ("fp16 arithmetic", _yes(limits.float16)),
        ("16-bit storage", _yes(limits.storage16)),
        ("int8 arithmetic", _yes(limits.int8)),
        ("dot product of 4 int8", d.int_dot),
        ("matrix cores", "KHR_cooperative_matrix" if limits.coopmat else "none"),
        ("matrix shapes", ", ".join(map(_shape, d.matrix_shapes)) or "none"),
        ("timestamps", f"{d.timestamp_bits} bits of {d.timestamp_period:g} ns"),
    ]
    return rows


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _bar(d: DeviceInfo) -> str:
    """How much of VRAM the CPU can address."""
    if d.unified:
        return "not needed"
    if not d.bar:
        return "no: VRAM is not visible to the CPU"
    return f"{'no' if d.small_bar else 'yes'}: {size(d.bar)} of VRAM visible to the CPU"


def _shape(shape: tuple[int, ...]) -> str:
    """M, N, K and the types of A * B + C = D: "16x16x16 f16*f16+f32=f32"; without the scope."""
    m, n, k, *types = shape
    a, b, c, result = (_COMPONENTS.get(t, f"type {t}") for t in types[:4])
    return f"{m}x{n}x{k} {a}*{b}+{c}={result}"


def _warn(d: DeviceInfo) -> None:
    """What keeps a device from being used well."""
    if d.usable:
        warn(f"device {d.index} ({d.name}) cannot be used: {d.usable}")
    if d.duplicate is not None:
        warn(f"device {d.index} is device {d.duplicate} again, through another driver ({d.driver})")
    if d.small_bar:
        warn(
            f"device {d.index} ({d.name}): only {size(d.bar)} of {size(d.vram)} VRAM are visible "
            "to the CPU; switch on resizable BAR in the firmware set-up for faster loading"
        )


def _plain(d: DeviceInfo) -> dict[str, Any]:
    """What json can write: bytes as hexadecimal digits."""
    values = dataclasses.asdict(d) | {"unified": d.unified, "small_bar": d.small_bar}
    values["matrix_shapes"] = [_shape(s) for s in d.matrix_shapes]
    return {k: v.hex() if isinstance(v, bytes) else v for k, v in values.items()}
