"""The runtime layer: order of commands, hints, waiting, the cache of pipelines.

Tests of order run under synchronization validation where that layer is installed, whatever the
environment says, and accept no message.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from glsl import spirv

from kompute_llm.engine import layer
from kompute_llm.engine.device import Device, DeviceInfo, Sequence

N = 1000
GRID = (16, 1, 1)
U = np.uint32
STEP = "if (i < p.b) y[i] = x[i] * 3u + p.a;"  # y = 3 x + a, modulo 2^32


def messages() -> list[str]:
    """What the validation layer said since the last call."""
    return [str(m) for m in layer.extension().validation_messages()]


@pytest.fixture
def info(vulkan: Device) -> DeviceInfo:
    """The device under test; these tests open it again for themselves."""
    return vulkan.info


@pytest.fixture
def device(info: DeviceInfo) -> Iterator[Device]:
    """A device of the test's own, without validation unless the environment asks for it."""
    with Device.open(info) as d:
        yield d


@pytest.fixture
def validated(info: DeviceInfo) -> Iterator[Device]:
    """A device under synchronization validation that must say nothing until it is closed."""
    with Device.open(info, validation=True) as d:
        if "libVkLayer_khronos_validation" not in Path("/proc/self/maps").read_text():
            pytest.skip("the Khronos validation layer is not installed")
        messages()
        yield d
    assert not messages()


def words(*values: int) -> Any:
    """Push constants."""
    return np.array(values, U)


def stepped(x: Any, a: int, times: int = 1) -> Any:
    """What STEP does, `times` times."""
    for _ in range(times):
        x = x * U(3) + U(a)
    return x


class Chain:
    """Buffers x, y, z and STEP between any two of them."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.x, self.y, self.z = (device.exchange(N) for _ in range(3))
        self.start = np.arange(N, dtype=U)
        self.x.data()[:] = self.start

    def step(self, a: Any, b: Any) -> Any:
        """The algorithm b = STEP(a)."""
        return self.device.algorithm("step", [a, b], spirv(STEP, "x y"), push_words=2)


def test_dependent_dispatches(validated: Device) -> None:
    """Read after write and write after read, in one submit and over several replays."""
    c = Chain(validated)
    xy, yz, zx = c.step(c.x, c.y), c.step(c.y, c.z), c.step(c.z, c.x)
    up, run, down = (validated.sequence() for _ in range(3))
    validated.sync_device(up, [c.x])
    for algorithm in (xy, yz, zx) * 3:
        validated.record(run, algorithm, words(0xFFFFFFF0, N), GRID)
    validated.sync_local(down, [c.x, c.z])
    for seq in (up, run, run, run, down):
        validated.eval(seq)
    assert np.array_equal(c.x.data(), stepped(c.start, 0xFFFFFFF0, 27))
    assert np.array_equal(c.z.data(), stepped(c.start, 0xFFFFFFF0, 26))


def test_missing_barriers_are_reported(validated: Device) -> None:
    """The check has teeth: false claims of independence are found out."""
    c = Chain(validated)
    seq = validated.sequence()
    validated.record(seq, c.step(c.x, c.y), words(1, N), GRID)
    validated.record(seq, c.step(c.y, c.z), words(1, N), GRID, independent=True)
    validated.record(seq, c.step(c.x, c.y), words(1, N), GRID, independent=True)
    said = "\n".join(messages())
    assert "READ_AFTER_WRITE" in said
    assert "WRITE_AFTER_READ" in said


def test_independent_dispatches_need_one_barrier(validated: Device) -> None:
    """Two readers of one buffer share a barrier; the first dispatch of a sequence has its own."""
    c = Chain(validated)
    seq = validated.sequence()
    validated.sync_device(seq, [c.x])
    before = validated.counters()["barriers"]
    validated.record(seq, c.step(c.x, c.y), words(1, N), GRID, independent=True)
    validated.record(seq, c.step(c.x, c.z), words(2, N), GRID, independent=True)
    validated.record(seq, c.step(c.z, c.x), words(5, N), GRID)
    assert validated.counters()["barriers"] - before == 2
    validated.sync_local(seq, [c.x, c.y])
    validated.eval(seq)
    assert np.array_equal(c.y.data(), stepped(c.start, 1))
    assert np.array_equal(c.x.data(), stepped(stepped(c.start, 2), 5))


def test_copies(validated: Device) -> None:
    """Parts of buffers of every kind, mixed with dispatches, written and read in turn."""
    c = Chain(validated)
    arena, host = validated.storage(4 * N, "arena"), validated.host(2 * N)
    inner = validated.algorithm("step", [arena, c.y], spirv(STEP, "x y"), push_words=2)
    host.data()[:N] = 7
    seq = validated.sequence()
    validated.copy(seq, host, arena, 0, 3 * N, N)
    validated.sync_device(seq, [c.x])
    validated.copy(seq, c.x, arena, 10, 0, N - 10)
    validated.copy(seq, arena, arena, 3 * N, N - 10, 10)
    validated.record(seq, inner, words(4, N), GRID)
    validated.copy(seq, c.y, host, 0, N, N)
    validated.copy(seq, c.y, arena, 0, 0, N)
    validated.record(seq, inner, words(4, N), GRID)
    validated.sync_local(seq, [c.y])
    moved = np.concatenate([c.start[10:], np.full(10, 7, U)])
    for _ in range(2):
        validated.eval(seq)
        assert np.array_equal(host.data()[N:], stepped(moved, 4))
        assert np.array_equal(c.y.data(), stepped(moved, 4, 2))


def test_sequences_take_turns(validated: Device) -> None:
    """What one submit wrote, the next one of another sequence reads and overwrites."""
    c = Chain(validated)
    up, there, back = (validated.sequence() for _ in range(3))
    validated.sync_device(up, [c.x])
    validated.record(there, c.step(c.x, c.y), words(1, N), GRID)
    validated.record(back, c.step(c.y, c.x), words(2, N), GRID)
    validated.sync_local(back, [c.x])
    validated.eval(up)
    expected = c.start
    for _ in range(4):
        validated.eval(there)
        validated.eval(back)
        expected = stepped(stepped(expected, 1), 2)
        assert np.array_equal(c.x.data(), expected)


def test_host_writes_between_submits(validated: Device) -> None:
    """A shader that works on host memory sees what the CPU wrote, and the other way round."""
    x, y = validated.host(N), validated.host(N)
    algorithm = validated.algorithm("step", [x, y], spirv(STEP, "x y"), push_words=2)
    seq = validated.sequence()
    validated.record(seq, algorithm, words(9, N), GRID)
    for k in range(3):
        x.data()[:] = np.arange(N) + k
        validated.eval(seq)
        assert np.array_equal(y.data(), stepped(np.arange(N, dtype=U) + U(k), 9))


def test_timestamps(validated: Device) -> None:
    """Ticks of every record, fresh at every replay."""
    c = Chain(validated)
    seq = validated.sequence(timestamps=3)
    validated.sync_device(seq, [c.x])
    validated.record(seq, c.step(c.x, c.y), words(1, N), GRID)
    validated.record(seq, c.step(c.y, c.z), words(1, N), GRID)
    with pytest.raises(ValueError, match="room for 3"):
        validated.record(seq, c.step(c.z, c.x), words(1, N), GRID)
    ends = []
    for _ in range(3):
        start = time.perf_counter()
        validated.eval(seq)
        wall = time.perf_counter() - start
        spent = validated.elapsed(seq)
        assert spent.shape == (3,) and (spent >= 0).all() and spent.sum() <= wall
        ends.append(int(seq.ticks()[-1]))
    assert ends == sorted(set(ends))


def test_grid_and_push_words(device: Device) -> None:
    """Each record has a grid and push words of its own; words above 2^31 arrive."""
    x = device.exchange(8 * 64)
    body = "x[(gl_WorkGroupID.y * 2 + gl_WorkGroupID.x) * 64 + gl_LocalInvocationID.x] = p.a + p.b;"
    algorithm = device.algorithm("grid", [x], spirv(body), push_words=2)
    seq = device.sequence()
    device.record(seq, algorithm, words(0xFFFFFFFF, 0), (2, 4, 1))
    device.record(seq, algorithm, words(0x80000000, 3), (2, 1, 1))
    device.sync_local(seq, [x])
    device.eval(seq)
    assert (x.data()[:128] == 0x80000003).all()
    assert (x.data()[128:] == 0xFFFFFFFF).all()


def test_specialization_and_subgroup_size(device: Device) -> None:
    """Spec constants set the workgroup size; a required subgroup size is what the shader gets."""
    limits = device.limits
    if not limits.full_subgroups:
        pytest.skip("no full subgroups of a required size")
    x = device.exchange(4)
    body = "if (i == 0) { x[0] = gl_WorkGroupSize.x; x[1] = gl_SubgroupSize; }"
    code = spirv(body, "x", "#extension GL_KHR_shader_subgroup_basic : require")
    for size in {limits.subgroup_min, limits.subgroup_size, limits.subgroup_max}:
        algorithm = device.algorithm("size", [x], code, (128,), 2, subgroup_size=size)
        seq = device.sequence()
        device.record(seq, algorithm, words(0, 0), (1, 1, 1))
        device.sync_local(seq, [x])
        device.eval(seq)
        assert list(x.data()[:2]) == [128, size]


def test_fences_are_reused(device: Device) -> None:
    seq = device.sequence()
    device.record(seq, device.algorithm("empty", [device.storage(4, "x")], spirv("")), None, GRID)
    for _ in range(50):
        device.eval(seq)
    counters = device.counters()
    assert counters["submits"] >= 50
    assert counters["fences"] <= 2


@pytest.mark.parametrize("spin", [0, 2000])
def test_fences_of_submits_in_flight_are_reused(device: Device, spin: int) -> None:
    device.spin(spin)
    x = device.host(4, "x")
    algorithm = device.algorithm("count", [x], spirv("if (i == 0) x[0] += 1;", "x"), push_words=2)
    sequences = [device.sequence() for _ in range(5)]
    for seq in sequences:
        device.record(seq, algorithm, words(0, 0), GRID)
    for round_ in range(10):
        for seq in sequences:
            device.start(seq)
        device.finish(sequences)
        assert x.data()[0] == 5 * (round_ + 1)
    assert device.counters()["fences"] <= 6


def test_a_started_sequence_runs_meanwhile(device: Device) -> None:
    """`start` returns before the work is done; such a sequence cannot be evaluated or started."""
    slow = slow_sequence(device)
    began = time.perf_counter()
    device.eval(slow)
    whole = time.perf_counter() - began
    began = time.perf_counter()
    device.start(slow)
    assert time.perf_counter() - began < whole / 2
    for again in (device.eval, device.start):
        with pytest.raises(ValueError, match="start"):
            again(slow)
    device.finish([slow])
    device.eval(slow)


def test_copies_to_host_sides_are_not_started(device: Device) -> None:
    seq = device.sequence()
    device.sync_local(seq, [device.exchange(4, "x")])
    with pytest.raises(ValueError, match="host sides"):
        device.start(seq)


def test_closing_waits_for_what_was_started(device: Device) -> None:
    """More than the layer has places for, some of them slow."""
    x = device.host(4, "x")
    algorithm = device.algorithm("count", [x], spirv("if (i == 0) x[0] += 1;", "x"), push_words=2)
    device.start(slow_sequence(device))
    for _ in range(70):
        seq = device.sequence()
        device.record(seq, algorithm, words(0, 0), GRID)
        device.start(seq)
    device.close()


def slow_sequence(device: Device) -> Sequence:
    """A sequence whose replay takes at least 0.1 s."""
    x = device.storage(64, "x")
    # llvmpipe ends loops after 65535 rounds, so workgroups have to make it long
    body = "uint v = i; for (uint k = 0; k < p.a; k++) v = v * 1664525u + p.b; x[i % 64] = v;"
    algorithm = device.algorithm("slow", [x], spirv(body), push_words=2)
    groups, spent = 1, 0.0
    while spent < 0.1 and groups < 1 << 15:
        groups *= 2
        seq = device.sequence()
        device.record(seq, algorithm, words(60000, 1013904223), (groups, 1, 1))
        device.eval(seq)  # the first one may compile
        spent = min(timed(device, seq) for _ in range(3))
    return seq


def timed(device: Device, seq: Sequence) -> float:
    """Seconds of one eval."""
    start = time.perf_counter()
    device.eval(seq)
    return time.perf_counter() - start


@pytest.mark.parametrize("spin", [0, 10_000_000])
def test_python_runs_while_the_device_works(device: Device, spin: int) -> None:
    """eval lets other threads run, whether it polls or blocks."""
    seq = slow_sequence(device)
    device.spin(spin)
    count, stop = 0, False

    def work() -> None:
        nonlocal count
        while not stop:
            count += 1

    thread = threading.Thread(target=work)
    thread.start()
    while not count:
        time.sleep(0)
    before = count
    device.eval(seq)
    counted = count - before
    stop = True
    thread.join()
    assert counted > 10_000  # without the layer: a handful


def test_devices_have_their_own_state(info: DeviceInfo, device: Device) -> None:
    """Errors and counters of one open device are not seen on another."""
    with Device.open(info) as other:
        layer.extension().inject("allocate", 1, -2)
        with pytest.raises(Exception, match="out of device memory"):
            other.storage(16, "x")
        device.storage(16, "x")
        assert other.counters()["submits"] == device.counters()["submits"] == 0
    device.storage(16, "x")


def test_memory_is_counted_and_freed(device: Device) -> None:
    before = device.counters()["allocations"]
    tensors = [device.storage(1024, "x"), device.exchange(1024), device.host(1024)]
    assert device.counters()["allocations"] - before == 4
    assert sum(h.used for h in device.heaps()) >= 4 * 4096
    tensors.clear()
    assert device.counters()["allocations"] == before


def test_pipeline_cache(info: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved at the end, read at the next start; a broken file or another driver's is ignored."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def use() -> bytes:
        with Device.open(info) as device:
            device.algorithm("step", [device.storage(4, "x")] * 2, spirv(STEP, "x y"), (), 2)
            return bytes(layer.extension().pipeline_cache_data(device.id))

    data = use()
    cache = layer.PipelineCache(info.ids, info.driver, info.cache_uuid)
    assert cache.path.parent == tmp_path / "kompute-llm"
    assert cache.path.read_bytes() == data == cache.load()
    assert os.listdir(cache.path.parent) == [cache.path.name]
    use()
    for broken in (b"", b"x" * 100, data[:20], data[:8] + b"\xff" * 4 + data[12:]):
        cache.path.write_bytes(broken)
        assert cache.load() == b""
        assert use() == cache.path.read_bytes()
    cache.path.write_bytes(data + b"rubbish" * 10)  # a true header: the driver has to judge
    use()
    other = layer.PipelineCache(info.ids, info.driver + " 2", info.cache_uuid)
    assert other.path != cache.path


def test_cache_folder_may_be_read_only(
    info: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(tmp_path, "kompute-llm").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with Device.open(info) as device:
        device.storage(4, "x")


def test_environment() -> None:
    """The layer is on top, the user's layers stay, validation only when asked for."""
    changes = layer.environment({}, "/m", False)
    assert changes["VK_INSTANCE_LAYERS"] == layer.NAME
    assert changes["VK_LAYER_PATH"] == "/m"
    assert changes["VK_LOADER_LAYERS_DISABLE"] == layer.VALIDATION
    users = {"VK_INSTANCE_LAYERS": "VK_LAYER_x", "VK_LOADER_LAYERS_DISABLE": "y"}
    changes = layer.environment(users, "/m", False)
    assert changes["VK_INSTANCE_LAYERS"] == f"{layer.NAME}:VK_LAYER_x"
    assert changes["VK_ADD_LAYER_PATH"] == "/m" and "VK_LAYER_PATH" not in changes
    assert changes["VK_LOADER_LAYERS_DISABLE"] == f"y,{layer.VALIDATION}"
    changes = layer.environment({"VK_LAYER_PATH": "/u"}, "/m", True)
    assert changes["VK_LAYER_PATH"] == "/m:/u"
    assert "VK_LOADER_LAYERS_DISABLE" not in changes
    users = {"VK_INSTANCE_LAYERS": layer.VALIDATION}
    assert "VK_LOADER_LAYERS_DISABLE" not in layer.environment(users, "/m", False)


def test_environment_is_restored(info: DeviceInfo) -> None:
    before = dict(os.environ)
    with Device.open(info, validation=True):
        assert dict(os.environ) == before
    messages()
