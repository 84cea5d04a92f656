"""attention_combine_sinks: attention_combine with a sink per head, a score without a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from . import attention_combine
from .kernel import Array, Case, Kernel, Matrix
from .reference import vector
from .routing import f32_matrix


def reference(
    part: Array, y: Array, step: Array, sinks: Matrix, *, n_head: int, head_dim: int, splits: int
) -> None:
    """As attention_combine, of one split more: score sinks[h], no value; sinks (1, n_head)."""
    more = np.zeros((n_head, 1, head_dim + 2), np.float32)
    more[:, 0, head_dim], more[:, 0, head_dim + 1] = vector(sinks), 1
    whole = np.concatenate([part, more], axis=1)
    attention_combine.reference(whole, y, step, n_head=n_head, head_dim=head_dim, splits=splits + 1)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of attention_combine, with sinks below and above the scores."""
    for case in attention_combine.cases(rng):
        sinks = f32_matrix(rng.standard_normal((1, int(case.params["n_head"]))) * 3)
        yield replace(case, operands={**case.operands, "sinks": sinks})


KERNEL = Kernel("attention_combine_sinks", attention_combine.launch, reference, cases)
