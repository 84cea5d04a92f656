"""Plain NumPy pieces that the references share. Clarity first: float32 storage, exact decoding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engine.blocks import FORMATS, Matrix
from ..engine.plan import Weight
from ..engine.repeated import Repeated
from .random_blocks import set_scales

Floats = npt.NDArray[np.float32]
ROW_CHUNK = 4096  # rows decoded at a time: 4096 x 14336 float32 = 235 MB at most


def parts(w: Matrix | Weight) -> tuple[Matrix, ...]:
    """The matrices of a stack, or the single matrix itself."""
    return w.parts if isinstance(w, Weight) else (w,)


def vector(w: Matrix | Weight) -> Floats:
    """A weight that holds one row (a norm's gain), float32 (cols,)."""
    return parts(w)[0].dequantize().reshape(-1)


def row_chunks(w: Matrix | Weight) -> Iterator[tuple[int, Floats]]:
    """Decoded pieces (first row, float32 (rows, cols)) of a matrix or stack, in row order."""
    first = 0
    for m in parts(w):
        for start in range(0, m.rows, ROW_CHUNK):
            piece = m.dequantize(start, min(start + ROW_CHUNK, m.rows))
            yield first + start, piece
        first += m.rows


def product(x: Floats, w: Matrix | Weight) -> Floats:
    """x (n, cols) times the transposed weights: float32 (n, rows)."""
    return np.concatenate([y for m in parts(w) for y in _products(x, m)], axis=1)


def _products(x: Floats, m: Matrix) -> Iterator[Floats]:
    """Pieces of a product, (n, rows) each. Rows drawn from other rows (engine/primitives.py) are
    drawn from the products of those."""
    if isinstance(m, Repeated):
        yield product(x, m.base)[:, m.index]
        return
    for _, piece in row_chunks(m):
        yield x @ piece.T


def rms_normalise(x: Floats, gain: Floats, eps: float) -> Floats:
    """x / sqrt(mean(x^2) + eps) * gain over the last axis (Zhang and Sennrich 2019, eq. 4)."""
    mean = np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True)
    scaled: Floats = (x / np.sqrt(mean + np.float32(eps))).astype(np.float32)
    return scaled * gain


def silu(x: Floats) -> Floats:
    """x * sigmoid(x), without overflow for large negative x."""
    with np.errstate(over="ignore"):
        return (x / (1.0 + np.exp(-x))).astype(np.float32)


def gelu(x: Floats) -> Floats:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel 2016)."""
    z = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    opened: Floats = (np.float32(0.5) * x * (1 + np.tanh(z))).astype(np.float32)
    return opened


def random_matrix(
    rng: np.random.Generator, name: str, rows: int, cols: int, scale: float = 1.0
) -> Matrix:
    """Random weights of a format, about normal with deviation `scale`; every bit pattern of the
    quants occurs, scales are finite."""
    fmt = FORMATS[name]
    if name == "F32":
        raw: npt.NDArray[Any] = rng.standard_normal((rows, cols)).astype(np.float32) * scale
        return Matrix.of(fmt, raw.astype(np.float32).view(np.uint8), cols)
    if name in ("F16", "BF16"):
        values = (rng.standard_normal((rows, cols)) * scale).astype(np.float32)
        bits = values.astype(np.float16).view(np.uint16)
        if name == "BF16":
            bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        return Matrix.of(fmt, bits.view(np.uint8), cols)
    blocks = rng.integers(0, 256, (rows * cols // fmt.elems, fmt.bytes), dtype=np.uint8)
    set_scales(rng, fmt, blocks, scale)
    return Matrix.of(fmt, blocks, cols)


def step_words(n: int, pos: int) -> npt.NDArray[np.uint32]:
    """A step buffer for a batch of `n` tokens at `pos`, running."""
    from ..engine import step

    words = np.zeros(step.WORDS, np.uint32)
    words[[step.N, step.POS, step.LIMIT]] = n, pos, 0xFFFFFFFF
    return words
