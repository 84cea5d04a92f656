"""attention_prefill_sinks: attention_prefill with a sink per head, a score without a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..engine import step as words
from . import attention_prefill
from .attention import capped
from .kernel import Array, Case, Kernel, Matrix
from .reference import vector
from .routing import f32_matrix


def reference(
    qkv: Array, k: Array, v: Array, y: Array, step: Array, sinks: Matrix, *,
    n_head: int, n_head_kv: int, head_dim: int, scale: float, window: int, softcap: float,
    ring: int = 0,
) -> None:
    """As attention_prefill, the weights of a query divided by exp(sink) more; sinks (1, n_head)."""
    n, group = int(step[words.N]), n_head // n_head_kv
    keys, values, hidden = attention_prefill.visible(
        k, v, step, n_head_kv, head_dim, window, ring
    )
    for h, sink in enumerate(vector(sinks)):
        q = qkv[:n, h * head_dim : (h + 1) * head_dim] * np.float32(scale)
        score = capped(q @ keys[:, h // group].T, softcap)
        score = np.where(hidden, -np.inf, score).astype(np.float32)
        most = np.maximum(score.max(axis=1, keepdims=True), sink)
        weight = np.exp(score - most)
        total = weight.sum(axis=1, keepdims=True) + np.exp(sink - most)
        y[:n, h * head_dim : (h + 1) * head_dim] = weight @ values[:, h // group] / total


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of attention_prefill, with sinks below and above the scores."""
    for case in attention_prefill.cases(rng):
        sinks = f32_matrix(rng.standard_normal((1, int(case.params["n_head"]))) * 3)
        yield replace(case, operands={**case.operands, "sinks": sinks})


KERNEL = Kernel("attention_prefill_sinks", attention_prefill.launch, reference, cases)
