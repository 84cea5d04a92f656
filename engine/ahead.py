"""Pipelines compiled on threads, before anything waits for them.

A driver compiles a pipeline on the thread that asks for it, 10 to 50 ms each where its cache does
not know it yet. Compiled once into the device's pipeline cache, it costs nothing the second time.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..kernels.kernel import Kernel, Launch
from .cpu_cores import available_cores
from .device import Device

MOST = 16  # threads; drivers hardly gain from more


def compile_pipeline(device: Device, kernel: Kernel, launch: Launch) -> None:
    """Put the pipeline of a launch into the cache. From any thread."""
    device.compile(
        kernel.stem(launch.build), len(kernel.interface.bindings), kernel.spirv(launch.build),
        launch.spec, len(kernel.interface.push), launch.subgroup_size,
    )  # fmt: skip


class Ahead:
    """Launches compiled in the background. Drivers of software have no cache: nothing is done."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pool: ThreadPoolExecutor | None = None
        if not device.limits.software:
            self._pool = ThreadPoolExecutor(min(MOST, available_cores()))
            device.closing.append(self.close)
        self._jobs: dict[tuple[Any, ...], Future[None]] = {}

    @property
    def works(self) -> bool:
        """Whether anything that is added will be compiled."""
        return self._pool is not None

    def add(self, kernel: Kernel, launch: Launch) -> None:
        """Compile this one when a thread is free, once."""
        key = pipeline_key(kernel, launch)
        if self._pool and key not in self._jobs:
            self._jobs[key] = self._pool.submit(compile_pipeline, self._device, kernel, launch)

    def wait(self, kernel: Kernel, launch: Launch) -> None:
        """Return when it is compiled, or was not begun. Errors are left to who asks next."""
        job = self._jobs.get(pipeline_key(kernel, launch))
        if job and not job.cancel():
            job.exception()

    def close(self) -> None:
        """Drop what was not begun and wait for the rest, as the device does when it is closed."""
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


def pipeline_key(kernel: Kernel, launch: Launch) -> tuple[Any, ...]:
    """What tells pipelines apart."""
    return kernel.name, launch.build, launch.spec, launch.subgroup_size
