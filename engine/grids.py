"""Codebooks of the IQ1, IQ2 and IQ3 formats: a quant is an index of 4 or 8 values.

The tables belong to the formats (ggml-common.h of llama.cpp); they come out of `gguf.quants`.
Kernels read them as bytes: IQ2 and IQ3 the magnitudes, 8 or 4 a quant, IQ1 8 * (value + 1), so
that with its shift of an eighth up or down a value is (byte + 0 or 2 - 9) / 8.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import quants

GRIDS = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")


@cache
def grid_words(name: str) -> npt.NDArray[np.uint32]:
    """The codebook of a format, one quant after the other: 2 words each, IQ3 1."""
    table: Any = getattr(quants, name)
    table.init_grid()
    values: npt.NDArray[Any] = table.grid.reshape(-1)
    if name.startswith("IQ1"):
        values = 8 * (values + 1)
    words = values.astype(np.uint8).view(np.uint32)
    words.flags.writeable = False
    return words
