"""Rotary position tables: cosines and sines of every position, with llama.cpp's conventions.

Sources: ggml's rope_yarn, ggml_rope_yarn_corr_dims and ggml_rope_cache_init (ggml-cpu/ops.cpp);
YaRN is arXiv:2309.00071. Pair i of a head turns by pos * base^(-2i/dims) / freq_factors[i].
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
CHUNK = 4096  # positions at a time: keeps the float64 work small beside the table


@dataclass(frozen=True, eq=False)
class RopeSpec:
    """How positions turn the first `dims` values of each head.

    `mode` "interleaved" pairs (0, 1), (2, 3), …; "halves" pairs (i, i + dims/2). `factor` is by how
    much the context was stretched beyond `orig_ctx` positions. `freq_factors` divide the angle,
    float32 (dims/2,); `long_factors` take their place in contexts beyond `orig_ctx` (LongRoPE,
    arXiv:2402.13753). The context as allocated decides, so that keys in the cache stay valid.
    """

    dims: int
    freq_base: float = 10000.0
    scaling: str = "none"  # "none", "linear", "yarn"
    factor: float = 1.0
    orig_ctx: int = 0
    ext_factor: float = 0.0  # share of extrapolation in the ramp; not 0 only for yarn
    attn_factor: float = 1.0  # extra magnitude of cosines and sines
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    freq_factors: Floats | None = None
    mode: str = "interleaved"
    long_factors: Floats | None = None

    def within(self, n_ctx: int) -> RopeSpec:
        """The rope of a context of `n_ctx` positions."""
        if self.long_factors is None or n_ctx <= self.orig_ctx:
            return self
        return replace(self, freq_factors=self.long_factors, long_factors=None)

    def chosen(self, n_ctx: int) -> str:
        """Which factors of LongRoPE a context of `n_ctx` takes, with both numbers; else ""."""
        if self.long_factors is None:
            return ""
        which = "short" if n_ctx <= self.orig_ctx else "long"
        return f"{which} rope factors: context {n_ctx}, original context {self.orig_ctx}"

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied by (mscale): yarn softens attention by it."""
        if self.ext_factor == 0.0 or self.factor <= 1.0:
            return self.attn_factor
        return self.attn_factor * (1.0 + 0.1 * math.log(self.factor))


def _turning_dim(r: RopeSpec, turns: float) -> float:
    """The pair-axis index (0..dims) whose angle makes `turns` full turns over orig_ctx."""
    return r.dims * math.log(r.orig_ctx / (turns * 2 * math.pi)) / (2 * math.log(r.freq_base))


def _extrapolated(r: RopeSpec) -> Doubles:
    """Share of the unscaled angle per pair, (dims/2,): 1 for fast pairs, 0 for slow ones."""
    pair = np.arange(r.dims // 2, dtype=np.float64)
    low = max(0.0, math.floor(_turning_dim(r, r.beta_fast)))
    high = min(r.dims - 1.0, math.ceil(_turning_dim(r, r.beta_slow)))
    ramp = (pair - low) / max(0.001, high - low)
    return (1.0 - np.clip(ramp, 0.0, 1.0)) * r.ext_factor


def frequencies(r: RopeSpec) -> Doubles:
    """Angle per position of each pair, float64 (dims/2,), scaling and factors applied."""
    plain: Doubles = r.freq_base ** (-np.arange(0, r.dims, 2, dtype=np.float64) / r.dims)
    if r.freq_factors is not None:
        plain = plain / r.freq_factors.astype(np.float64)
    if r.scaling == "none":
        return plain
    stretched: Doubles = plain / r.factor
    if r.ext_factor == 0.0:
        return stretched
    mix = _extrapolated(r)
    mixed: Doubles = stretched * (1.0 - mix) + plain * mix
    return mixed


def rope_name(index: int) -> str:
    """The buffer of a model's rope number `index`."""
    return f"rope.{index}"


def rope_table(r: RopeSpec, n_ctx: int, first: int = 0) -> Floats:
    """Cosine and sine of every pair at positions first … n_ctx - 1: float32 (…, dims/2, 2)."""
    freqs, table = frequencies(r), np.empty((n_ctx - first, r.dims // 2, 2), np.float32)
    for start in range(0, len(table), CHUNK):
        rows = table[start : start + CHUNK]
        angle = np.arange(first + start, first + start + len(rows), dtype=np.float64)
        angle = angle[:, None] * freqs
        rows[..., 0] = np.cos(angle) * r.magnitude
        rows[..., 1] = np.sin(angle) * r.magnitude
    return table
