"""Int8 products of a token in tilings that the device under test would not choose itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import can_run, run_case
from kompute_llm.kernels import (
    experts,
    experts_q8_down,
    experts_q8_swiglu,
    norm_matvec_q8,
    norm_matvec_q8_swiglu,
    q8,
)
from kompute_llm.kernels.kernel import Kernel
from kompute_llm.kernels.limits import Limits

# (kernel, module and name of its tiling, a case of each kind of unit)
KERNELS = (
    (norm_matvec_q8.KERNEL, q8, "plain_tiling", ("Q3_K 48x4096", "Q4_K 48x4096")),
    (norm_matvec_q8_swiglu.KERNEL, q8, "swiglu_tiling", ("Q2_K 192x1536", "Q5_K 192x1536")),
    (experts_q8_swiglu.KERNEL, experts, "gate_tiling", ("Q3_K 4 experts from 1 96x512",)),
    (experts_q8_down.KERNEL, experts, "down_tiling", ("Q3_K 3 experts from 2 64x768",)),
)
IDS = [k.name for k, *_ in KERNELS]
TILINGS = tuple(
    q8.Tiling(rows, ksplit, unroll, lanes=lanes)
    for rows, ksplit, unroll, lanes in ((1, 1, 2, 1), (2, 4, 1, 2), (1, 8, 1, 4), (4, 2, 2, 8))
)


@pytest.mark.parametrize(("kernel", "module", "name", "wanted"), KERNELS, ids=IDS)
def test_tilings(
    vulkan: Device, monkeypatch: pytest.MonkeyPatch, kernel: Kernel, module: object, name: str,
    wanted: tuple[str, ...],
) -> None:
    """Lanes, groups per row, units in flight and rows of all kinds, ragged ones among them."""
    if not can_run(vulkan, kernel):
        pytest.skip(f"{vulkan.info.name} lacks what {kernel.name} needs")
    found = [c for c in kernel.cases(np.random.default_rng(3)) if c.name in wanted]
    assert len(found) == len(wanted)
    for t, case in itertools.product(TILINGS, found):
        monkeypatch.setattr(module, name, lambda *shape, t=t: t)
        result = run_case(vulkan, kernel, case)
        assert result.ok, (case.name, t, result.nmse, result.note)


@pytest.mark.parametrize(
    ("rows", "cols"), [(4096, 14336), (1536, 2048), (5120, 768), (151936, 256)]
)
def test_quads_keep_lanes_busy(rows: int, cols: int) -> None:
    """No more lanes than a row has quads, but for the rest of a power of two."""
    limits = Limits(
        workgroup_invocations=1024, workgroup_size=(1024, 1024, 64), subgroup_size=32,
        subgroup_arithmetic=True, full_subgroups=True, subgroup_count=32, compute_units=132,
    )  # fmt: skip
    quads = cols // 128
    t = q8.plain_tiling(rows, cols // 32, q8.lanes_for(quads, limits), limits.units, 4)
    size, lanes, per, _, _, ksplit = q8.specialize(t, 32, 1, limits)
    assert lanes * ksplit < 2 * max(quads, lanes)
    assert size % (32 * ksplit) == 0
    assert per in (1, 2, 4)
