"""Models with windows, and plans with or without rings, for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import N_EMBD, N_VOCAB, Maker, gemma2, olmo3
from fixtures import Model
from helpers import golden

from kompute_llm.engine import cpu, spec_model, vulkan
from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.forward import PlanOptions
from kompute_llm.engine.products import plan_options
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec

WINDOW = 9  # with batches of 7 a ring of 15 rows, so that batches begin at each of its rows
N_CTX = 160
IDS = [int(i) for i in np.random.default_rng(5).integers(3, N_VOCAB, 1300)]
Runner = CpuRunner | vulkan.VulkanRunner
Open = Callable[..., Runner]
Models = Callable[[str], Container]


def mistral(window: int = WINDOW) -> Model:
    """A llama with a window in all layers."""
    m = Maker("llama", 9, 4, 2, 32)

    def layer(w: str) -> None:
        m.norms(w, "attn_norm", "ffn_norm")
        m.attention(w)
        m.ffn(w)

    m.layers(layer)
    m.matrix("output", N_VOCAB, N_EMBD)
    return m.model({"attention.sliding_window": window})


def models_in(folder: Path) -> Models:
    """Tiny models by name: made there, or golden ones."""
    makers = {"mistral": mistral, "gemma2": gemma2, "olmo3": olmo3}

    def find(name: str) -> Container:
        if name not in makers:
            found = golden()
            if found is None:
                pytest.skip("the golden models are not beside this repository")
            return open_model(found / "models" / f"{name}.gguf")
        path = folder / f"{name}.gguf"
        return open_model(path if path.exists() else makers[name]().write(path))

    return find


def forced(monkeypatch: pytest.MonkeyPatch, ring: bool) -> None:
    """Plans with rings as short as can be, or with whole caches."""

    def chosen(*args: Any) -> Any:
        products, opts = plan_options(*args)
        return products, replace(opts, ring=ring)

    monkeypatch.setattr(spec_model, "RING_STEP", 1)
    monkeypatch.setattr(cpu, "PlanOptions", partial(PlanOptions, ring=ring))
    monkeypatch.setattr(vulkan, "plan_options", chosen)


def on_cpu(c: Container, n_ctx: int = N_CTX, k: str = "f16", v: str = "f16") -> Open:
    """What opens the CPU executor; it wants `batch`."""
    return partial(CpuRunner, c, model_spec(c), n_ctx, cache_k=k, cache_v=v, threads=2)


def trace(r: Runner, batch: int, length: int, start: int = 0) -> list[Any]:
    """A prompt in batches (the first of `start` tokens), drawn tokens, logits of more tokens and of
    the prompt."""
    r.begin(Sampling(temp=0.0, seed=1), (), length + 8)
    at = start or batch
    r.prefill(IDS[:at], sample=False)
    while at < length:
        step = min(batch, length - at)
        r.prefill(IDS[at : at + step], sample=at + step == length)
        at += step
    r.decode(5)
    drawn, _, bad = r.poll()
    assert bad == 0
    ids = IDS[: min(batch, 9)]
    more = [r.logits(ids, length + 5), r.logits(IDS[9:10], length + 5 + len(ids))]
    more.append(r.logits(IDS[:length]))  # in batches too, and of every position
    assert all(np.isfinite(m).all() for m in more)
    return [drawn, *(m.tobytes() for m in more)]
