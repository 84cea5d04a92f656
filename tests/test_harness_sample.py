"""The cases of kernels that a software device runs: those of a few pipelines."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cli import invoke
from kompute_llm.engine import harness_sample
from kompute_llm.engine.ahead import pipeline_key
from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import all_kernels, shapes_of
from kompute_llm.engine.harness_sample import SPIRV_BYTES, Sample
from kompute_llm.kernels import attention_tiles_q8, matvec, rmsnorm
from kompute_llm.kernels.kernel import Case, Kernel
from kompute_llm.kernels.limits import Limits

LIMITS = Limits(subgroup_size=8, subgroup_count=128, software=True, int_dot=True)


def cases_of(kernel: Kernel) -> list[Case]:
    return list(kernel.cases(np.random.default_rng(1)))


def keys_of(kernel: Kernel, cases: list[Case]) -> set[tuple[object, ...]]:
    return {
        pipeline_key(kernel, kernel.launch(shapes_of(c), c.params, c.rows, LIMITS)) for c in cases
    }


@pytest.mark.parametrize("kernel", [matvec.KERNEL, rmsnorm.KERNEL], ids=lambda k: k.name)
def test_pipelines_come_with_all_their_cases(kernel: Kernel) -> None:
    every, draw = cases_of(kernel), Sample(LIMITS, 4)
    some = draw(kernel, every)
    assert len(some) + draw.left_out == len(every)
    drawn = keys_of(kernel, some)
    rest = [c for c in every if not any(c is x for x in some)]
    assert drawn.isdisjoint(keys_of(kernel, rest))
    assert [c.name for c in some] == [c.name for c in every if any(c is x for x in some)]


def test_bytes_bound_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small pipelines or one large, others with another seed."""
    every = cases_of(matvec.KERNEL)
    drawn = [keys_of(matvec.KERNEL, Sample(LIMITS, seed)(matvec.KERNEL, every)) for seed in (1, 2)]
    assert drawn[0] != drawn[1]
    for keys in drawn:
        assert sum(len(matvec.KERNEL.spirv(str(k[1]))) for k in keys) <= SPIRV_BYTES
    large = attention_tiles_q8.KERNEL
    assert len(keys_of(large, Sample(LIMITS, 1)(large, cases_of(large)))) == 1
    monkeypatch.setattr(harness_sample, "SPIRV_BYTES", 1 << 30)
    draw = Sample(LIMITS, 1)
    assert len(draw(matvec.KERNEL, every)) == len(every) and draw.left_out == 0


def test_every_kernel_is_met(vulkan: Device) -> None:
    """Seeds of a few runs meet many cases, no run leaves a kernel out."""
    small = [k for k in all_kernels() if k.needs(vulkan.limits)][::9]
    for kernel in small:
        assert Sample(vulkan.limits, 3)(kernel, cases_of(kernel))


def test_the_last_line_says_what_ran(vulkan: Device) -> None:
    where = ("--only", "norm,dsa_keys", "--seed", 3, "--device", vulkan.info.index)
    r = invoke("validate", "--shapes", "sample", *where)
    assert r.exit_code == 0, r.stdout
    found = re.search(r"(\d+) of (\d+) cases, 0 failed", r.stdout)
    assert found and int(found[1]) < int(found[2])
    assert f"note: {found[1]} of {found[2]} cases" in r.stderr and "--shapes all" in r.stderr
    named = invoke("validate", *where[2:], "--only", "fill")
    assert "3 cases, 0 failed" in named.stdout and " of " not in named.stdout.splitlines()[-1]
