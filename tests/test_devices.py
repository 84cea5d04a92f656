"""Choosing a device and listing devices: made-up machines, and the one at hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli import invoke
from kompute_llm.engine import device_info
from kompute_llm.engine.device import Device
from kompute_llm.engine.device_info import DeviceInfo, choose, mark_duplicates, parse
from kompute_llm.engine.errors import DeviceError, UsageError

GIB = 1 << 30
OTHER, INTEGRATED, DISCRETE, VIRTUAL, CPU = range(5)


def raw(name: str, kind: int = DISCRETE, **changes: Any) -> dict[str, Any]:
    """What the layer tells of a device: one like a desktop GPU unless changed."""
    entry: dict[str, Any] = {
        "name": name, "type": kind, "vendor_id": 0x10DE, "device_id": 0x2335, "driver": "NVIDIA",
        "driver_info": "580.95", "driver_version": 7, "api": (1, 4, 312), "compute": True,
        "uuid": name.encode().ljust(16, b"-"), "cache_uuid": bytes(16),
        "workgroup_size": (1024, 1024, 64),
        "workgroup_invocations": 1024, "grid": (2**31 - 1, 65535, 65535), "shared_bytes": 49152,
        "storage_range": 2**32 - 1, "allocation": 2**32 - 1, "push_bytes": 256, "bindings": 1 << 20,
        "queue_family": 2, "timestamps": True, "timestamp_bits": 64, "timestamp_period": 1.0,
        "subgroup_size": 32,
        "subgroup_min": 32, "subgroup_max": 32, "subgroup_count": 32,
        "subgroup_stages": 0xFF, "subgroup_operations": 0x3FF,
        "subgroup_size_stages": 0xFF, "subgroup_control": True, "full_subgroups": True,
        "float16": True, "storage16": True, "int8": True, "int_dot": True,
        "int_dot_accelerated": True, "coopmat": True, "compute_units": 132,
        "matrix_shapes": [(16, 16, 16, 0, 0, 1, 1, 3)],
        "heaps": [(140 * GIB, 139 * GIB, 9 * GIB, 1), (64 * GIB, 60 * GIB, GIB, 0)],
        "types": [(0, 1), (1, 0), (6, 1), (14, 1), (7, 0)],
    }  # fmt: skip
    return entry | changes


def listing(*entries: dict[str, Any]) -> tuple[DeviceInfo, ...]:
    return mark_duplicates([parse(i, e) for i, e in enumerate(entries)])


def test_limits() -> None:
    """Every limit a kernel looks at comes from the device."""
    info = parse(0, raw("GPU"))
    limits = info.limits
    assert (limits.subgroup_size, limits.subgroups, limits.compute_units) == (32, True, 132)
    assert (limits.float16, limits.int_dot, limits.coopmat) == (True, True, True)
    assert limits.storage_range == 2**32 - 1
    assert not info.unified and info.bar == 140 * GIB and not info.small_bar
    assert info.heaps[0].free == 130 * GIB
    assert info.usable is None


@pytest.mark.parametrize(
    "changes",
    [
        {"subgroup_stages": 0x10}, {"subgroup_operations": 0x1}, {"full_subgroups": False},
        {"subgroup_size_stages": 0x10}, {"subgroup_control": False}, {"subgroup_size": 1},
    ],
)  # fmt: skip
def test_subgroup_variants_need_all_of_it(changes: dict[str, Any]) -> None:
    assert not parse(0, raw("GPU", **changes)).limits.subgroups


def test_lesser_devices() -> None:
    """No optional feature at all is still usable; slow dot products do not count as a feature."""
    off = dict.fromkeys(("float16", "storage16", "int8", "int_dot", "coopmat"), False)
    plain = parse(0, raw("old GPU", api=(1, 2, 0), **off))
    assert plain.usable is None and not plain.limits.float16 and plain.int_dot == "none"
    slow = parse(0, raw("GPU", int_dot_accelerated=False))
    assert not slow.limits.int_dot and slow.int_dot == "emulated"


@pytest.mark.parametrize(
    "changes,why",
    [
        ({"api": (1, 1, 290)}, r"Vulkan 1\.1 only"), ({"compute": False}, "no compute queue"),
        ({"bindings": 2}, "fewer than 4 storage buffers"),
    ],
)  # fmt: skip
def test_unusable(changes: dict[str, Any], why: str) -> None:
    """An unusable device listed first does not stop the good one; alone it is a clear error."""
    bad = raw("bad", INTEGRATED, **changes)
    found = listing(bad, raw("good"))
    assert choose(None, found).name == "good"
    assert choose("good", found).index == 1
    for infos, spec in ((found, "bad"), (found, "0"), (listing(bad), None)):
        with pytest.raises(DeviceError, match=why):
            choose(spec, infos)
    with pytest.raises(DeviceError, match=why):
        Device.open(found[0])


def test_a_device_before_vulkan_1_1() -> None:
    """It has few entries: nothing beyond the core properties is asked of it."""
    keys = ("name", "type", "vendor_id", "device_id", "driver_version", "cache_uuid", "bindings",
            "queue_family", "timestamps", "timestamp_bits", "timestamp_period",
            "compute")  # fmt: skip
    whole = raw("very old")
    info = parse(0, {k: whole[k] for k in keys} | {"api": (1, 0, 65)})
    assert info.usable and "1.0" in info.usable


def test_choose() -> None:
    """A GPU before software, discrete before integrated; an index, or a part of the name."""
    found = listing(raw("llvmpipe", CPU), raw("Radeon 780M", INTEGRATED), raw("GeForce", DISCRETE))
    assert choose(None, found).name == "GeForce"
    assert choose(None, found[:2]).name == "Radeon 780M"
    assert choose(None, found[:1]).name == "llvmpipe"
    assert choose("0", found).name == "llvmpipe"
    assert choose("RADEON", found).index == 1
    for wrong in ("3", "arc", "-1"):
        with pytest.raises(UsageError, match=r"no device '.*0: llvmpipe; 1: Radeon 780M; 2: Ge"):
            choose(wrong, found)
    with pytest.raises(DeviceError, match="No Vulkan device"):
        choose(None, ())


def test_same_gpu_twice() -> None:
    """Two drivers for one GPU have one device UUID; software devices share theirs by chance."""
    uuid = bytes(range(16))
    found = listing(
        raw("RX 7900 (RADV)", uuid=uuid, api=(1, 1, 0)), raw("RX 7900 (AMDVLK)", uuid=uuid),
        raw("RX 7900 (pro)", uuid=uuid), raw("a", CPU, uuid=uuid), raw("b", CPU, uuid=uuid),
    )  # fmt: skip
    assert [d.duplicate for d in found] == [None, None, 1, None, None]
    assert choose(None, found).index == 1


def test_small_bar() -> None:
    heaps = [(8 * GIB, 7 * GIB, GIB, 1), (16 * GIB, 16 * GIB, 0, 0), (256 << 20, 200 << 20, 0, 1)]
    info = parse(0, raw("GPU", heaps=heaps, types=[(1, 0), (6, 1), (7, 2)]))
    assert info.small_bar and info.bar == 256 << 20 and info.vram == 8 * GIB
    hidden = parse(0, raw("GPU", heaps=heaps[:2], types=[(1, 0), (6, 1)]))
    assert not hidden.small_bar and hidden.bar == 0
    assert not parse(0, raw("iGPU", INTEGRATED, heaps=heaps)).small_bar


def test_devices_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines on stdout, what is wrong with a device on stderr."""
    heaps = [(8 * GIB, 7 * GIB, GIB, 1), (256 << 20, 0, 0, 1)]
    found = listing(
        raw("GPU", heaps=heaps, types=[(1, 0), (7, 1)]), raw("old", api=(1, 1, 0)),
        raw("again", uuid=raw("GPU")["uuid"]),
    )  # fmt: skip
    monkeypatch.setattr(device_info, "list_devices", lambda: found)
    short = invoke("devices")
    assert short.stdout.splitlines()[0] == (
        "0 = GPU (NVIDIA 580.95) | discrete | uma: 0 | fp16: 1 | subgroup size: 32 | "
        "shared memory: 49152 | int dot: 1 | matrix cores: KHR_coopmat | "
        "memory: 6.00 GiB free of 8.00 GiB"
    )
    assert len(short.stdout.splitlines()) == 3
    assert "resizable BAR" in short.stderr and "256.00 MiB of 8.00 GiB" in short.stderr
    assert "device 1 (old) cannot be used: Vulkan 1.1" in short.stderr
    assert "device 2 is device 0 again" in short.stderr
    long = invoke("devices", "--verbose")
    for part in ("16x16x16 f16*f16+f32=f32", "no: 256.00 MiB of VRAM", "by default", "NVIDIA"):
        assert part in long.stdout
    data = json.loads(invoke("devices", "--json").stdout)
    assert [d["usable"] is None for d in data] == [True, False, True]
    assert data[0]["limits"]["subgroup_size"] == 32


def test_devices_command_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_info, "list_devices", lambda: ())
    result = invoke("devices")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No Vulkan device" in result.stderr
    assert json.loads(invoke("devices", "--json").stdout) == []


def test_this_machine(vulkan: Device) -> None:
    """The listing agrees with what the open device has."""
    result = invoke("devices")
    assert result.exit_code == 0
    assert f"{vulkan.info.index} = {vulkan.info.name}" in result.stdout
    assert vulkan.limits.workgroup_invocations >= 128
    assert vulkan.info.vram > 0
    assert vulkan.heaps()[0].size == vulkan.info.heaps[0].size
