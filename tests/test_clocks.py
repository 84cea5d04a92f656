"""Clocks of GPUs: from a tree as /sys/class/drm, from a stand-in of NVML, and where none are."""

from __future__ import annotations

import ctypes
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli import invoke
from kompute_llm.cli import environment
from kompute_llm.cli.bench_files import differences
from kompute_llm.cli.results import Setup
from kompute_llm.engine import clocks, device_info
from kompute_llm.engine.clocks import Reading, drm_clocks, nvml_clocks
from kompute_llm.engine.device_info import DeviceInfo
from kompute_llm.kernels.limits import Limits

GPU = DeviceInfo(
    0, "Some GPU", "discrete", "AMD", "driver", (1, 3, 0), Limits(), (), b"", b"",
    (0x1002, 0x744C, 1), 8, 0, 1.0, 64, (), "none",
)  # fmt: skip
INTEL = replace(GPU, vendor="Intel", ids=(0x8086, 0x56A0, 1))
NVIDIA = replace(GPU, vendor="NVIDIA", ids=(0x10DE, 0x2335, 1), name="Some H")
SCLK = "0: 500Mhz\n1: 1600Mhz *\n2: 2475Mhz\n"
MCLK = "0: 96Mhz\n1: 1249Mhz *\n"
FULL = {"graphics_mhz": 1600, "graphics_max_mhz": 2475, "memory_mhz": 1249,
        "memory_max_mhz": 1249}  # fmt: skip


def card(folder: Path, number: int, info: DeviceInfo, files: Mapping[str, str],
         address: str = "0000:03:00.0") -> None:  # fmt: skip
    """A card with these files; its device is a link to one named by its address, as in sysfs."""
    device = folder / "devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{info.ids[0]:#06x}\n")
    (device / "device").write_text(f"{info.ids[1]:#06x}\n")
    home = folder / f"card{number}"
    home.mkdir()
    (home / "device").symlink_to(device)
    (folder / f"card{number}-DP-1").mkdir()
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)


def test_amd(tmp_path: Path) -> None:
    card(tmp_path, 0, INTEL, {"gt_cur_freq_mhz": "300\n"}, "0000:00:02.0")
    card(tmp_path, 1, GPU, {"device/pp_dpm_sclk": SCLK, "device/pp_dpm_mclk": MCLK})
    assert drm_clocks(tmp_path, GPU) == FULL
    (tmp_path / "card1/device/pp_dpm_mclk").unlink()
    (tmp_path / "card1/device/pp_dpm_sclk").write_text("S: 19Mhz *\n0: 500Mhz\n1: 2475Mhz\n")
    assert drm_clocks(tmp_path, GPU) == {"graphics_mhz": 19, "graphics_max_mhz": 2475}
    (tmp_path / "card1/device/pp_dpm_sclk").write_text("\n?")
    assert drm_clocks(tmp_path, GPU) == {}


@pytest.mark.parametrize(
    ("now", "most"),
    [
        ("gt_cur_freq_mhz", "gt_RP0_freq_mhz"), ("gt_cur_freq_mhz", "gt_max_freq_mhz"),
        ("gt/gt0/rps_cur_freq_mhz", "gt/gt0/rps_RP0_freq_mhz"),
        ("device/tile0/gt0/freq0/cur_freq", "device/tile0/gt0/freq0/rp0_freq"),
    ],
)  # fmt: skip
def test_intel(tmp_path: Path, now: str, most: str) -> None:
    card(tmp_path, 0, INTEL, {now: "1300\n", most: "2400\n"})
    assert drm_clocks(tmp_path, INTEL) == {"graphics_mhz": 1300, "graphics_max_mhz": 2400}


def test_which_card(tmp_path: Path) -> None:
    """Of equal cards the one at the address that the UUID names, or none; never a sleeping one."""
    files = {"device/pp_dpm_mclk": MCLK}
    card(tmp_path, 0, GPU, files | {"device/pp_dpm_sclk": "0: 700Mhz *"}, "0000:03:00.0")
    card(tmp_path, 1, GPU, files | {"device/pp_dpm_sclk": SCLK}, "0000:0a:00.0")
    assert drm_clocks(tmp_path, GPU) == {}
    second = replace(GPU, uuid=bytes(4) + b"\x0a" + bytes(11))
    assert drm_clocks(tmp_path, second) == FULL
    assert drm_clocks(tmp_path, replace(GPU, uuid=bytes(16))) == {}
    (tmp_path / "card1/device/power").mkdir()
    (tmp_path / "card1/device/power/runtime_status").write_text("suspended\n")
    assert drm_clocks(tmp_path, second) == {}
    assert drm_clocks(tmp_path, INTEL) == drm_clocks(tmp_path / "none", GPU) == {}


class Nvml:
    """Devices by name and UUID, with clocks by kind: (now, at most)."""

    def __init__(self, *devices: tuple[str, bytes, dict[int, tuple[int, int]]]) -> None:
        self.devices = devices

    def nvmlDeviceGetCount_v2(self, out: Any) -> int:
        out._obj.value = len(self.devices)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, i: int, out: Any) -> int:
        out._obj.value = i + 1
        return 0

    def nvmlDeviceGetHandleByUUID(self, name: bytes, out: Any) -> int:
        for i, (_, ident, _) in enumerate(self.devices):
            if name.decode() == f"GPU-{uuid.UUID(bytes=ident)}":
                out._obj.value = i + 1
                return 0
        return 6  # NVML_ERROR_NOT_FOUND

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: int) -> int:
        text.value = self.devices[handle.value - 1][0].encode()
        return 0

    def _clock(self, handle: Any, kind: int, out: Any, which: int) -> int:
        found = self.devices[handle.value - 1][2]
        if kind not in found:
            return 3  # NVML_ERROR_NOT_SUPPORTED
        out._obj.value = found[kind][which]
        return 0

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, out: Any) -> int:
        return self._clock(handle, kind, out, 0)

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: int, out: Any) -> int:
        return self._clock(handle, kind, out, 1)


def test_nvidia() -> None:
    ids = bytes(range(16)), bytes(range(1, 17))
    both = {0: (1500, 1980), 2: (2619, 2619)}
    library = Nvml(("Some H", ids[0], {0: (345, 1980)}), ("Some H", ids[1], both))
    want = {"graphics_mhz": 1500, "graphics_max_mhz": 1980, "memory_mhz": 2619,
            "memory_max_mhz": 2619}  # fmt: skip
    assert nvml_clocks(library, replace(NVIDIA, uuid=ids[1])) == want
    assert nvml_clocks(library, replace(NVIDIA, uuid=ids[0])) == {
        "graphics_mhz": 345, "graphics_max_mhz": 1980,
    }  # fmt: skip
    assert nvml_clocks(library, NVIDIA) == {}  # two have that name
    assert nvml_clocks(Nvml(("Some H", ids[0], both)), NVIDIA) == want
    assert nvml_clocks(Nvml(("Other", ids[0], both)), NVIDIA) == nvml_clocks(Nvml(), NVIDIA) == {}


def test_nothing_fails_or_takes_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(clocks, "DRM", tmp_path / "none")
    monkeypatch.setattr(clocks, "LIBRARY", "libno-such-library.so")
    for info in (GPU, INTEL, NVIDIA, replace(GPU, type="cpu")):
        assert Reading(info).result() == {}
    for library in (SimpleNamespace(), SimpleNamespace(nvmlInit_v2=lambda: 9)):
        monkeypatch.setattr(ctypes, "CDLL", lambda name, library=library: library)
        assert Reading(NVIDIA).result() == {}
    start = time.perf_counter()
    slow = Reading(GPU, lambda info: time.sleep(0.3) or FULL)  # type: ignore[func-returns-value]
    assert slow.result() == {}
    assert time.perf_counter() - start < 0.2
    assert slow.result(5) == FULL


def test_results_and_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the runner's device right now; `bench --env` has those of every GPU, or n/a."""
    monkeypatch.setattr(clocks, "clocks", lambda info: FULL if info == GPU else {})
    runner = SimpleNamespace(device=SimpleNamespace(info=GPU))
    setup: Any = Setup(None, SimpleNamespace(runner=runner), None, True)  # type: ignore[arg-type]
    assert setup.clocks() == FULL
    setup = Setup(None, SimpleNamespace(runner=None), None, True)  # type: ignore[arg-type]
    assert setup.clocks() == {}
    monkeypatch.setattr(device_info, "list_devices", lambda: (GPU, NVIDIA))
    environment.drivers.cache_clear()
    try:
        found = json.loads(invoke("bench", "--env").stdout)
    finally:
        environment.drivers.cache_clear()
    assert found["clocks"] == {"Some GPU": FULL, "Some H": "n/a"}


def test_only_other_clocks_are_differences() -> None:
    row = {"clocks": FULL}
    assert differences([(row, {"clocks": FULL | {"graphics_mhz": 1610}})]) == []
    assert differences([(row, {})]) == []
    assert differences([(row, {"clocks": FULL | {"graphics_mhz": 1000}})]) == [
        "graphics_mhz: 1600 -> 1000"
    ]
