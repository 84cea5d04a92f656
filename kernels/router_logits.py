"""router_logits: norm and router product of a batch, in float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import product, rms_normalise, step_words, vector
from .routing import f32_matrix

SIDE = 4  # experts and tokens of an invocation, as in shaders/router_logits.comp


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Tokens along x, experts along y: up to 64 of them and 4 tokens in a workgroup."""
    experts, blocks, lanes = int(params["rows"]), 16, 32
    while blocks > 1 and blocks * SIDE >= 2 * experts:
        blocks //= 2
    while lanes > 1 and (
        blocks * lanes > limits.most
        or 4 * lanes * (SIDE * SIDE * blocks + 5) > limits.shared_bytes
    ):  # fmt: skip
        lanes //= 2
    grid = (-(-rows // SIDE), -(-experts // (SIDE * blocks)), 1)
    return Launch("", (blocks * lanes, lanes), grid)


def reference(
    x: Array, g: Matrix, w: Matrix, logits: Array, step: Array, *,
    cols: int, eps: float, rows: int,
) -> None:
    """logits[:n] (n, rows) = W (rmsnorm(x) * g); x (batch, cols), W float32, a row per expert."""
    n = int(step[words.N])
    logits[:n] = product(rms_normalise(x[:n, :cols], vector(g), eps), w)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Few experts and many, ragged tiles, a batch smaller than the launch."""
    for n, experts, cols in ((1, 3, 96), (6, 64, 256), (9, 70, 512), (4, 256, 1024), (13, 8, 64)):
        x: Any = rng.standard_normal((n + 1, cols)) * 3
        w = rng.standard_normal((experts, cols)) / np.sqrt(cols)
        ops: dict[str, Array | Matrix] = {
            "x": x.astype(np.float32), "g": f32_matrix(rng.uniform(0.5, 1.5, (1, cols))),
            "w": f32_matrix(w), "logits": np.zeros((n + 1, experts), np.float32),
            "step": step_words(n, 2),
        }  # fmt: skip
        params = {"cols": cols, "eps": 1e-5, "rows": experts}
        only = {"logits": np.arange(n + 1)[:, None].repeat(experts, 1) < n}
        yield Case(f"n={n} {experts}x{cols}", ops, params, rows=n + 1, only=only, limit=1e-11)


KERNEL = Kernel("router_logits", launch, reference, cases)
