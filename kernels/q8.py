"""Activations in int8: groups of 16 values with one scale, and products of weights with them.

A vector of n values is `xq` (n / 4 words, four signed bytes each) and `xs` (n / 16, 2): scale
and scale times the sum of the group's quants. The scale is largest magnitude / 127.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .kernel import Array, Launch, Matrix, Params, Shaped
from .limits import Limits
from .matvec_launch import grid_2d
from .reference import Floats, product, step_words

GROUP = 16
FORMATS = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K", "IQ4_NL",
    "IQ4_XS", "MXFP4", "INT8", "INT4_G32", "INT4_G64", "INT4_G128", "INT3_G64",
)  # fmt: skip
# (rows, cols): few rows, ragged chunks, shapes of small models, long rows
SHAPES = ((16, 256), (64, 768), (576, 512), (48, 4096), (192, 1536))


def needs(limits: Limits) -> bool:
    """Packed 8-bit dot products and whole subgroups."""
    return limits.int_dot and limits.subgroups


def quantize(values: Floats) -> tuple[Array, Array]:
    """(n,) float32 to xq uint32 (n / 4,) and xs float32 (n / 16, 2)."""
    groups = values.reshape(-1, GROUP)
    most = np.abs(groups).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        inverse = np.where(most > 0, np.float32(127) / most, 0).astype(np.float32)
    q = np.rint(groups * inverse).astype(np.int8)
    scale = (most / np.float32(127)).astype(np.float32)
    sums = scale * q.sum(axis=1, keepdims=True, dtype=np.float32)
    return q.reshape(-1).view(np.uint32), np.concatenate([scale, sums], axis=1)


def values(xq: Array, xs: Array) -> Floats:
    """The float32 values that a quantized vector stands for."""
    q = xq.view(np.int8).reshape(-1, GROUP).astype(np.float32)
    out: Floats = (q * xs[:, :1]).reshape(-1)
    return out


def product_q8(xq: Array, xs: Array, w: Matrix) -> Floats:
    """Weights (rows, cols) times the quantized vector: float32 (rows,)."""
    out: Floats = product(values(xq, xs)[None, :], w)[0]
    return out


def squares(x: Floats) -> Floats:
    """Sums of squares of groups of 16: (n / 16,)."""
    out: Floats = np.square(x.reshape(-1, GROUP)).sum(axis=1)
    return out


def inverse_rms(ssq: Array, cols: int, eps: float) -> np.float32:
    """1 / sqrt(mean square + eps) from the sums of squares of the groups."""
    return np.float32(1 / np.sqrt(ssq[: cols // GROUP].sum(dtype=np.float64) / cols + eps))


@dataclass(frozen=True)
class Tiling:
    """Rows of a lane group, lane groups per row (KSPLIT), a lane's chunks in flight (UNROLL)."""

    rows: int
    ksplit: int = 1
    unroll: int = 1


def add_tiling(rows: int, chunks: int, lanes: int, units: int) -> Tiling:
    """Products into the residual stream have few rows: long ones are shared by several groups."""
    if chunks >= 8 * lanes:
        return Tiling(4, 4, 2)
    if chunks >= 4 * lanes:
        return Tiling(2, 2, 2)
    return Tiling(2, 2) if chunks > lanes else Tiling(1)


def qkv_tiling(rows: int, chunks: int, lanes: int, units: int) -> Tiling:
    """Neither few rows nor many: small workgroups, so that every unit has some."""
    if chunks >= 4 * lanes:
        return Tiling(2, 2, 2)
    return Tiling(1 if chunks > lanes else 2)


def swiglu_tiling(rows: int, chunks: int, lanes: int, units: int) -> Tiling:
    """Two matrices per row: several rows share activations once every unit has work."""
    return Tiling(4 if rows * lanes >= units * 2048 else 2 if rows >= 4096 else 1)


def plain_tiling(rows: int, chunks: int, lanes: int, units: int) -> Tiling:
    """Any rows; many of a group where a vocabulary's rows are short."""
    if chunks <= lanes and rows >= units * 128:
        return Tiling(8)
    return Tiling(2, 1, 2 if chunks > lanes else 1)


def launch_as(
    ops: Mapping[str, Shaped], params: Params, limits: Limits,
    tiling: Callable[[int, int, int, int], Tiling], whole: int = 1, suffix: str = "",
) -> Launch:
    """A launch with the weights' format in its build name.

    Rows of a workgroup are a multiple of `whole`. The tilings were measured on an H200
    (docs/performance.md); on other devices they fit, at least.
    """
    rows, chunks = int(params["rows"]), int(params["cols"]) // 32
    subgroup = lanes = limits.subgroup_size
    while lanes > 8 and lanes // 2 >= chunks:
        lanes //= 2
    t = tiling(rows, chunks, lanes, limits.units)
    size = max(limits.workgroup(256), subgroup * t.ksplit)
    per_group = t.rows
    while size // lanes // t.ksplit * per_group < whole:
        if size * 2 <= limits.most:
            size *= 2
        else:
            per_group *= 2
    grid = grid_2d(-(-rows // (size // lanes // t.ksplit * per_group)), limits)
    spec = (size, lanes, per_group, subgroup, t.unroll, t.ksplit)
    return Launch(ops["w"].format_name + suffix, spec, grid, subgroup)


def vector_operands(rng: np.random.Generator, cols: int) -> dict[str, Any]:
    """A quantized vector, the sums of squares of what it came from, and a running step."""
    x: Any = rng.standard_normal(cols).astype(np.float32)
    xq, xs = quantize(x)
    return {"xq": xq, "xs": xs, "ssq": squares(x), "step": step_words(1, 5)}
