"""Chains with int8 groups between: a quant that goes the other way, and faults of a stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kompute_llm.engine.device import Device
from kompute_llm.engine.harness_chain import Chain, compare, reference
from kompute_llm.engine.harness_primitives import (
    STAGES,
    Checker,
    Prepared,
    by_stages,
    prepare,
    runnable,
    verdict,
)
from kompute_llm.engine.harness_stages import rounds, stages
from kompute_llm.engine.primitives import Check, all_primitives
from kompute_llm.kernels import q8
from kompute_llm.kernels.kernel import Array

NAME = "mla_token Q4_0 16 heads 1536/512+64 T=1"
TIE = 10  # a seed with which a value of the cache's row is half of its group's largest
PRIMITIVES = {p.name: p for p in all_primitives()}
MLA = PRIMITIVES["mla"]


def check_of(name: str) -> Check:
    return next(c for c in MLA.checks(1 << 62) if c.name == name)


def inexact(values: Any) -> tuple[Array, Array]:
    """q8.quantize with a division one unit in the last place too small."""
    groups = values.reshape(-1, q8.GROUP)
    most = np.abs(groups).max(axis=1, keepdims=True)
    inverse = np.nextafter((np.float32(127) / most).astype(np.float32), np.float32(0))
    q = np.rint(groups * inverse).astype(np.int8)
    scale = (most / np.float32(127)).astype(np.float32)
    sums = scale * q.sum(axis=1, keepdims=True, dtype=np.float32)
    return q.reshape(-1).view(np.uint32), np.concatenate([scale, sums], axis=1)


@pytest.fixture(scope="module")
def tie() -> tuple[Prepared, dict[str, Array]]:
    """A check at a tie, and what a device with the other division gives."""
    check = check_of(NAME)
    chain = check.chain(TIE, MLA.name)
    item = Prepared(check, chain, reference(chain))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(q8, "quantize", inexact)
        return item, reference(chain)


def test_one_quant_moves_what_follows(tie: tuple[Prepared, dict[str, Array]]) -> None:
    """The whole chain exceeds its limit, no stage does."""
    item, got = tie
    whole = verdict(MLA, item, compare(item.chain, item.want, got), "")
    assert not whole.ok and MLA.limit.value < whole.max_rel < 3e-3
    found = by_stages(MLA, item, got, "")
    assert found.ok and found.note == STAGES and found.max_rel < 1e-6


def test_a_stage_at_fault_is_named(tie: tuple[Prepared, dict[str, Array]]) -> None:
    item, right = tie
    wrong = right | {"out": right["out"] + np.float32(0.01)}
    assert by_stages(MLA, item, wrong, "").note.startswith("matvec_q8_add")
    steps = right["vq"].copy()
    steps.view(np.int8)[...] //= 2
    found = by_stages(MLA, item, right | {"vq": steps}, "")
    assert not found.ok and found.note.startswith("mla_token: int8 results differ")
    near = item.want["vq"].copy()
    near.view(np.int8)[...] -= np.sign(near.view(np.int8))
    found = by_stages(MLA, item, right | {"vq": near}, "")
    assert not found.ok and "too many int8 results" in found.note
    found = by_stages(MLA, item, right | {"out": right["out"] * np.nan}, "")
    assert not found.ok and "not finite" in found.note


def chain_of_check(primitive: str, start: str) -> Chain:
    p = PRIMITIVES[primitive]
    check = next(c for c in p.checks(1 << 62) if c.name.startswith(start))
    return check.chain(1, primitive)


@pytest.mark.parametrize(("primitive", "start", "does"), [
    ("mla", "int8 Q4_0", True), ("mla", "f32 Q4_0", False), ("experts", "token int8 Q4_0", True),
    ("experts-batch", "f32 Q4_0", False), ("product", "norm_matvec_q8 Q4_0 1536", False),
])  # fmt: skip
def test_right_results_pass_every_stage(primitive: str, start: str, does: bool) -> None:
    """Also where buffers between are written by several dispatches, or only in part."""
    chain = chain_of_check(primitive, start)
    assert rounds(chain) == does
    found = list(stages(chain, reference(chain)))
    assert [link for link, *_ in found] == list(chain.links)
    assert all(e.max_rel == 0 and not e.note for _, *errors in found for e in errors)


def test_stages_of_a_device(vulkan: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain whose comparison as a whole fails: what lies between comes back from the device."""
    check = next(c for c in runnable(vulkan, MLA) if c.name == NAME)
    item = next(iter(prepare([check], MLA, 3, 0)))
    for value in item.want.values():
        if isinstance(value, np.ndarray) and value.dtype == np.float32:
            value *= np.float32(1.1)
    checker = Checker(vulkan, 3)
    (found,) = checker._run(MLA, item)
    assert found.ok and found.note == STAGES and found.max_rel < 1e-3
