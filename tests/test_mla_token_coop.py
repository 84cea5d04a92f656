"""Latent attention of single tokens on emulated matrix cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coop_emulation import LANES, emulated

from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import run_case, shapes_of
from kompute_llm.kernels import mla, mla_attention_coop
from kompute_llm.kernels.kernel import Case
from kompute_llm.kernels.limits import Limits
from kompute_llm.kernels.reference import step_words

# matrix cores of a device with subgroups of 8
LIMITS = Limits(
    workgroup_invocations=64, workgroup_size=(64, 64, 64), shared_bytes=32768,
    subgroup_size=LANES, subgroup_arithmetic=True, full_subgroups=True, coopmat=True,
)  # fmt: skip


def case(heads: int, rank: int, rot: int, pos: int, splits: int, least: int) -> Case:
    """Positions up to pos, `splits` splits of at least `least`; poison behind them."""
    rng = np.random.default_rng(pos)
    k: Any = rng.standard_normal((pos + 4, rank + rot)).astype(np.float16)
    k[pos + 1 :] = np.nan
    ops: dict[str, Any] = {
        "q": rng.standard_normal((1, heads * (rank + rot))).astype(np.float32), "k": k,
        "part": np.zeros((heads, splits, rank + 2), np.float32), "step": step_words(1, pos),
    }  # fmt: skip
    used = -(-(pos + 1) // mla.split_length(pos + 1, splits, least))
    written = np.zeros(ops["part"].shape, bool)
    written[:, :used] = True
    params = {"heads": heads, "rank": rank, "n_rot": rot, "splits": splits, "scale": 0.07,
              "most": mla.ALL, "least": least}  # fmt: skip
    return Case("", ops, params, only={"part": written}, limit=mla_attention_coop.LIMIT)


# one tile and several, ragged ones; padded heads, two tiles of them, two groups; columns and
# parts of rows that do not divide by the subgroups
@pytest.mark.parametrize("shape", [
    (4, 64, 32, 0, 4, 16), (20, 64, 32, 76, 2, 16), (3, 96, 16, 130, 8, 32),
    (40, 64, 16, 70, 3, 64),
])  # fmt: skip
def test_splits(vulkan: Device, shape: tuple[int, int, int, int, int, int]) -> None:
    """Every split's sums, largest score and sum of exponentials."""
    if vulkan.limits.subgroup_size != LANES or not vulkan.limits.float16:
        pytest.skip(f"the emulation wants float16 and subgroups of {LANES}")
    it, kernel = case(*shape), mla_attention_coop.KERNEL
    launch = kernel.launch(shapes_of(it), it.params, 1, LIMITS)
    result = run_case(vulkan, emulated(kernel, launch), it)
    assert result.ok, (result.nmse, result.note)


def test_launch_of_real_heads() -> None:
    """Heads of 512 + 64 values fit 48 KiB; up to 16 are one tile of heads."""
    limits = LIMITS.with_(
        workgroup_invocations=1024, workgroup_size=(1024, 1024, 64), shared_bytes=49152,
        subgroup_size=32,
    )  # fmt: skip
    assert mla_attention_coop.sizes(20, 512, 64, limits) == (2, 32)
    assert mla_attention_coop.sizes(16, 512, 64, limits) == (1, 32)
