"""Fast attention: blocks of queries against tiles of the cache, softmax carried along.

Keys and values of a tile are widened to float32 once for all queries of a key/value head, scores
come from register tiles, and maximum and sum are rescaled from tile to tile (Dao et al. 2022,
algorithm 1). Rows in scratch are padded with zeros to a multiple of VALUES values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fast_kv import padded_dim, widen_rows
from .fast_memory import (
    load_f64,
    load_one,
    load_u32,
    load_word,
    store_one,
)
from .fast_rows import POS, N, vector_exp
from .fast_simd import LANES, device, lane_max, routine, splat
from .fast_softmax import (
    NEVER,
    TILE,
    add_values,
    cap_row,
    scale_row,
    score_tile,
    soften,
)
from .fast_team import claim
from .fast_tile import VALUES

MIN_SPLIT = 32
QUERIES = 48  # query rows at a time, all heads of a group counted

# byte offsets of the argument words
QKV, K, V, OUT, STEP, HEADS, KV_HEADS, DIM, SCALE, WINDOW, SOFTCAP = range(0, 88, 8)
K_TYPE, K_ROW, V_TYPE, V_ROW, CACHE_ROWS, SCRATCH, SCRATCH_BYTES, SPLITS = range(88, 152, 8)


def query_tokens(group: int) -> int:
    """Tokens whose `group` query heads are worked on together."""
    return max(1, QUERIES // group)


def scratch_floats(head_dim: int, group: int, tokens: int) -> int:
    """float32 values per member: keys and values of a tile; queries, sums and scores of the rows;
    maximum and total of each row."""
    rows, dim = group * tokens, -(-head_dim // VALUES) * VALUES  # as padded_dim
    return 2 * TILE * dim + rows * (2 * dim + TILE + 2)


query_tokens_device = device(query_tokens)


@routine
def take_queries(a: int, kv: int, token: int, tokens: int, q: int, rows: int) -> None:
    """Scale the query heads of key/value head `kv` into padded rows (token, head) of scratch, and
    clear the sums, maxima and totals of these rows, which lie after the queries."""
    dim, group = load_word(a + DIM), load_word(a + HEADS) // load_word(a + KV_HEADS)
    padded, scale = padded_dim(dim), np.float32(load_f64(a + SCALE))
    stride = (load_word(a + HEADS) + 2 * load_word(a + KV_HEADS)) * dim
    sums, stats = q + 4 * rows * padded, q + rows * (8 * padded + 4 * TILE)
    for m in range(tokens * group):
        at = (token + m // group) * stride + (kv * group + m % group) * dim
        head = load_word(a + QKV) + 4 * at
        for i in range(padded):
            at = 4 * (m * padded + i)
            store_one(q + at, load_one(head + 4 * i) * scale if i < dim else np.float32(0.0))
            store_one(sums + at, np.float32(0.0))
        store_one(stats + 8 * m, NEVER)
        store_one(stats + 8 * m + 4, np.float32(0.0))


@routine
def widen_tile(
    cache: int, stride: int, kind: int, column: int, width: int, out: int, count: int, dim: int,
    first: int, ring: int,
) -> None:
    """widen_rows of the positions first …; a tile may begin at a ring's end and go on at its
    start."""
    row = first % ring
    ahead = min(count, ring - row)
    widen_rows(cache + stride * row, stride, kind, column, width, out, ahead, dim)
    if ahead < count:
        out += 4 * ahead * padded_dim(dim)
        widen_rows(cache, stride, kind, column, width, out, count - ahead, dim)


@routine
def attend(a: int, kv: int, own: int, start: int, stop: int, q: int, rows: int) -> None:
    """Queries in scratch at q, row m at position own + m // group, against positions start …
    stop - 1 of key/value head `kv`; results stay in scratch, not yet divided by the totals."""
    dim, group = load_word(a + DIM), load_word(a + HEADS) // load_word(a + KV_HEADS)
    padded, width, window = padded_dim(dim), load_word(a + KV_HEADS) * dim, load_word(a + WINDOW)
    k, k_type, k_row = load_word(a + K), load_word(a + K_TYPE), load_word(a + K_ROW)
    v, v_type, v_row = load_word(a + V), load_word(a + V_TYPE), load_word(a + V_ROW)
    sums, scores = q + 4 * rows * padded, q + 8 * rows * padded
    stats, cap = scores + 4 * rows * TILE, np.float32(load_f64(a + SOFTCAP))
    values, keys = q - 4 * TILE * padded, q - 8 * TILE * padded
    ring = load_word(a + CACHE_ROWS)  # or as many rows as positions
    for first in range(start, stop, TILE):
        count = min(TILE, stop - first)
        used = (count + LANES - 1) // LANES * LANES  # the rest of the last vector is masked
        widen_tile(k, k_row, k_type, kv * dim, width, keys, count, dim, first, ring)
        widen_tile(v, v_row, v_type, kv * dim, width, values, count, dim, first, ring)
        for i in range(count * padded, used * padded):
            store_one(values + 4 * i, np.float32(0.0))
        score_tile(q, keys, scores, rows, padded, used)
        if cap > 0:
            for m in range(rows):
                cap_row(scores + 4 * m * TILE, cap, used)
        for m in range(rows):
            last = own + m // group - first  # this query's own place in the tile
            low, high = max(0, last + 1 - window) if window > 0 else 0, min(count, last + 1)
            factor = soften(scores + 4 * m * TILE, stats + 8 * m, low, high, used)
            if factor < 1:
                scale_row(sums + 4 * m * padded, factor, padded)
        add_values(sums, scores, values, rows, padded, used)


def attention() -> Any:
    """part[head, split] = unnormalised sums, maximum and total over a split of the cache. A
    piece of work is a key/value head and a split."""

    def run(a: int, team: int, me: int, members: int) -> None:
        dim, splits, n_kv = load_word(a + DIM), load_word(a + SPLITS), load_word(a + KV_HEADS)
        group, window = load_word(a + HEADS) // n_kv, load_word(a + WINDOW)
        pos = load_u32(load_word(a + STEP) + POS)
        lowest = max(pos + 1 - window, 0) if window > 0 else 0
        per = max((pos - lowest + splits) // splits, MIN_SPLIT)
        padded = padded_dim(dim)
        q = load_word(a + SCRATCH) + me * load_word(a + SCRATCH_BYTES) + 8 * TILE * padded
        piece = claim(team)
        while piece < n_kv * splits:
            kv, split = piece // splits, piece % splits
            start = lowest + split * per
            take_queries(a, kv, 0, 1, q, group)
            attend(a, kv, pos, start, min(start + per, pos + 1), q, group)
            for m in range(group):
                row = ((kv * group + m) * splits + split) * (dim + 2)
                out, stats = load_word(a + OUT) + 4 * row, q + group * (8 * padded + 4 * TILE)
                for i in range(dim):
                    store_one(out + 4 * i, load_one(q + 4 * ((group + m) * padded + i)))
                store_one(out + 4 * dim, load_one(stats + 8 * m))
                store_one(out + 4 * dim + 4, load_one(stats + 8 * m + 4))
            piece = claim(team)

    return run


def attention_prefill() -> Any:
    """y of a batch of queries. A piece of work is a key/value head and a block of tokens."""

    def run(a: int, team: int, me: int, members: int) -> None:
        dim, n_kv, step = load_word(a + DIM), load_word(a + KV_HEADS), load_word(a + STEP)
        group, window = load_word(a + HEADS) // n_kv, load_word(a + WINDOW)
        n, pos, most = load_u32(step + N), load_u32(step + POS), query_tokens_device(group)
        padded = padded_dim(dim)
        q = load_word(a + SCRATCH) + me * load_word(a + SCRATCH_BYTES) + 8 * TILE * padded
        blocks, piece = (n + most - 1) // most, claim(team)
        while piece < n_kv * blocks:
            # the last blocks see most of the cache: they come first
            kv, token = piece % n_kv, (blocks - 1 - piece // n_kv) * most
            tokens = min(most, n - token)
            rows, own = tokens * group, pos + token
            take_queries(a, kv, token, tokens, q, rows)
            lowest = max(own + 1 - window, 0) if window > 0 else 0
            attend(a, kv, own, lowest, own + tokens, q, rows)
            for m in range(rows):
                column = (kv * group + m % group) * dim
                at = (token + m // group) * load_word(a + HEADS) * dim + column
                total = load_one(q + rows * (8 * padded + 4 * TILE) + 8 * m + 4)
                for i in range(dim):
                    value = load_one(q + 4 * ((rows + m) * padded + i)) / total
                    store_one(load_word(a + OUT) + 4 * (at + i), value)
            piece = claim(team)

    return run


def attention_combine() -> Any:
    """Words (part, y, n_head, head_dim, splits): the splits of each head, joined."""

    def run(a: int, team: int, me: int, members: int) -> None:
        heads, dim, splits = load_word(a + 16), load_word(a + 24), load_word(a + 32)
        h = claim(team)
        while h < heads:
            part, y = load_word(a) + 4 * h * splits * (dim + 2), load_word(a + 8) + 4 * h * dim
            best, total = NEVER, np.float32(0.0)
            for s in range(splits):
                best = max(best, load_one(part + 4 * (s * (dim + 2) + dim)))
            for i in range(dim):
                store_one(y + 4 * i, np.float32(0.0))
            for s in range(splits):
                row = part + 4 * s * (dim + 2)
                if load_one(row + 4 * dim + 4) > 0:  # else an empty split, nothing written
                    factor = lane_max(vector_exp(splat(load_one(row + 4 * dim) - best)))
                    total += factor * load_one(row + 4 * dim + 4)
                    for i in range(dim):
                        at = y + 4 * i
                        store_one(at, load_one(at) + factor * load_one(row + 4 * i))
            for i in range(dim):
                store_one(y + 4 * i, load_one(y + 4 * i) / total)
            h = claim(team)

    return run
