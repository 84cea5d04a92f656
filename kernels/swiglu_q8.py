"""swiglu_q8: silu(gate) * up of one token as int8 groups of 16 (Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from . import q8
from .kernel import Array, Case, Kernel, Launch, Params, Reference, Shaped
from .limits import Limits
from .reference import Floats, silu, step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One invocation per group of 16 values."""
    size = limits.workgroup(64)
    return Launch("", (size,), (-(-int(params["n_ff"]) // (q8.GROUP * size)), 1, 1))


def gated_by(activation: Callable[[Floats], Floats]) -> Reference:
    """The reference of a gate."""

    def reference(gu: Array, yq: Array, ys: Array, step: Array, *, n_ff: int) -> None:
        """yq, ys = q8(activation(gu[0, :n_ff]) * gu[0, n_ff:2 n_ff])."""
        gate, up = gu[0, :n_ff], gu[0, n_ff : 2 * n_ff]
        yq[: n_ff // 4], ys[: n_ff // q8.GROUP] = q8.quantize(activation(gate) * up)

    return reference


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Gates where exp overflows; a group of zeros."""
    for n_ff, scale in ((32, 1.0), (1536, 1.0), (4096, 60.0)):
        gu: Any = (rng.standard_normal((1, 2 * n_ff)) * scale).astype(np.float32)
        gu[0, :16] = 0
        ops = {
            "gu": gu, "yq": np.zeros(n_ff // 4, np.uint32),
            "ys": np.zeros((n_ff // 16, 2), np.float32), "step": step_words(1, 0),
        }  # fmt: skip
        params = {"n_ff": n_ff}
        yield Case(f"n_ff={n_ff} scale={scale:g}", ops, params, limit=1e-5, int8=frozenset({"yq"}))


KERNEL = Kernel("swiglu_q8", launch, gated_by(silu), cases)
