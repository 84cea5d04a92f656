"""What the kernels of narrow models share: three dispatches a layer in short contexts.

Between them the residual stream is a buffer of parts (1 + n, width) float32 whose sum it is: row 0
what the layer before has left, the others products with it. Every workgroup of the kernel that
reads it makes the sum again (shaders/narrow_sum.glsl), which costs bytes from the cache and
saves the dispatch that would make it once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import q8
from .kernel import Array, Matrix
from .limits import Limits
from .reference import Floats, vector

FORMATS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")  # one scale a chunk, two weights in a shader
LEAST = 4  # lanes that quantize a group of 16


@dataclass(frozen=True)
class Tiling:
    """Invocations of a workgroup of each kernel, 0: as many as the stream has values; how much of
    a layer a workgroup takes.

    `slice_rows`: inner values of the feed-forward network; `workgroups`: of attention, about;
    `qkv_lanes`: of a pair of rows; `unroll`: positions of a lane in flight, 0: as attention does.
    """

    attention: int = 256
    ffn: int = 0
    qkv: int = 0
    slice_rows: int = 32
    workgroups: int = 45
    qkv_lanes: int = 32
    unroll: int = 0


TILING = Tiling()  # the one in use; sweeps replace it


def needs(limits: Limits) -> bool:
    """As the other int8 kernels, and four lanes that share a group of 16."""
    return q8.needs(limits) and limits.subgroup_size >= LEAST


def size(wanted: int, cols: int, limits: Limits) -> int:
    """Invocations of a workgroup: whole subgroups, about `wanted`, or one for each of `cols`."""
    whole = -(-cols // limits.subgroup_size) * limits.subgroup_size
    if not wanted and whole <= limits.most:
        return whole
    return limits.workgroup(wanted or 512, limits.subgroup_size)


def share(rows: int, chunks: int, invocations: int, limits: Limits) -> tuple[int, int]:
    """Lanes of a row of `chunks` chunks, and rows of such a group, of a workgroup with `rows`."""
    lanes = 1
    most = min(chunks, limits.subgroup_size)
    while lanes * 2 <= most and rows * lanes * 2 <= invocations:
        lanes *= 2
    return lanes, -(-rows * lanes // invocations)


def split(cols: int, parts: int, invocations: int, limits: Limits) -> int:
    """Lanes that share the parts of four values, where there are more lanes than such fours."""
    lanes = 1
    while (
        lanes * 2 <= min(parts, limits.subgroup_size // LEAST)
        and invocations // (lanes * 2) >= cols // 4
    ):
        lanes *= 2
    return lanes


def slices(n_ff: int) -> int:
    """Workgroups of a feed-forward network of `n_ff` inner values."""
    rows = TILING.slice_rows
    while n_ff % rows:
        rows -= 32
    return n_ff // rows


def normed(x: Array, g: Matrix, eps: float) -> tuple[Floats, Array, Array, np.float32]:
    """The stream (width,), it times the gain in int8, and 1 / rms; x (parts, width)."""
    total: Floats = x.sum(axis=0, dtype=np.float32)
    xq, xs = q8.quantize(total * vector(g))
    return total, xq, xs, q8.inverse_rms(q8.squares(total), len(total), eps)


def products(values: Floats, weights: Floats, n: int) -> Floats:
    """(n, rows): n equal runs of the values in int8, each times the weights' columns of its own."""
    runs = values.reshape(n, -1)
    made = [q8.values(*q8.quantize(run)) for run in runs]
    columns = np.split(weights, n, axis=1)
    out: Floats = np.stack([w @ v for w, v in zip(columns, made, strict=True)])
    return out
