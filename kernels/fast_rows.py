"""Fast kernels over rows of activations: embed, rmsnorm, gates, sums, bounds of logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..engine import step as words
from .fast_formats import block_shape, decode
from .fast_memory import load, load_f64, load_one, load_u32, load_word, store, store_one
from .fast_simd import LANES, clamp, device, lane_max, lane_sum, nearest, power_of_two, splat
from .fast_team import claim

N, POS = 4 * words.N, 4 * words.POS  # byte offsets in the step buffer
WIDE = 4 * LANES  # bytes of one vector
SILU, GELU = 0, 1
PIECE = 4096  # values


@device
def row_address(table: int, r: int) -> int:
    """Address of row r of a weight. table: bytes per row, then (address, rows) of each part."""
    at = table + 8
    while r >= load_word(at + 8):
        r -= load_word(at + 8)
        at += 16
    return load_word(at) + r * load_word(table)


@device
def vector_exp(x: Any) -> Any:
    """e^x in every lane, relative error about 1e-7, for x clamped to [-87, 88].

    2^n times a degree-6 Taylor series of e^r, |r| <= ln(2) / 2, with ln 2 in two parts (Cody and
    Waite 1980, chapter 6).
    """
    x = clamp(x, splat(np.float32(-87.0)), splat(np.float32(88.0)))
    n = nearest(x * np.float32(1.4426950408889634))
    r = x - n * np.float32(0.693359375) - n * np.float32(-2.12194440e-4)
    p = r * np.float32(1 / 720) + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(0.5)
    return (p * r * r + r + np.float32(1.0)) * power_of_two(n)


@device
def silu(x: Any) -> Any:
    """x / (1 + e^-x) in every lane."""
    return x / (vector_exp(x * np.float32(-1.0)) + np.float32(1.0))


@device
def gelu(x: Any) -> Any:
    """x / (1 + e^-2z) in every lane, z = sqrt(2 / pi) (x + 0.044715 x^3)."""
    z = x * x * x * np.float32(0.044715) + x
    return x / (vector_exp(z * np.float32(-1.5957691216)) + np.float32(1.0))


@device
def activated(kind: int, x: Any) -> Any:
    """What a gate lets through: SILU or GELU, a constant of the kernel."""
    return gelu(x) if kind == GELU else silu(x)


@device
def inverse_rms(x: int, n: int, eps: float) -> Any:
    """1 / sqrt(mean(x^2) + eps) of n float32 values."""
    total, whole = splat(np.float32(0.0)), n - n % LANES
    for i in range(0, whole, LANES):
        v = load(x + 4 * i)
        total = total + v * v
    squares = lane_sum(total)
    for i in range(whole, n):
        squares += load_one(x + 4 * i) * load_one(x + 4 * i)
    return np.float32(1.0 / np.sqrt(squares / n + eps))


@device
def normalise(x: int, g: int, y: int, n: int, eps: float) -> None:
    """y = x / sqrt(mean(x^2) + eps) * g for n float32 values."""
    scale, whole = inverse_rms(x, n, eps), n - n % LANES
    for i in range(0, whole, LANES):
        store(y + 4 * i, load(x + 4 * i) * scale * load(g + 4 * i))
    for i in range(whole, n):
        store_one(y + 4 * i, load_one(x + 4 * i) * scale * load_one(g + 4 * i))


# Each factory returns a kernel f(args, team, me, members); args are words in the order of TASKS
# (fast.py). Pieces of work are tokens of the batch.


def embed(fmt: int) -> Any:
    """(tokens, w, x, step, n_embd, row0, rows, scale): scaled rows of the embedding matrix."""
    size, groups = block_shape(fmt)

    def run(a: int, team: int, me: int, members: int) -> None:
        tokens, w, x, width = load_word(a), load_word(a + 8), load_word(a + 16), load_word(a + 32)
        scale = np.float32(load_f64(a + 56))
        n, i = load_u32(load_word(a + 24) + N), claim(team)
        while i < n:
            token = load_u32(tokens + 4 * i) - load_word(a + 40)
            if 0 <= token < load_word(a + 48):
                p, out = row_address(w, token), x + 4 * i * width
                for _ in range(width // (32 * groups)):
                    for j in range(groups):
                        first, second = decode(fmt, p, j)
                        store(out, first * scale)
                        store(out + WIDE, second * scale)
                        out += 2 * WIDE
                    p += size
            i = claim(team)

    return run


def rmsnorm() -> Any:
    """(x, g, y, step, n_embd, eps)"""

    def run(a: int, team: int, me: int, members: int) -> None:
        x, g, y = load_word(a), row_address(load_word(a + 8), 0), load_word(a + 16)
        width, eps = load_word(a + 32), load_f64(a + 40)
        n, i = load_u32(load_word(a + 24) + N), claim(team)
        while i < n:
            normalise(x + 4 * i * width, g, y + 4 * i * width, width, eps)
            i = claim(team)

    return run


def gated(kind: int) -> Any:
    """(gu, y, step, n_ff): y = activated(gate) * up."""

    def run(a: int, team: int, me: int, members: int) -> None:
        width = load_word(a + 24)
        whole, n, i = width - width % LANES, load_u32(load_word(a + 16) + N), claim(team)
        while i < n:
            gate, y = load_word(a) + 8 * i * width, load_word(a + 8) + 4 * i * width
            up = gate + 4 * width
            for at in range(0, 4 * whole, WIDE):
                store(y + at, activated(kind, load(gate + at)) * load(up + at))
            for at in range(4 * whole, 4 * width, 4):
                value = activated(kind, splat(load_one(gate + at))) * load_one(up + at)
                store_one(y + at, lane_max(value))
            i = claim(team)

    return run


def swiglu() -> Any:
    """(gu, y, step, n_ff)"""
    return gated(SILU)


def geglu() -> Any:
    """(gu, y, step, n_ff)"""
    return gated(GELU)


def norm_add() -> Any:
    """(x, g, y, step, cols, groups, eps, scale): y = (y + rmsnorm(x) g) scale, group by group.
    A piece of work is a group of a token."""

    def run(a: int, team: int, me: int, members: int) -> None:
        g, width, eps = row_address(load_word(a + 8), 0), load_word(a + 32), load_f64(a + 48)
        scale, whole = np.float32(load_f64(a + 56)), width - width % LANES
        n, i = load_u32(load_word(a + 24) + N) * load_word(a + 40), claim(team)
        while i < n:
            x, y = load_word(a) + 4 * i * width, load_word(a + 16) + 4 * i * width
            inverse = inverse_rms(x, width, eps)
            for at in range(0, 4 * whole, WIDE):
                normed = load(x + at) * inverse * load(g + at)
                store(y + at, (load(y + at) + normed) * scale)
            for at in range(4 * whole, 4 * width, 4):
                one = load_one(y + at) + load_one(x + at) * inverse * load_one(g + at)
                store_one(y + at, one * scale)
            i = claim(team)

    return run


def bias_add() -> Any:
    """(y, b, step, cols, rows): y += b in the first min(n, rows) rows, PIECE values at a time."""

    def run(a: int, team: int, me: int, members: int) -> None:
        b, width = row_address(load_word(a + 8), 0), load_word(a + 24)
        pieces = (width + PIECE - 1) // PIECE
        count = min(load_u32(load_word(a + 16) + N), load_word(a + 32)) * pieces
        i = claim(team)
        while i < count:
            first = i % pieces * PIECE
            y, n = load_word(a) + 4 * (i // pieces * width + first), min(PIECE, width - first)
            whole = n - n % LANES
            for at in range(0, 4 * whole, WIDE):
                store(y + at, load(y + at) + load(b + 4 * first + at))
            for at in range(4 * whole, 4 * n, 4):
                store_one(y + at, load_one(y + at) + load_one(b + 4 * first + at))
            i = claim(team)

    return run


def softcap() -> Any:
    """(y, step, cols, rows, cap)"""

    def run(a: int, team: int, me: int, members: int) -> None:
        width, cap = load_word(a + 16), np.float32(load_f64(a + 32))
        rows = min(load_u32(load_word(a + 8) + N), load_word(a + 24))
        count, piece = rows * width, 4096
        first = claim(team) * piece
        while first < count:
            for i in range(first, min(first + piece, count)):
                at = load_word(a) + 4 * i
                z = load_one(at) / cap
                if z - z == 0.0:  # finite
                    z = np.float32(math.tanh(z))
                store_one(at, z * cap)
            first = claim(team) * piece

    return run


def gelu_mul() -> Any:
    """(y, e, step, cols, y_stride, e_stride, e_off)"""

    def run(a: int, team: int, me: int, members: int) -> None:
        width, n, i = load_word(a + 24), load_u32(load_word(a + 16) + N), claim(team)
        while i < n:
            y = load_word(a) + 4 * i * load_word(a + 32)
            e = load_word(a + 8) + 4 * (i * load_word(a + 40) + load_word(a + 48))
            for at in range(0, 4 * width, 4):
                value = gelu(splat(load_one(y + at))) * load_one(e + at)
                store_one(y + at, lane_max(value))
            i = claim(team)

    return run
