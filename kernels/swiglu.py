"""swiglu: silu(gate) * up of a batch whose rows hold gate, then up (Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Params, Reference, Shaped
from .limits import Limits
from .reference import Floats, silu, step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One lane per output value; rows of the batch along y."""
    size = limits.workgroup(256)
    return Launch("", (size,), (-(-int(params["n_ff"]) // size), rows, 1))


def gated_by(activated: Callable[[Floats], Floats]) -> Reference:
    """The reference for one activation."""

    def reference(gu: Array, y: Array, step: Array, *, n_ff: int) -> None:
        """y[i] (n_ff,) = activated(gu[i, :n_ff]) * gu[i, n_ff:2 n_ff] for the rows i < n."""
        n = int(step[words.N])
        y[:n, :n_ff] = activated(gu[:n, :n_ff]) * gu[:n, n_ff : 2 * n_ff]

    return reference


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Odd widths, and gates where exp overflows."""
    for n, n_ff, scale in ((1, 1536, 1.0), (3, 33, 1.0), (2, 300, 60.0)):
        ops = {
            "gu": (rng.standard_normal((n, 2 * n_ff)) * scale).astype(np.float32),
            "y": np.zeros((n, n_ff), np.float32),
            "step": step_words(n, 9),
        }
        yield Case(f"n={n} n_ff={n_ff} scale={scale:g}", ops, {"n_ff": n_ff}, rows=n, limit=1e-11)


KERNEL = Kernel("swiglu", launch, gated_by(silu), cases)
