"""The shaders that measure what a device can do; the one for matrix cores emulated."""

from __future__ import annotations

import numpy as np
import pytest
from coop_emulation import LANES, emulated

from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import can_run, run_case
from kompute_llm.kernels import roof_coop, roof_copy, roof_dot, roof_fma, roof_read
from kompute_llm.kernels.kernel import Kernel, Launch

PLAIN = (roof_read, roof_copy, roof_fma, roof_dot)


@pytest.mark.parametrize("kernel", [m.KERNEL for m in PLAIN], ids=lambda k: k.name)
def test_cases(vulkan: Device, kernel: Kernel) -> None:
    if not can_run(vulkan, kernel):
        pytest.skip(f"{vulkan.info.name} lacks what {kernel.name} needs")
    for case in kernel.cases(np.random.default_rng(1)):
        result = run_case(vulkan, kernel, case)
        assert result.ok, (case.name, result.nmse, result.note)


def test_matrices(vulkan: Device) -> None:
    if vulkan.limits.subgroup_size != LANES or not vulkan.limits.float16:
        pytest.skip(f"the emulation wants float16 and subgroups of {LANES}")
    for case in roof_coop.KERNEL.cases(np.random.default_rng(1)):
        spec = (2 * LANES, LANES, 16, 16, 16)
        launch = Launch("", spec, (int(case.params["count"]) // 2048 or 1, 1, 1), LANES)
        result = run_case(vulkan, emulated(roof_coop.KERNEL, launch), case)
        assert result.ok, (case.name, result.nmse, result.note)
