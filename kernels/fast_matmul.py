"""Fast matmuls: a batch of rows times W. A piece of work decodes a few rows of W once, into the
member's scratch (it stays in the L2 cache), and multiplies them with every row of the batch.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import overload

from .fast_formats import block_shape, decode
from .fast_memory import AHEAD, load_one, load_u32, load_word, prefetch, store, store_one
from .fast_rows import WIDE, N, row_address
from .fast_simd import device, routine
from .fast_team import claim
from .fast_tile import ROWS, TILE_TOKENS, many_products, one_product

X, W, STEP, COLS, Y, ROW_COUNT, Y_OFF, X_STRIDE, Y_STRIDE, SCRATCH, SCRATCH_BYTES = range(0, 88, 8)
MOST_ROWS, PANEL = 32, 1 << 16  # rows of W decoded at a time; float32 values of them (256 KB)


def panel_rows(cols: int) -> int:
    """Rows of W per piece of work."""
    return max(ROWS, min(MOST_ROWS, PANEL // cols // ROWS * ROWS))


def scratch_floats(cols: int) -> int:
    """float32 values of scratch per member: the decoded rows and one tile of results."""
    return panel_rows(cols) * cols + ROWS * TILE_TOKENS


panel_rows_device = device(panel_rows)


def unpack(fmt: int, p: int, out: int, cols: int) -> None:
    """Decode a row of `cols` weights at p into float32 values at out."""
    raise NotImplementedError("only for compiled code")


@overload(unpack, strict=False, prefer_literal=True)
def _unpack(fmt: Any, p: Any, out: Any, cols: Any) -> Any:
    if not isinstance(fmt, types.IntegerLiteral):
        return None
    size, groups = block_shape(fmt.literal_value)

    def row(fmt: int, p: int, out: int, cols: int) -> None:
        for _ in range(cols // (32 * groups)):
            for j in range(groups):
                prefetch(p + AHEAD + size // groups * j)
                u, v = decode(fmt, p, j)
                store(out, u)
                store(out + WIDE, v)
                out += 2 * WIDE
            p += size

    return row


@device
def put_tile(tile: int, y: int, y_stride: int, tokens: int, rows: int, add: bool) -> None:
    """Copy (or add) the valid part of a tile (tokens, ROWS) into y, rows y_stride bytes apart."""
    for t in range(tokens):
        for r in range(rows):
            at, value = y + t * y_stride + 4 * r, load_one(tile + 4 * (ROWS * t + r))
            store_one(at, load_one(at) + value if add else value)


@routine
def panel_times_batch(a: int, panel: int, tile: int, first: int, rows: int, add: bool) -> None:
    """`rows` decoded rows at `panel`, the matrix's rows from `first`, times all rows of x."""
    cols, stride = load_word(a + COLS), 4 * load_word(a + X_STRIDE)
    y, y_stride = load_word(a + Y) + 4 * (load_word(a + Y_OFF) + first), 4 * load_word(a + Y_STRIDE)
    n, t = load_u32(load_word(a + STEP) + N), 0
    while t < n:
        x, tokens = load_word(a + X) + t * stride, 1 if n - t < TILE_TOKENS else TILE_TOKENS
        for r in range(0, rows, ROWS):
            w, out = panel + 4 * r * cols, y + t * y_stride + 4 * r
            if tokens == 1:
                one_product(w, 4 * cols, x, stride, cols, tile, 4 * ROWS)
            else:
                many_products(w, 4 * cols, x, stride, cols, tile, 4 * ROWS)
            put_tile(tile, out, y_stride, tokens, min(ROWS, rows - r), add)
        t += tokens


def _kernel(fmt: int, add: bool) -> Any:
    def run(a: int, team: int, me: int, members: int) -> None:
        cols, rows, w = load_word(a + COLS), load_word(a + ROW_COUNT), load_word(a + W)
        panel = load_word(a + SCRATCH) + me * load_word(a + SCRATCH_BYTES)
        most = panel_rows_device(cols)
        tile = panel + 4 * most * cols
        first = claim(team) * most
        while first < rows:
            count = min(most, rows - first)
            for r in range(count):
                unpack(fmt, row_address(w, first + r), panel + 4 * r * cols, cols)
            panel_times_batch(a, panel, tile, first, count, add)
            first = claim(team) * most

    return run


def matmul(fmt: int) -> Any:
    """Words as named above: y[:n] = x[:n] W^T."""
    return _kernel(fmt, False)


def matmul_add(fmt: int) -> Any:
    """y[:n] += x[:n] W^T."""
    return _kernel(fmt, True)
