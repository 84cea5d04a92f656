"""Activations in int8: groups of 16 values with one scale, and products of weights with them.

A vector of n values is `xq` (n / 4 words, four signed bytes each) and `xs` (n / 16, 2): scale
and scale times the sum of the group's quants. The scale is largest magnitude / 127.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .kernel import Array, Launch, Matrix, Params, Shaped
from .limits import Limits
from .matvec_launch import grid_2d
from .reference import Floats, product, step_words

GROUP = 16
FORMATS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
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
    return product(values(xq, xs)[None, :], w)[0]


def squares(x: Floats) -> Floats:
    """Sums of squares of groups of 16: (n / 16,)."""
    out: Floats = np.square(x.reshape(-1, GROUP)).sum(axis=1)
    return out


def inverse_rms(ssq: Array, cols: int, eps: float) -> np.float32:
    """1 / sqrt(mean square + eps) from the sums of squares of the groups."""
    return np.float32(1 / np.sqrt(ssq[: cols // GROUP].sum(dtype=np.float64) / cols + eps))


def shape_launch(
    ops: Mapping[str, Shaped], params: Params, limits: Limits, whole: int = 1, pairs: int = 1
) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """(spec constants, grid) of a product: rows of a workgroup are a multiple of `whole`,
    rows of a lane group of `pairs`."""
    rows, chunks, units = int(params["rows"]), int(params["cols"]) // 32, limits.compute_units
    subgroup = limits.subgroup_size
    lanes = subgroup
    while lanes > 8 and lanes // 2 >= chunks:
        lanes //= 2
    # one row per lane group while rows are few; then two share the activations they load
    per_group = max(pairs, 2 if rows * lanes >= units * 2048 else 1)
    size = max(limits.workgroup(256 if whole > 1 else 128), subgroup)
    while size // lanes * per_group < whole:
        if size * 2 <= limits.workgroup_invocations:
            size *= 2
        else:
            per_group *= 2
    # chunks of a lane in flight, unless the last round would be mostly empty
    rounds = -(-chunks // lanes)
    unroll = next(u for u in (4, 2, 1) if -(-rounds // u) * u <= rounds * 1.05)
    grid = grid_2d(-(-rows // (size // lanes * per_group)), limits)
    return (size, lanes, per_group, subgroup, unroll), grid


def launch_as(
    ops: Mapping[str, Shaped], params: Params, limits: Limits, whole: int = 1, pairs: int = 1,
    suffix: str = "",
) -> Launch:
    """A launch with the weights' format in its build name."""
    spec, grid = shape_launch(ops, params, limits, whole, pairs)
    return Launch(ops["w"].format_name + suffix, spec, grid, limits.subgroup_size)


def vector_operands(rng: np.random.Generator, cols: int) -> dict[str, Any]:
    """A quantized vector, the sums of squares of what it came from, and a running step."""
    x: Any = rng.standard_normal(cols).astype(np.float32)
    xq, xs = quantize(x)
    return {"xq": xq, "xs": xs, "ssq": squares(x), "step": step_words(1, 5)}
