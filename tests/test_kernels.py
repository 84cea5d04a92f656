"""Every case of every kernel: shader against reference, on the device under test."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest

from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import all_kernels, can_run, run_case, shapes_of
from kompute_llm.kernels.kernel import Case, Kernel
from kompute_llm.kernels.limits import Limits

KERNELS = all_kernels()
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)


def failures(device: Device, cases: Iterable[Case], kernel: Kernel) -> str:
    """One line for each case that is outside its limit."""
    if not can_run(device, kernel):
        pytest.skip(f"{device.info.name} lacks what {kernel.name} needs")
    results = [run_case(device, kernel, case) for case in cases]
    assert results
    return "\n".join(
        f"{r.case} [{r.build}]: NMSE {r.nmse:.2e} {r.note}" for r in results if not r.ok
    )


@each_kernel
def test_cases(vulkan: Device, kernel: Kernel) -> None:
    """Every case within its limit; fails with the list of those that are not."""
    bad = failures(vulkan, kernel.cases(np.random.default_rng(7)), kernel)
    assert not bad, bad


@each_kernel
def test_smallest_device(vulkan: Device, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same results with the smallest limits of Vulkan 1.2 and without subgroup operations."""
    monkeypatch.setattr(vulkan, "limits", Limits())
    some = itertools.islice(kernel.cases(np.random.default_rng(8)), 0, None, 7)
    bad = failures(vulkan, some, kernel)
    assert not bad, bad


@each_kernel
def test_interface(kernel: Kernel) -> None:
    """Builds exist, push words fit the guaranteed 128 bytes, cases name every binding."""
    interface = kernel.interface
    assert len(interface.push) * 4 <= 128
    for build in interface.builds:
        assert kernel.spirv(build)[:4] == b"\x03\x02\x23\x07"
    case = next(kernel.cases(np.random.default_rng(0)))
    assert {b.name for b in interface.bindings} == set(case.operands)


SIZES = itertools.product((16384, 32768, 49152), (128, 256, 1024), (1, 8, 32, 64))
DEVICES = [
    Limits(
        workgroup_invocations=invocations, workgroup_size=(invocations, invocations, 64),
        shared_bytes=shared, subgroup_size=subgroup, subgroup_arithmetic=subgroup > 1,
        full_subgroups=subgroup > 1, compute_units=80, subgroup_count=16,
    )
    for shared, invocations, subgroup in SIZES
]  # fmt: skip


@each_kernel
def test_launches_fit(kernel: Kernel) -> None:
    """Workgroups and grids stay within the limits of small and large devices."""
    for case in kernel.cases(np.random.default_rng(0)):
        shapes = shapes_of(case)
        for limits in DEVICES:
            if not kernel.needs(limits):
                continue
            launch = kernel.launch(shapes, case.params, case.rows, limits)
            assert 0 < launch.spec[0] <= limits.workgroup_invocations
            if launch.subgroup_size:
                assert launch.spec[0] <= limits.subgroup_size * limits.subgroup_count
            assert launch.build in kernel.interface.builds
            assert all(0 < g <= most for g, most in zip(launch.grid, limits.grid, strict=True))
            assert launch.subgroup_size in (0, limits.subgroup_size)
