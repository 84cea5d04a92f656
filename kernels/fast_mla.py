"""Fast kernels of latent attention for one token: queries and cache row, values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .fast_formats import NUMBERS
from .fast_heads import normalise_groups, rotate_head, store_row
from .fast_kv import IS_F16
from .fast_matvec import dot
from .fast_memory import load_f64, load_one, load_u32, load_word, store_one
from .fast_rows import POS, row_address
from .fast_simd import device, routine
from .fast_team import claim
from .mla import MIN_SPLIT

HALF, WHOLE = NUMBERS["F16"], NUMBERS["F32"]
QUERY = (
    "a g w kb h rope q k step cols q_rank rank nope n_rot heads eps k.type k.row kb.type scratch "
    "scratch_bytes"
)
A, G, W, KB, H, ROPE, Q, K, STEP, COLS, Q_RANK, RANK, NOPE, ROT, HEADS, EPS = range(0, 128, 8)
K_TYPE, K_ROW, KB_TYPE, SCRATCH, SCRATCH_BYTES = range(128, 168, 8)
VALUES = "part w y step rows splits heads most part.row scratch scratch_bytes"
V_PART, V_W, V_Y, V_STEP, V_ROWS, V_SPLITS, V_HEADS, V_MOST, V_ROW, V_SCRATCH, V_BYTES = range(
    0, 88, 8
)


@routine
def write_cache(a: int, x: int, pos: int, table: int) -> None:
    """The position's row: normalised latent, rotated key; x is scratch."""
    rank, rot = load_word(a + RANK), load_word(a + ROT)
    latent = load_word(a + A) + 4 * load_word(a + Q_RANK)
    for i in range(rank + rot):
        store_one(x + 4 * i, load_one(latent + 4 * i))
    normalise_groups(x, rank, rank, row_address(load_word(a + H), 0), load_f64(a + EPS))
    rotate_head(x + 4 * rank, table, rot, 1)
    row = load_word(a + K) + load_word(a + K_ROW) * pos
    store_row(load_word(a + K_TYPE), row, x, rank + rot)


@routine
def normed_query(a: int, x: int) -> None:
    """The compressed query, normalised, with zeros up to whole chunks."""
    n = load_word(a + Q_RANK)
    for i in range(load_word(a + COLS)):
        store_one(x + 4 * i, load_one(load_word(a + A) + 4 * i) if i < n else np.float32(0.0))
    normalise_groups(x, n, n, row_address(load_word(a + G), 0), load_f64(a + EPS))


@routine
def absorb(a: int, head: int, query: int, table: int) -> None:
    """The head's absorbed query, from the plain one."""
    rank, nope, rot = load_word(a + RANK), load_word(a + NOPE), load_word(a + ROT)
    out, kb = load_word(a + Q) + 4 * head * (rank + rot), load_word(a + KB)
    half = load_word(a + KB_TYPE) == IS_F16
    for r in range(rank):
        row = row_address(kb, head * rank + r)
        store_one(out + 4 * r, dot(HALF, row, query, nope) if half
                  else dot(WHOLE, row, query, nope))  # fmt: skip
    rotate_head(query + 4 * nope, table, rot, 1)
    for i in range(rot):
        store_one(out + 4 * (rank + i), load_one(query + 4 * (nope + i)))


def mla_query(fmt: int) -> Any:
    """A piece of work is a head; the last one is the cache's row."""

    def run(a: int, team: int, me: int, members: int) -> None:
        heads, cols = load_word(a + HEADS), load_word(a + COLS)
        width = load_word(a + NOPE) + load_word(a + ROT)
        x = load_word(a + SCRATCH) + me * load_word(a + SCRATCH_BYTES)
        pos = load_u32(load_word(a + STEP) + POS)
        table = load_word(a + ROPE) + 4 * pos * load_word(a + ROT)
        query, head = x + 4 * cols, claim(team)
        if head < heads:
            normed_query(a, x)
        while head < heads:
            for r in range(width):
                row = row_address(load_word(a + W), head * width + r)
                store_one(query + 4 * r, dot(fmt, row, x, cols))
            absorb(a, head, query, table)
            head = claim(team)
        if head == heads:
            write_cache(a, x, pos, table)

    return run


@device
def join_splits(part: int, out: int, rank: int, used: int) -> None:
    """The weighted mean of the splits' latents."""
    row = 4 * (rank + 2)
    most, total = load_one(part + 4 * rank), np.float32(0.0)
    for s in range(1, used):
        most = max(most, load_one(part + s * row + 4 * rank))
    for i in range(rank):
        store_one(out + 4 * i, np.float32(0.0))
    for s in range(used):
        at = part + s * row
        shrink = np.float32(math.exp(load_one(at + 4 * rank) - most))
        total += shrink * load_one(at + 4 * rank + 4)
        for i in range(rank):
            store_one(out + 4 * i, load_one(out + 4 * i) + shrink * load_one(at + 4 * i))
    for i in range(rank):
        store_one(out + 4 * i, load_one(out + 4 * i) / total)


def mla_values(fmt: int) -> Any:
    """A piece of work is a head."""

    def run(a: int, team: int, me: int, members: int) -> None:
        rows, splits = load_word(a + V_ROWS), load_word(a + V_SPLITS)
        rank = load_word(a + V_ROW) // 4 // splits - 2
        seen = min(load_u32(load_word(a + V_STEP) + POS) + 1, load_word(a + V_MOST))
        per = max((seen + splits - 1) // splits, MIN_SPLIT)
        x = load_word(a + V_SCRATCH) + me * load_word(a + V_BYTES)
        head = claim(team)
        while head < load_word(a + V_HEADS):
            part = load_word(a + V_PART) + head * load_word(a + V_ROW)
            join_splits(part, x, rank, (seen + per - 1) // per)
            for r in range(rows):
                row = row_address(load_word(a + V_W), head * rows + r)
                store_one(load_word(a + V_Y) + 4 * (head * rows + r), dot(fmt, row, x, rank))
            head = claim(team)

    return run
