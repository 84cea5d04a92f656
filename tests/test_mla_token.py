"""Latent attention of a token in one dispatch: unrolled as on GPUs, and in plans."""

from __future__ import annotations

import numpy as np
import pytest

from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import can_run, run_case
from kompute_llm.kernels import mla_token, mla_token_plain
from kompute_llm.kernels.limits import Limits
from kompute_llm.kernels.mla_token_launch import LARGE, ODD, SMALL, Head, suits, team

H200 = Limits(
    workgroup_invocations=1024, workgroup_size=(1024, 1024, 64), shared_bytes=49152,
    subgroup_size=32, subgroup_arithmetic=True, full_subgroups=True, int_dot=True,
)  # fmt: skip


@pytest.mark.parametrize("which", range(3))
def test_unrolled(vulkan: Device, monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """Several rows and cache rows at once, as devices that are no software take them."""
    if not can_run(vulkan, mla_token.KERNEL):
        pytest.skip("no packed dot products or subgroups")
    monkeypatch.setattr(vulkan, "limits", vulkan.limits.with_(software=False))
    rng = np.random.default_rng(which)
    size, fmt, length = ((SMALL, "Q4_0", 200), (ODD, "Q8_0", 70), (ODD, "Q4_0", 64))[which]
    kernel, case = mla_token.KERNEL, mla_token.case(rng, fmt, *size, length)
    if which == 2:
        kernel, case = mla_token_plain.KERNEL, mla_token_plain.case(rng, fmt, *size, length, True)
    result = run_case(vulkan, kernel, case)
    assert result.ok, (result.nmse, result.note)


def test_teams() -> None:
    """Real heads fit 48 KiB of shared memory with 512 invocations; others take turns, or not."""
    large = team(LARGE[1], H200)
    assert large is not None
    assert (large.size, large.slots, large.lanes) == (512, 16, 8)
    assert (large.key_rows, large.value_rows, large.query_rows) == (4, 4, 2)
    small = team(LARGE[1], H200.with_(shared_bytes=32768))
    assert small is not None and small.slots == 8
    wide = team(Head(512, 128, 64, 128, 1536), H200)  # DeepSeek V3
    assert wide is not None and (wide.lanes, wide.query_rows) == (16, 2)
    assert not suits(Head(1 << 15, 64, 64, 64), H200)
    assert not suits(Head(512, 64, 20, 64), H200)
    assert not suits(LARGE[1], H200.with_(subgroup_size=2))
