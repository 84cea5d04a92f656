"""Sampling on the device, many draws in one sequence, against the CPU twin and statistics."""

from __future__ import annotations

import numpy as np
import pytest
from sampling import Chain

from kompute_llm.engine.device import Device
from kompute_llm.engine.sampler import MAX_SUPPRESSED, Sampling
from kompute_llm.engine.step import StopReason

OPTIONS = [
    Sampling(seed=11),
    Sampling(temp=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=12),
    Sampling(temp=1.3, top_k=0, top_p=0.9, repeat_penalty=1.3, repeat_last_n=20, seed=13),
    Sampling(temp=1.0, repeat_last_n=-1, frequency_penalty=0.3, presence_penalty=0.2, seed=14),
    Sampling(temp=0.0, repeat_penalty=1.5, repeat_last_n=8, seed=15),
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: f"seed {o.seed}")
def test_chain(vulkan: Device, options: Sampling) -> None:
    """100 draws after a prompt: the same ids, window and step words as the references."""
    rng = np.random.default_rng(options.seed)
    prompt = rng.integers(0, 500, 70).tolist()
    logits = (rng.standard_normal(500) * 2).astype(np.float32)
    chains = [Chain(500, 200, options, device=d) for d in (vulkan, None)]
    ids = []
    for chain in chains:
        chain.prompt(prompt[:64])
        chain.prompt(prompt[64:])
        ids.append(chain.draw(logits, 100))
    assert ids[0] == ids[1]
    for name in ("step", "out", "counts", "history"):
        assert (chains[0].arrays[name] == chains[1].arrays[name]).all(), name


@pytest.mark.parametrize("temp", [0.0, 2.0])
def test_suppressed_ids_are_never_drawn(vulkan: Device, temp: float) -> None:
    """As many as fit, all of them better than the others."""
    silent = range(7, 7 + 2 * MAX_SUPPRESSED, 2)
    logits = np.zeros(3000, np.float32)
    logits[list(silent)] = 9.0
    options, drawn = Sampling(temp=temp, top_k=0, top_p=1.0, min_p=0.0, seed=5), []
    for device in (vulkan, None):
        chain = Chain(3000, 200, options, device=device, suppressed=silent)
        chain.prompt([1, 2])
        drawn.append(chain.draw(logits, 100))
    assert drawn[0] == drawn[1] and not set(drawn[0]) & set(silent)


def test_steps_after_the_stop_change_nothing(vulkan: Device) -> None:
    """A limit in the middle of a sequence: the rest of the recorded steps do nothing."""
    chain = Chain(300, 200, Sampling(seed=3, repeat_penalty=1.1), limit=20, device=vulkan)
    chain.prompt([5, 6, 7])
    ids = chain.draw(np.linspace(0, 3, 300, dtype=np.float32), 40)
    assert len(ids) == 18 and chain.reason is StopReason.LIMIT
    assert chain.arrays["counts"].sum() == 3 + 18
