"""What happens when Vulkan fails: a clear DeviceError, never a crash, and no hanging close.

Faults are injected by the layer at the nth call. Outside of them the validation layer, where it
is installed, has to stay silent.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from glsl import spirv

from kompute_llm.engine import layer
from kompute_llm.engine.device import Device, Sequence, choose, list_devices
from kompute_llm.engine.errors import DeviceError

OUT_OF_HOST, OUT_OF_DEVICE, LOST, TOO_MANY = -1, -2, -4, -10
ADD = "x[i] = x[i] + 1;"


@pytest.fixture
def device(vulkan: Device) -> Iterator[Device]:
    """A device that may be broken; the validation layer must accept what is left of it."""
    module = layer.extension()
    module.validation_messages()
    with Device.open(vulkan.info, validation=True) as d:
        yield d
    module.clear_faults()
    assert not module.validation_messages()


def inject(where: str, nth: int, result: int) -> None:
    """Let the nth call from now fail."""
    layer.extension().inject(where, nth, result)


def counting(device: Device) -> tuple[Sequence, np.ndarray]:
    """A sequence that adds one to 64 words, and the words."""
    x = device.exchange(64)
    seq = device.sequence()
    device.sync_device(seq, [x])
    device.record(seq, device.algorithm("add", [x], spirv(ADD)), None, (1, 1, 1))
    device.sync_local(seq, [x])
    return seq, x.data()


def works(device: Device) -> None:
    """The device is as good as new."""
    seq, x = counting(device)
    device.eval(seq)
    assert (x == 1).all()


@pytest.mark.parametrize("kind", ["storage", "host", "exchange"])
@pytest.mark.parametrize(
    "where,nth,result",
    [("allocate", 1, OUT_OF_DEVICE), ("allocate", 1, OUT_OF_HOST), ("buffer", 1, OUT_OF_DEVICE)],
)
def test_out_of_memory(device: Device, kind: str, where: str, nth: int, result: int) -> None:
    """The message has the buffer, both sizes and a way out; nothing stays allocated."""
    before = device.counters()["allocations"]
    inject(where, nth, result)
    with pytest.raises(DeviceError) as caught:
        getattr(device, kind)(3 << 20, "KV cache 0")
    text = str(caught.value)
    for part in ("KV cache 0", "out of", "12.0 MiB", "GiB free", "-c", device.info.name):
        assert part in text
    assert device.counters()["allocations"] == before
    works(device)


@pytest.mark.parametrize("where,nth", [("allocate", 2), ("buffer", 2), ("map", 1)])
def test_out_of_staging_memory(device: Device, where: str, nth: int) -> None:
    """The second half of a buffer fails: the first one is freed as well."""
    before = device.counters()["allocations"]
    inject(where, nth, OUT_OF_HOST)
    with pytest.raises(DeviceError, match="upload"):
        device.exchange(5 << 18, "upload")
    assert device.counters()["allocations"] == before
    works(device)


@pytest.mark.parametrize(
    "where", ["pipeline", "CreateShaderModule", "CreateDescriptorPool",
              "CreateDescriptorSetLayout", "CreatePipelineLayout"],
)  # fmt: skip
def test_pipeline_refused(device: Device, where: str) -> None:
    x = device.storage(64, "x")
    inject(where, 1, OUT_OF_DEVICE)
    with pytest.raises(DeviceError, match=r"shader matvec.*out of device memory"):
        device.algorithm("matvec", [x], spirv(ADD))
    works(device)


@pytest.mark.parametrize("where", ["submit", "wait"])
def test_device_lost(device: Device, where: str) -> None:
    """The error names the watchdog, comes again at once whatever is tried, and close returns."""
    seq, _ = counting(device)
    device.eval(seq)
    inject(where, 2, LOST)
    device.eval(seq)
    with pytest.raises(DeviceError, match="watchdog") as first:
        device.eval(seq)
    submits = device.counters()["submits"]
    for again in (
        lambda: device.eval(seq), lambda: device.storage(4, "x"), device.sequence,
        lambda: device.algorithm("add", [], b""),
    ):  # fmt: skip
        with pytest.raises(DeviceError) as caught:
            again()
        assert caught.value is first.value
    assert device.counters()["submits"] == submits
    device.close()
    with pytest.raises(DeviceError, match="device lost"):
        device.eval(seq)


def test_a_loss_that_closing_finds(device: Device) -> None:
    """What was started is waited for: its failure is raised, and everything closed all the same."""
    seq, x = device.sequence(), device.storage(64, "x")
    device.record(seq, device.algorithm("add", [x], spirv(ADD)), None, (1, 1, 1))
    device.start(seq)
    inject("wait", 1, LOST)
    with pytest.raises(DeviceError, match="device lost"):
        device.close()
    assert device.manager is None
    device.close()


def test_timestamps_of_a_lost_device(device: Device) -> None:
    """Kompute waits for queries; on a lost device they never come."""
    x = device.storage(64, "x")
    seq = device.sequence(timestamps=1)
    device.record(seq, device.algorithm("add", [x], spirv(ADD)), None, (1, 1, 1))
    inject("submit", 1, LOST)
    with pytest.raises(DeviceError, match="device lost"):
        device.eval(seq)
    assert len(seq.ticks()) == 2


def test_submit_out_of_memory(device: Device) -> None:
    """A submit that failed for any reason ends the use of the device: its fence never comes."""
    seq, _ = counting(device)
    inject("submit", 1, OUT_OF_HOST)
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"running: out of host memory .* GiB free"):
            device.eval(seq)


def test_device_creation_fails(vulkan: Device) -> None:
    inject("device", 1, TOO_MANY)
    with pytest.raises(DeviceError, match="cannot be opened: too many objects"):
        Device.open(vulkan.info)


def test_sizes_beyond_the_limits(vulkan: Device) -> None:
    """Refused before the driver is asked, with both figures."""
    limits = vulkan.limits.with_(storage_range=1 << 20, allocation=1 << 30, push_bytes=16)
    with Device.open(vulkan.info, limits=limits) as device:
        with pytest.raises(DeviceError, match=r"weights 3: 2.0 MiB asked for.*1.0 MiB"):
            device.storage(1 << 19, "weights 3")
        with pytest.raises(DeviceError, match=r"20 bytes of push constants.*allows 16"):
            device.algorithm("add", [device.storage(4, "x")], spirv(ADD), (), 5)
        many = [device.storage(4, "x")] * (device.info.bindings + 1)
        with pytest.raises(DeviceError, match=rf"{len(many)} buffers"):
            device.algorithm("add", many, spirv(ADD))
        with pytest.raises(ValueError, match="0 words"):
            device.host(0)


def test_more_than_is_free(vulkan: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    from kompute_llm.engine import device_errors

    if vulkan.info.type != "cpu":
        pytest.skip("a GPU has its own budget")
    monkeypatch.setattr(device_errors, "available_host_memory", lambda: 1 << 20)
    with pytest.raises(DeviceError, match=r"x: 4.0 MiB asked for.*GiB free.*smaller context"):
        vulkan.storage(1 << 20, "x")


@pytest.fixture
def pretend() -> Iterator[Callable[[int, bool], None]]:
    """Lets devices offer less: pretend(minor version, no extensions)."""
    yield layer.extension().pretend
    layer.extension().pretend(1023, False)


@pytest.mark.parametrize("plain", [False, True])
def test_vulkan_1_2(vulkan: Device, pretend: Callable[[int, bool], None], plain: bool) -> None:
    """Features come from extensions then, or not at all; the device works either way."""
    full = vulkan.limits
    pretend(2, plain)
    info = list_devices()[vulkan.info.index]
    assert info.api[:2] == (1, 2) and info.usable is None
    assert info.limits.subgroups == (full.subgroups and not plain)
    assert info.limits.float16 == full.float16  # in 1.2's core
    module = layer.extension()
    module.validation_messages()
    with Device.open(info, validation=True) as device:
        works(device)
        facts = module.device_facts(device.id)
        assert facts["subgroup_control"] == (full.full_subgroups and not plain)
    assert not module.validation_messages()


@pytest.mark.parametrize("minor", [0, 1])
def test_older_vulkan(vulkan: Device, pretend: Callable[[int, bool], None], minor: int) -> None:
    pretend(minor, False)
    with pytest.raises(DeviceError, match=rf"Vulkan 1\.{minor} only, 1\.2 is needed"):
        choose(str(vulkan.info.index))


def test_copy_outside(vulkan: Device) -> None:
    a, b = vulkan.storage(8, "a"), vulkan.storage(4, "b")
    for src, dst, n in ((5, 0, 4), (0, 1, 4), (0, 0, 0), (-1, 0, 1)):
        with pytest.raises(ValueError, match="outside"):
            vulkan.copy(vulkan.sequence(), a, b, src, dst, n)


def test_closed(vulkan: Device) -> None:
    with Device.open(vulkan.info) as device:
        seq, _ = counting(device)
    device.close()
    with pytest.raises(DeviceError, match="closed"):
        device.eval(seq)
    with pytest.raises(DeviceError, match="closed"):
        device.storage(4, "x")


def test_close_during_eval(vulkan: Device) -> None:
    """Ctrl-C in the main thread closes the device while another thread still uses it."""
    with Device.open(vulkan.info) as device:
        x = device.storage(64, "x")
        body = "for (uint k = 0; k < 60000; k++) x[i % 64] = x[i % 64] * 3 + k;"
        seq = device.sequence()
        device.record(seq, device.algorithm("slow", [x], spirv(body)), None, (64, 1, 1))
        ended: list[DeviceError] = []

        def work() -> None:
            try:
                while True:
                    device.eval(seq)
            except DeviceError as e:
                ended.append(e)

        thread = threading.Thread(target=work)
        thread.start()
        while not device.counters()["submits"]:
            time.sleep(0.001)
    thread.join(timeout=30)
    assert "closed" in str(ended[0])


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES"):
        monkeypatch.setenv(name, "/nonexistent.json")
    assert list_devices() == ()
    with pytest.raises(DeviceError, match="No Vulkan device found"):
        choose()


def run(code: str, **env: str) -> str:
    """Output of a fresh Python; it must not crash."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_vulkan_loader(vulkan: Device) -> None:
    """Kompute cannot be imported then; the package can, and says what is missing."""
    code = """
import sys
sys.modules["kp"] = None
from kompute_llm.engine.device import Device, list_devices
from kompute_llm.engine.errors import DeviceError
try:
    Device.open(list_devices()[0])
except DeviceError as e:
    print(e)
"""
    assert "libvulkan.so.1" in run(code)


def test_end_without_close(vulkan: Device, tmp_path: Path) -> None:
    """A program that forgets to close, even with a sequence and arrays alive, ends well."""
    code = f"""
from kompute_llm.engine.device import Device, list_devices
device = Device.open(list_devices()[{vulkan.info.index}])
x = device.exchange(64)
view = x.data()
seq = device.sequence()
device.sync_device(seq, [x])
device.eval(seq)
print("done")
"""
    assert run(code, XDG_CACHE_HOME=str(tmp_path)) == "done\n"


def test_import_keeps_logging(vulkan: Device) -> None:
    """Importing Kompute sets up a root handler; the package takes it away again."""
    code = f"""
import logging
from kompute_llm.engine.device import Device, list_devices
Device.open(list_devices()[{vulkan.info.index}]).close()
print(logging.getLogger().handlers)
"""
    assert run(code) == "[]\n"
