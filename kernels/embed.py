"""embed: token ids to rows of the embedding matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..engine import step as words
from ..engine.blocks import FORMATS
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .reference import parts, random_matrix, step_words


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per token; its lanes share the row's chunks of 32 values."""
    size = limits.workgroup(min(256, max(32, ops["w"].cols // 32)))
    return Launch(ops["w"].format_name, (size,), (rows, 1, 1))


def reference(
    tokens: Array, w: Matrix, x: Array, step: Array, *,
    n_embd: int, row0: int, rows: int, scale: float,
) -> None:
    """x[i] (n_embd,) = scale * decoded row tokens[i] of w, for tokens in [row0, row0 + rows)."""
    for i in range(int(step[words.N])):
        token = int(tokens[i]) - row0
        for m in parts(w):
            if 0 <= token < m.rows:
                x[i, :n_embd] = m.dequantize(token, token + 1)[0] * np.float32(scale)
            token -= m.rows


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format; one token and many; a row width that is not a power of two."""
    for name in FORMATS:
        for n, cols in ((1, 256), (5, 768)):
            vocab = 37
            ids = rng.integers(0, vocab, 8).astype(np.uint32)
            ops: dict[str, Array | Matrix] = {
                "tokens": ids,
                "w": random_matrix(rng, name, vocab, cols),
                "x": np.zeros((n, cols), np.float32),
                "step": step_words(n, 3),
            }
            scale = 1.0 if n == 1 else 27.5
            params = {"n_embd": cols, "row0": 0, "rows": vocab, "scale": scale}
            yield Case(f"{name} n={n} cols={cols}", ops, params, rows=n, limit=1e-12)


KERNEL = Kernel("embed", launch, reference, cases)
