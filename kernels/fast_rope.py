"""Fast rope_kv and rope_kv_halves: rotate q and k, store k and v in the cache."""

from __future__ import annotations

from typing import Any

from .fast_half import store_half
from .fast_kv import IS_F16, is_quantized, quantize_row
from .fast_memory import load_one, load_u32, load_word, store_one
from .fast_rows import POS, N
from .fast_simd import device
from .fast_team import claim


@device
def put(cache: int, i: int, value: float, is_half: int) -> None:
    """Element i of a float16 or float32 cache row."""
    if is_half:
        store_half(cache + 2 * i, value)
    else:
        store_one(cache + 4 * i, value)


@device
def _rotated(x: int, table: int, i: int, partner: int, angle: int) -> tuple[float, float]:
    """Elements i and `partner` of the head at x, rotated by the table's pair `angle`."""
    cos, sin = load_one(table + 8 * angle), load_one(table + 8 * angle + 4)
    u, v = load_one(x + 4 * i), load_one(x + 4 * partner)
    return u * cos - v * sin, u * sin + v * cos


def _kernel(stride: int) -> Any:
    """Words (qkv, rope, k, v, step, n_head, n_head_kv, head_dim, n_rot, type and row of k and v,
    rows of the caches, scratch and its bytes per member): a row of keys is collected there before
    it is quantized."""

    def run(a: int, team: int, me: int, members: int) -> None:
        step, n_head, n_kv = load_word(a + 32), load_word(a + 40), load_word(a + 48)
        dim, n_rot = load_word(a + 56), load_word(a + 64)
        n, pos, t = load_u32(step + N), load_u32(step + POS), claim(team)
        k_type, v_type, width = load_word(a + 72), load_word(a + 88), n_kv * dim
        k_half, scratch = 1 if k_type == IS_F16 else 0, load_word(a + 112) + me * load_word(a + 120)
        apart = 1 if stride == 2 else n_rot // 2
        while t < n:
            x = load_word(a) + 4 * t * (n_head + 2 * n_kv) * dim
            table = load_word(a + 8) + 4 * (pos + t) * n_rot
            row = (pos + t) % load_word(a + 104)  # of a ring, or of as many rows as positions
            k_row = load_word(a + 16) + load_word(a + 80) * row
            v = load_word(a + 24) + load_word(a + 96) * row
            k = scratch if is_quantized(k_type) else k_row
            for h in range(n_head + n_kv):
                for p in range(n_rot // 2):
                    i = stride * p
                    first, second = _rotated(x, table, i, i + apart, p)
                    if h < n_head:
                        store_one(x + 4 * i, first)
                        store_one(x + 4 * (i + apart), second)
                    else:
                        put(k, (h - n_head) * dim + i, first, k_half)
                        put(k, (h - n_head) * dim + i + apart, second, k_half)
                if h >= n_head:  # the rest of a partly rotated head
                    for i in range(n_rot, dim):
                        put(k, (h - n_head) * dim + i, load_one(x + 4 * i), k_half)
                x += 4 * dim
            if is_quantized(k_type):
                quantize_row(k_type, k_row, scratch, width)
            if is_quantized(v_type):
                quantize_row(v_type, v, x, width)
            else:
                for i in range(width):
                    put(v, i, load_one(x + 4 * i), 1 if v_type == IS_F16 else 0)
            t = claim(team)

    return run


def rope_kv() -> Any:
    """Pair p is elements (2p, 2p + 1)."""
    return _kernel(2)


def rope_kv_halves() -> Any:
    """Pair p is elements (p, p + n_rot / 2)."""
    return _kernel(1)
