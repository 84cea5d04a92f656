"""A register tile of a matrix product: 4 rows of weights times a few rows of activations.

The number of lanes and rows follows the vector registers of this CPU: accumulators, 4 weight
vectors and one activation vector must fit (Goto and van de Geijn 2008, section 6).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .fast_half import cpu_features
from .fast_simd import FLOAT, I64, LANES, call, cgutils, op, pointer, splat_value

ROWS = 4


VALUES = 32  # columns of a tile of tile_sums
# (lanes, activation rows): 24 of 32 AVX-512 registers, or 12 of 16 AVX ones
TILE_LANES, TILE_TOKENS = (16, 6) if "avx512f" in cpu_features() else (8, 2)


def _shuffle(b: Any, x: Any, y: Any, lanes: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return b.shuffle_vector(x, y, mask)


def _halve(b: Any, x: Any, y: Any, group: int) -> Any:
    """Sum neighbouring halves of groups of lanes of x and y, x's groups first."""
    n = x.type.count
    starts = range(0, 2 * n, group)
    low = [s + i for s in starts for i in range(group // 2)]
    high = [s + i for s in starts for i in range(group // 2, group)]
    return b.fadd(_shuffle(b, x, y, low), _shuffle(b, x, y, high))


def _sums(b: Any, four: list[Any]) -> Any:
    """The lane sums of four vectors as one vector of 4: fewer shuffles than four sums apart."""
    n = four[0].type.count
    v = _halve(b, _halve(b, four[0], four[1], n), _halve(b, four[2], four[3], n), n // 2)
    group = n // 4
    while group > 1:
        v = _halve(b, v, v, group)
        # the upper half repeats the lower one
        group //= 2
    return _shuffle(b, v, v, [0, 1, 2, 3])


def tile_products(tokens: int) -> Any:
    """Intrinsic (w, w_stride, x, x_stride, cols, out, out_stride): out[t][r] = w[r] . x[t].

    4 rows r of w, `tokens` rows t of x and out, all float32 with strides in bytes; `cols` is a
    multiple of TILE_LANES.
    """
    vector = ir.VectorType(FLOAT, TILE_LANES)

    @op(types.void, *[types.int64] * 7)
    def tile(
        b: Any, w: Any, w_stride: Any, x: Any, x_stride: Any, cols: Any, out: Any, out_stride: Any
    ) -> Any:
        sums = [[cgutils.alloca_once(b, vector) for _ in range(ROWS)] for _ in range(tokens)]
        for place in (p for row in sums for p in row):
            b.store(ir.Constant(vector, [0.0] * TILE_LANES), place)

        def at(base: Any, stride: Any, row: int, offset: Any) -> Any:
            address = b.add(b.add(base, b.mul(stride, I64(row))), offset)
            return b.load(pointer(b, address, vector), align=4)

        end, step = b.mul(cols, I64(4)), I64(4 * TILE_LANES)
        with cgutils.for_range_slice(b, I64(0), end, step, I64) as (offset, _):
            weights = [at(w, w_stride, r, offset) for r in range(ROWS)]
            for t in range(tokens):
                value = at(x, x_stride, t, offset)
                for r, place in enumerate(sums[t]):
                    name = f"llvm.fmuladd.v{TILE_LANES}f32"
                    b.store(call(b, name, vector, weights[r], value, b.load(place)), place)
        for t, row in enumerate(sums):
            four = _sums(b, [b.load(p) for p in row])
            address = b.add(out, b.mul(out_stride, I64(t)))
            b.store(four, pointer(b, address, four.type), align=4)

    return tile


def tile_sums(tokens: int) -> Any:
    """Intrinsic (p, p_stride, v, v_stride, count, out, out_stride): out[t] += sum_i p[t][i] v[i].

    `tokens` rows t of p (count,) and out (VALUES,), `count` rows i of v (VALUES,), all float32
    with strides in bytes.
    """
    vector = ir.VectorType(FLOAT, LANES)
    places = [4 * LANES * c for c in range(VALUES // LANES)]

    @op(types.void, *[types.int64] * 7)
    def tile(
        b: Any, p: Any, p_stride: Any, v: Any, v_stride: Any, count: Any, out: Any, out_stride: Any
    ) -> Any:
        def row(base: Any, stride: Any, t: int) -> Any:
            return b.add(base, b.mul(stride, I64(t)))

        def where(address: Any, place: int) -> Any:
            return pointer(b, b.add(address, I64(place)), vector)

        outs = [where(row(out, out_stride, t), c) for t in range(tokens) for c in places]
        sums = [cgutils.alloca_once(b, vector) for _ in outs]
        for total, place in zip(sums, outs, strict=True):
            b.store(b.load(place, align=4), total)
        with cgutils.for_range_slice(b, I64(0), count, I64(1), I64) as (i, _):
            values = [b.load(where(b.add(v, b.mul(v_stride, i)), c), align=4) for c in places]
            for t in range(tokens):
                address = b.add(row(p, p_stride, t), b.mul(i, I64(4)))
                weight = splat_value(b, b.load(pointer(b, address, FLOAT), align=4), LANES)
                for value, total in zip(values, sums[t * len(places) :], strict=False):
                    name = f"llvm.fmuladd.v{LANES}f32"
                    b.store(call(b, name, vector, weight, value, b.load(total)), total)
        for total, place in zip(sums, outs, strict=True):
            b.store(b.load(total), place, align=4)

    return tile


many_products, one_product = tile_products(TILE_TOKENS), tile_products(1)
many_sums, one_sum = tile_sums(TILE_TOKENS), tile_sums(1)
