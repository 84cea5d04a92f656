"""Activations in int8: groups of 16 values with one scale, and products of weights with them.

A vector of n values is `xq` (n / 4 words, four signed bytes each) and `xs` (n / 16, 2): scale
and scale times the sum of the group's quants. The scale is largest magnitude / 127.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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
# Formats whose lanes take four chunks at a time: those of QUADS in shaders/dot_q8.glsl
QUADS = ("Q3_K", "Q2_K")
FEW_LANES = 4  # of a row in those, twice as many of long ones: by a sweep on an H200
LONG_QUADS = 56
ENOUGH = 512  # lanes of a compute unit that hide the latency of loads
# (rows, cols): few rows, ragged chunks, shapes of small models, long rows
SHAPES = ((16, 256), (64, 768), (576, 512), (48, 4096), (192, 1536))


def needs(limits: Limits) -> bool:
    """Packed 8-bit dot products and whole subgroups."""
    return limits.int_dot and limits.subgroups


_watched = threading.local()


@contextmanager
def margins() -> Iterator[list[float]]:
    """A list of how near each `quantize` of this thread comes to the middle between two integers:
    parts of a step."""
    _watched.margins = []
    try:
        yield _watched.margins
    finally:
        del _watched.margins


def quantize(values: Floats) -> tuple[Array, Array]:
    """(n,) float32 to xq uint32 (n / 4,) and xs float32 (n / 16, 2)."""
    groups = values.reshape(-1, GROUP)
    most = np.abs(groups).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        inverse = np.where(most > 0, np.float32(127) / most, 0).astype(np.float32)
    steps = groups * inverse
    if (margins := getattr(_watched, "margins", None)) is not None:
        margins.append(float(np.abs(steps - np.floor(steps) - 0.5).min(initial=0.5)))
    q = np.rint(steps).astype(np.int8)
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
    """Rows of a lane group, lane groups per row (KSPLIT), steps of a lane in flight (UNROLL), the
    most lanes of a group (0: the subgroup), and the invocations of a workgroup."""

    rows: int
    ksplit: int = 1
    unroll: int = 1
    lanes: int = field(default=0, kw_only=True)
    workgroup: int = field(default=256, kw_only=True)


def step_of(format_name: str) -> int:
    """Chunks of 32 values that a lane takes at a time."""
    return 4 if format_name in QUADS else 1


def quad_tiling(rows: int, quads: int, lanes: int, units: int) -> Tiling:
    """Four chunks at a time, 256 values apart between neighbouring lanes: their activations share
    banks of the cache, so few lanes are of the same row, and more groups take a part of it."""
    lanes, per, ksplit = min(lanes, FEW_LANES if quads < LONG_QUADS else 2 * FEW_LANES), 2, 1
    if rows * min(lanes * 8, quads) <= units * ENOUGH // 2:
        per = 1
    elif rows * lanes >= units * ENOUGH * 8:
        per = 4
    while lanes * ksplit < min(quads, 64) and rows // per * lanes * ksplit < units * ENOUGH // 2:
        ksplit *= 2
    return Tiling(per, ksplit, lanes=lanes, workgroup=128 if quads <= 8 else 256)


def add_tiling(rows: int, chunks: int, lanes: int, units: int, step: int) -> Tiling:
    """Products into the residual stream have few rows: long ones are shared by several groups."""
    if step > 1:
        return quad_tiling(rows, chunks // step, lanes, units)
    if chunks >= 8 * lanes and rows >= units * 40:
        return Tiling(2, 2, 2, workgroup=512)
    if chunks >= 8 * lanes:
        return Tiling(1, 2, workgroup=1024)
    if chunks >= 4 * lanes:
        return Tiling(2, 2, 2)
    return Tiling(1, 2, lanes=16, workgroup=512) if chunks > lanes else Tiling(1)


def qkv_tiling(rows: int, chunks: int, lanes: int, units: int, step: int) -> Tiling:
    """Neither few rows nor many: small workgroups, so that every unit has some."""
    if step > 1:
        return quad_tiling(rows, chunks // step, lanes, units)
    if chunks >= 4 * lanes:
        return Tiling(2, 2, 2, workgroup=128)
    return Tiling(1 if chunks > lanes else 2)


def swiglu_tiling(rows: int, chunks: int, lanes: int, units: int, step: int) -> Tiling:
    """Two matrices per row: several rows share activations once every unit has work."""
    if step > 1:
        return quad_tiling(rows, chunks // step, lanes, units)
    if rows * lanes >= units * 2048:
        return Tiling(4)
    if rows < 4096:
        return Tiling(1)
    return Tiling(1, 1, 2, lanes=16) if chunks <= 2 * lanes else Tiling(2)


def plain_tiling(rows: int, chunks: int, lanes: int, units: int, step: int) -> Tiling:
    """Any rows; many of a group where a vocabulary's rows are short."""
    if step > 1:
        return quad_tiling(rows, chunks // step, lanes, units)
    many = rows >= units * 128
    if chunks <= lanes and many:
        return Tiling(4, lanes=8, workgroup=64)
    if chunks >= 4 * lanes and rows < units * 32:
        return Tiling(1, 2)
    return Tiling(2, 1, 2 if chunks > lanes else 1, workgroup=128 if many else 256)


def lanes_for(steps: int, limits: Limits) -> int:
    """Lanes of a row of `steps` steps: a subgroup, or fewer where some would have none."""
    lanes = limits.subgroup_size
    while lanes > 8 and lanes // 2 >= steps:
        lanes //= 2
    return lanes


def specialize(
    t: Tiling, lanes: int, whole: int, limits: Limits
) -> tuple[int, int, int, int, int, int]:
    """Constants 0 … 5 of rows_q8.glsl; rows of a workgroup are a multiple of `whole`."""
    subgroup, lanes = limits.subgroup_size, min(lanes, t.lanes or lanes)
    ksplit = min(t.ksplit, max(limits.most // subgroup, 1))
    size, per = max(limits.workgroup(t.workgroup), subgroup * ksplit), t.rows
    while size // lanes // ksplit * per < whole:
        if size * 2 <= limits.most:
            size *= 2
        else:
            per *= 2
    return size, lanes, per, subgroup, t.unroll, ksplit


def rows_of(spec: tuple[int, ...]) -> int:
    """Rows of a workgroup with these constants."""
    return spec[0] // spec[1] // spec[5] * spec[2]


def launch_as(
    ops: Mapping[str, Shaped], params: Params, limits: Limits,
    tiling: Callable[[int, int, int, int, int], Tiling], whole: int = 1, suffix: str = "",
) -> Launch:
    """A launch with the weights' format in its build name.

    Rows of a workgroup are a multiple of `whole`. The tilings were measured on an H200
    (docs/performance.md); on other devices they fit, at least.
    """
    rows, chunks, name = int(params["rows"]), int(params["cols"]) // 32, ops["w"].format_name
    step = step_of(name)
    lanes = lanes_for(chunks // step, limits)
    t = tiling(rows, chunks, lanes, limits.units, step)
    spec = specialize(t, lanes, whole, limits)
    grid = grid_2d(-(-rows // rows_of(spec)), limits)
    return Launch(name + suffix, spec, grid, limits.subgroup_size)


def vector_operands(rng: np.random.Generator, cols: int) -> dict[str, Any]:
    """A quantized vector, the sums of squares of what it came from, and a running step."""
    x: Any = rng.standard_normal(cols).astype(np.float32)
    xq, xs = quantize(x)
    return {"xq": xq, "xs": xs, "ssq": squares(x), "step": step_words(1, 5)}
