"""The rope keys of a model, read as llama.cpp reads them, into a RopeSpec.

Absent scaling type means linear with factor 1 unless a factor is given (llama.cpp, load_hparams);
YaRN's magnitude and ramp defaults are those of llama_context's constructor.
"""

from __future__ import annotations

import math

import numpy as np

from .container import Container
from .keys import Keys
from .rope import Floats, RopeSpec

SCALINGS = ("none", "linear", "yarn", "longrope")
FREQ_BASE = 10000.0
MAX_FACTOR = 1e6
SHORT, LONG = "rope_factors_short.weight", "rope_factors_long.weight"
LONG_NOTE = "longrope: long factors in contexts above the original length, else short ones"


def rope_spec(
    c: Container, k: Keys, head_dim: int, n_ctx: int, mode: str = "interleaved"
) -> tuple[RopeSpec, list[str]]:
    """The rope of an architecture with pairs in `mode`, and notes on defaults that were used."""
    dims = k.integer("rope.dimension_count", 2, 1 << 16, head_dim)
    if dims % 2 or dims > head_dim:
        raise k.fail("rope.dimension_count", f"is {dims}, expected an even number up to {head_dim}")
    notes = []
    if k.get("rope.freq_base") is None:
        notes.append(f"{k.prefix}rope.freq_base absent: {FREQ_BASE:g} used")
    base = k.real("rope.freq_base", 1.0 + 1e-6, 1e15, FREQ_BASE)
    scaling = k.text("rope.scaling.type", "linear")
    if scaling not in SCALINGS:
        raise k.fail(
            "rope.scaling.type",
            f"scaling {scaling!r} is not supported; supported: {', '.join(SCALINGS)}",
        )
    factor = _factor(k)
    if scaling == "none" or (scaling == "linear" and factor == 1.0):
        scaling, factor = "none", 1.0
    attn = k.real("rope.scaling.attn_factor", 0.0, MAX_FACTOR, 1.0)
    if scaling == "longrope" or LONG in c.tensors:
        return _longrope(c, k, dims, base, factor, attn, n_ctx, mode), [*notes, LONG_NOTE]
    factors = freq_factors(c, dims)
    if factors is not None:
        notes.append("rope_freqs.weight: frequency factors applied")
    if scaling != "none":
        notes.append(f"rope scaling {scaling}, factor {factor:g}")
    if scaling == "yarn":
        return _yarn(k, dims, base, factor, attn, n_ctx, factors, mode), notes
    return RopeSpec(
        dims, base, scaling, factor, orig_ctx=n_ctx, attn_factor=attn, freq_factors=factors,
        mode=mode,
    ), notes  # fmt: skip


def _factor(k: Keys) -> float:
    """rope.scaling.factor or its old name rope.scale_linear; 0 stands for "not set"."""
    old = k.real("rope.scale_linear", 0.0, MAX_FACTOR, 0.0)
    return k.real("rope.scaling.factor", 0.0, MAX_FACTOR, old) or 1.0


def _yarn(
    k: Keys, dims: int, base: float, factor: float, attn: float, n_ctx: int, ff: Floats | None,
    mode: str,
) -> RopeSpec:
    log_mul = k.real("rope.scaling.yarn_log_multiplier", 0.0, MAX_FACTOR, 0.0)
    if log_mul and factor > 1.0:  # DeepSeek's mscale_all_dim: the magnitude is a quotient of two
        attn /= 1.0 + 0.1 * log_mul * math.log(factor)
    return RopeSpec(
        dims,
        base,
        "yarn",
        factor,
        orig_ctx=k.integer("rope.scaling.original_context_length", 1, (1 << 31) - 1, n_ctx),
        ext_factor=k.real("rope.scaling.yarn_ext_factor", 0.0, 1.0, 1.0),
        attn_factor=attn,
        beta_fast=k.real("rope.scaling.yarn_beta_fast", 1e-6, MAX_FACTOR, 32.0),
        beta_slow=k.real("rope.scaling.yarn_beta_slow", 1e-6, MAX_FACTOR, 1.0),
        freq_factors=ff,
        mode=mode,
    )


def _longrope(
    c: Container, k: Keys, dims: int, base: float, factor: float, attn: float, n_ctx: int, mode: str
) -> RopeSpec:
    short, long = freq_factors(c, dims, SHORT), freq_factors(c, dims, LONG)
    if short is None or long is None:
        raise k.fail("rope.scaling.type", f"longrope needs the tensors {SHORT} and {LONG}")
    orig = k.integer("rope.scaling.original_context_length", 1, (1 << 31) - 1, n_ctx)
    scaling = "none" if factor == 1.0 else "linear"
    return RopeSpec(
        dims, base, scaling, factor, orig_ctx=orig, attn_factor=attn, freq_factors=short,
        long_factors=long, mode=mode,
    )  # fmt: skip


def freq_factors(c: Container, dims: int, name: str = "rope_freqs.weight") -> Floats | None:
    """Factors (dims/2,) float32, or None when absent (Llama 3.1 has rope_freqs.weight)."""
    if name not in c.tensors:
        return None
    factors = c.vector(name, dims // 2)
    if not np.all(np.isfinite(factors) & (factors > 0)):
        raise c.fail(name, "holds values that are not finite and above 0")
    return factors
