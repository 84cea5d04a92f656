"""Fast norm_rope_kv: bias, norms of heads, rotation and cache write, token by token."""

from __future__ import annotations

from typing import Any

from .fast_kv import IS_F16, is_quantized, quantize_row
from .fast_memory import load_f64, load_one, load_u32, load_word, store_one
from .fast_rope import put
from .fast_rows import POS, N, inverse_rms, row_address
from .fast_simd import device, routine
from .fast_team import claim

# byte offsets of the argument words
QKV, ROPE, BIAS, G, Y, K, V, STEP, HEADS, KV_HEADS, DIM, ROT, APART = range(0, 104, 8)
Q_GROUP, K_GROUP, V_GROUP, EPS, WRITES = range(104, 144, 8)
K_TYPE, K_ROW, V_TYPE, V_ROW, CACHE_ROWS, SCRATCH, SCRATCH_BYTES = range(144, 200, 8)

@routine
def normalise_groups(x: int, width: int, group: int, gain: int, eps: float) -> None:
    """Every `group` of the `width` values at x over its root mean square, times the gain's values
    unless `gain` is 0; nothing where `group` is 0."""
    if group == 0:
        return
    for first in range(0, width, group):
        scale = inverse_rms(x + 4 * first, group, eps)
        for i in range(group):
            at = x + 4 * (first + i)
            value = load_one(at) * scale
            store_one(at, value * load_one(gain + 4 * i) if gain != 0 else value)

@device
def rotate_head(x: int, table: int, n_rot: int, apart: int) -> None:
    """Rotate the pairs (i, i + apart) of the head at x in place."""
    for p in range(n_rot // 2):
        i = 2 * p if apart == 1 else p
        cos, sin = load_one(table + 8 * p), load_one(table + 8 * p + 4)
        u, v = load_one(x + 4 * i), load_one(x + 4 * (i + apart))
        store_one(x + 4 * i, u * cos - v * sin)
        store_one(x + 4 * (i + apart), u * sin + v * cos)

@device
def store_row(kind: int, row: int, x: int, width: int) -> None:
    """`width` float32 values at x as a cache row of any type."""
    if is_quantized(kind):
        quantize_row(kind, row, x, width)
        return
    for i in range(width):
        put(row, i, load_one(x + 4 * i), 1 if kind == IS_F16 else 0)


@routine
def heads_of_token(a: int, t: int, pos: int, x: int) -> None:
    """All of token t; x is scratch for its row."""
    dim, eps = load_word(a + DIM), load_f64(a + EPS)
    q_dim, kv_dim = load_word(a + HEADS) * dim, load_word(a + KV_HEADS) * dim
    total = q_dim + 2 * kv_dim
    row, bias = load_word(a + QKV) + 4 * t * total, row_address(load_word(a + BIAS), 0)
    for i in range(total):
        store_one(x + 4 * i, load_one(row + 4 * i) + load_one(bias + 4 * i))
    gains = row_address(load_word(a + G), 0)
    keys, values = x + 4 * q_dim, x + 4 * (q_dim + kv_dim)
    normalise_groups(x, q_dim, load_word(a + Q_GROUP), gains, eps)
    k_gains = gains + 4 * load_word(a + Q_GROUP)
    normalise_groups(keys, kv_dim, load_word(a + K_GROUP), k_gains, eps)
    normalise_groups(values, kv_dim, load_word(a + V_GROUP), 0, eps)
    n_rot = load_word(a + ROT)
    table = load_word(a + ROPE) + 4 * (pos + t) * n_rot
    for first in range(0, q_dim + kv_dim, dim):
        rotate_head(x + 4 * first, table, n_rot, load_word(a + APART))
    out = load_word(a + Y) + 4 * t * total
    for i in range(q_dim):
        store_one(out + 4 * i, load_one(x + 4 * i))
    if load_word(a + WRITES) != 0:
        own = (pos + t) % load_word(a + CACHE_ROWS)  # a ring, or as many rows as positions
        k = load_word(a + K) + load_word(a + K_ROW) * own
        v = load_word(a + V) + load_word(a + V_ROW) * own
        store_row(load_word(a + K_TYPE), k, keys, kv_dim)
        store_row(load_word(a + V_TYPE), v, values, kv_dim)

def norm_rope_kv() -> Any:
    """Argument words: the offsets above. A piece of work is a token."""

    def run(a: int, team: int, me: int, members: int) -> None:
        step, t = load_word(a + STEP), claim(team)
        n, pos = load_u32(step + N), load_u32(step + POS)
        x = load_word(a + SCRATCH) + me * load_word(a + SCRATCH_BYTES)
        while t < n:
            heads_of_token(a, t, pos, x)
            t = claim(team)

    return run
