"""Pipelines compiled on threads, on a device that is told not to be software."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fixtures
import numpy as np
import pytest

from kompute_llm.engine import ahead
from kompute_llm.engine.ahead import Ahead
from kompute_llm.engine.container import open_model
from kompute_llm.engine.device import Device
from kompute_llm.engine.errors import DeviceError
from kompute_llm.engine.harness import shapes_of
from kompute_llm.engine.harness_ahead import cases_ready, in_advance, results
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner
from kompute_llm.kernels import rmsnorm, softcap, swiglu
from kompute_llm.kernels.kernel import Launch


@pytest.fixture
def hard(vulkan: Device) -> Iterator[Device]:
    """Another opening of the device."""
    with Device.open(vulkan.info, limits=replace(vulkan.limits, software=False)) as device:
        yield device


def launch_of(device: Device) -> Launch:
    """Some launch of rmsnorm."""
    case = next(iter(rmsnorm.KERNEL.cases(np.random.default_rng(0))))
    return rmsnorm.KERNEL.launch(shapes_of(case), case.params, case.rows, device.limits)


def test_each_launch_once(hard: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking twice compiles once, on another thread; waiting returns when it is done."""
    made: list[str] = []
    inner = ahead.compile_pipeline

    def compiled(*args: object) -> None:
        inner(*args)  # type: ignore[arg-type]
        made.append(threading.current_thread().name)

    monkeypatch.setattr(ahead, "compile_pipeline", compiled)
    launch, work = launch_of(hard), Ahead(hard)
    work.add(rmsnorm.KERNEL, launch)
    work.add(rmsnorm.KERNEL, launch)
    work.wait(rmsnorm.KERNEL, launch)
    work.close()
    assert len(made) <= 1  # none if it was not begun before it was asked for
    assert threading.main_thread().name not in made


def test_software_waits_for_nobody(vulkan: Device) -> None:
    """Nothing is compiled ahead where no cache would know it."""
    if not vulkan.limits.software:
        pytest.skip("no software device")
    work = Ahead(vulkan)
    work.add(rmsnorm.KERNEL, launch_of(vulkan))
    assert not work._jobs


def test_errors_are_left_to_who_asks(hard: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that cannot be made fails where it is needed, not before."""

    def fails(*args: object) -> None:
        raise DeviceError("no")

    monkeypatch.setattr(ahead, "compile_pipeline", fails)
    launch, work = launch_of(hard), Ahead(hard)
    work.add(rmsnorm.KERNEL, launch)
    work.wait(rmsnorm.KERNEL, launch)


def test_closing_drops_what_waits(vulkan: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is closed waits for what is being compiled and drops the rest."""
    begun, go = threading.Event(), threading.Event()
    done: list[Launch] = []

    def slow(device: Device, kernel: object, launch: Launch) -> None:
        begun.set()
        go.wait(10)
        done.append(launch)

    monkeypatch.setattr(ahead, "compile_pipeline", slow)
    monkeypatch.setattr(ahead, "available_cores", lambda: 1)
    launch = launch_of(vulkan)
    with Device.open(vulkan.info, limits=replace(vulkan.limits, software=False)) as device:
        work = Ahead(device)
        for size in range(8):
            work.add(rmsnorm.KERNEL, replace(launch, spec=(size,)))
        assert begun.wait(10)
        threading.Timer(0.05, go.set).start()
    assert len(done) == 1


def test_a_model_gives_the_same(vulkan: Device, hard: Device, tmp_path: Path) -> None:
    """Logits do not depend on who compiles."""
    path = fixtures.write_tiny(tmp_path / "m.gguf")
    found = []
    for device in (vulkan, hard):
        with open_model(path) as c:
            r = VulkanRunner(c, model_spec(c), device, 64, math="f32")
            found.append(r.logits([3, 4, 5, 6]))
    error = np.square(found[0] - found[1]).sum() / np.square(found[0]).sum()
    assert error < 1e-9


def test_cases_come_in_order(hard: Device) -> None:
    """Every case of each kernel, as if one thread had made them, and they pass."""
    kernels = [rmsnorm.KERNEL, softcap.KERNEL, swiglu.KERNEL]
    ready = list(cases_ready(hard, kernels, 3))
    want = [(k.name, c.name) for k in kernels for c in k.cases(np.random.default_rng(3))]
    assert [(r.kernel.name, r.case.name) for r in ready] == want
    assert all(r.ok for _, r in results(ready, 3))


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_in_advance(threads: int) -> None:
    """Results in order, and no more ahead than asked for."""
    given: list[int] = []

    def items() -> Iterator[int]:
        for i in range(20):
            given.append(i)
            yield i

    for i, square in enumerate(in_advance(lambda n: n * n, items(), threads, 2)):
        assert square == i * i
        assert len(given) <= i + 2 + 2 * threads
