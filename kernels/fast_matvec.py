"""Fast mat-vecs: y = W x for one vector, rows of W decoded in registers.

Pieces of work are runs of rows, small enough to keep all members busy to the end and large enough
to be worth claiming.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from .fast_formats import block_shape, decode
from .fast_memory import (
    AHEAD,
    load,
    load_f64,
    load_one,
    load_u32,
    load_word,
    prefetch,
    store,
    store_one,
)
from .fast_rows import GELU, SILU, WIDE, N, activated, normalise, row_address
from .fast_simd import LANES, device, lane_sum, splat
from .fast_team import claim

X, W, STEP, COLS, Y, ROWS, Y_OFF, G, EPS, SCRATCH, SCRATCH_BYTES = range(0, 88, 8)
PIECE = 1 << 14  # multiplications that are worth a claim (about 2 us)


def dot(fmt: int, p: int, x: int, cols: int) -> Any:
    """Row of `cols` weights at p times the float32 vector at x."""
    raise NotImplementedError("only for compiled code")


@overload(dot, strict=False, prefer_literal=True, jit_options={"forceinline": True})
def _dot(fmt: Any, p: Any, x: Any, cols: Any) -> Any:
    if not isinstance(fmt, types.IntegerLiteral):
        return None
    size, groups = block_shape(fmt.literal_value)

    def row(fmt: int, p: int, x: int, cols: int) -> Any:
        a = splat(np.float32(0.0))
        b = a
        for _ in range(cols // (32 * groups)):
            for j in range(groups):
                prefetch(p + AHEAD + size // groups * j)
                u, v = decode(fmt, p, j)
                a = u * load(x) + a
                b = v * load(x + WIDE) + b
                x += 2 * WIDE
            p += size
        return lane_sum(a + b)

    return row


@device
def piece_rows(rows: int, cols: int, members: int) -> int:
    """Rows per claim: eight claims for every member, but not less than PIECE products."""
    return max(rows // (8 * members), 1 + PIECE // cols)


@device
def normalised(a: int, me: int) -> int:
    """x[n-1], normalised into this member's scratch."""
    cols = load_word(a + COLS)
    x = load_word(a + X) + 4 * (load_u32(load_word(a + STEP) + N) - 1) * cols
    out = load_word(a + SCRATCH) + me * load_word(a + SCRATCH_BYTES)
    normalise(x, row_address(load_word(a + G), 0), out, cols, load_f64(a + EPS))
    return out


def product(fmt: int, a: int, x: int, team: int, members: int) -> None:
    """y = W x, this member's share."""
    raise NotImplementedError("only for compiled code")


@overload(product, strict=False, prefer_literal=True)
def _product(fmt: Any, a: Any, x: Any, team: Any, members: Any) -> Any:
    if not isinstance(fmt, types.IntegerLiteral):
        return None

    def share(fmt: int, a: int, x: int, team: int, members: int) -> None:
        w, cols, rows = load_word(a + W), load_word(a + COLS), load_word(a + ROWS)
        y, piece = load_word(a + Y) + 4 * load_word(a + Y_OFF), piece_rows(rows, cols, members)
        first = claim(team) * piece
        while first < rows:
            for r in range(first, min(first + piece, rows)):
                store_one(y + 4 * r, dot(fmt, row_address(w, r), x, cols))
            first = claim(team) * piece

    return share


# Factories of kernels f(args, team, me, members). Argument words: the offsets above, as far as
# each kernel needs them.


def matvec(fmt: int) -> Any:
    """y = W x[0]."""

    def run(a: int, team: int, me: int, members: int) -> None:
        product(fmt, a, load_word(a + X), team, members)

    return run


def norm_matvec(fmt: int) -> Any:
    """y = W (rmsnorm(x[n-1]) * g)."""

    def run(a: int, team: int, me: int, members: int) -> None:
        product(fmt, a, normalised(a, me), team, members)

    return run


def matvec_add(fmt: int) -> Any:
    """y += W x[0]."""

    def run(a: int, team: int, me: int, members: int) -> None:
        x, w, cols = load_word(a + X), load_word(a + W), load_word(a + COLS)
        rows, y = load_word(a + ROWS), load_word(a + Y) + 4 * load_word(a + Y_OFF)
        piece = piece_rows(rows, cols, members)
        first = claim(team) * piece
        while first < rows:
            for r in range(first, min(first + piece, rows)):
                at = y + 4 * r
                store_one(at, load_one(at) + dot(fmt, row_address(w, r), x, cols))
            first = claim(team) * piece

    return run


def norm_matvec_gated(fmt: int, kind: int) -> Any:
    """y = activated(G xn) * (U xn) with xn = rmsnorm(x[n-1]) * g; W = [G; U] has 2 ROWS rows."""

    def run(a: int, team: int, me: int, members: int) -> None:
        w, cols, rows = load_word(a + W), load_word(a + COLS), load_word(a + ROWS)
        x, y = normalised(a, me), load_word(a + Y) + 4 * load_word(a + Y_OFF)
        gates, ups = x + 4 * cols, x + 4 * cols + WIDE  # one vector of each
        piece = piece_rows(2 * rows, cols, members) // (2 * LANES) * LANES + LANES
        first = claim(team) * piece
        while first < rows:
            for r in range(first, min(first + piece, rows), LANES):
                count = min(LANES, rows - r)
                for i in range(count):
                    store_one(gates + 4 * i, dot(fmt, row_address(w, r + i), x, cols))
                    store_one(ups + 4 * i, dot(fmt, row_address(w, r + i + rows), x, cols))
                store(gates, activated(kind, load(gates)) * load(ups))
                for i in range(count):
                    store_one(y + 4 * (r + i), load_one(gates + 4 * i))
            first = claim(team) * piece

    return run


def norm_matvec_swiglu(fmt: int) -> Any:
    """y = silu(G xn) * (U xn)."""
    return norm_matvec_gated(fmt, SILU)


def norm_matvec_geglu(fmt: int) -> Any:
    """y = gelu(G xn) * (U xn)."""
    return norm_matvec_gated(fmt, GELU)
