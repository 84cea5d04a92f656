"""Primitives of attention with heads: decode and prefill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..kernels import (
    attention,
    attention_combine,
    attention_prefill,
    attention_prefill_coop,
    attention_q8,
    attention_short_q8,
    attention_tiles_q8,
    cache_rows,
)
from ..kernels.kernel import Kernel
from ..kernels.limits import Limits
from ..kernels.reference import step_words
from .harness_chain import Chain, Link, Output, chain_of
from .primitives import Check, Limit, Primitive, normal
from .primitives_products import groups

POSITIONS = 2000
SHORT = 512  # the longest contexts for which plans take attention_short_q8
SPLITS = 16
DISTINCT = 256  # rows of a cache: making them takes longer than attending to them
Mix = tuple[str, str]  # types of keys and values
HALVES, MIXES = ("F16", "F16"), (("F32", "F32"), ("Q8_0", "Q8_0"), ("Q8_0", "Q4_0"))


@dataclass(frozen=True)
class Heads:
    """Query heads, key/value heads, their size, a window and rows of a ring (0: none)."""

    count: int
    kv: int
    dim: int
    window: int = 0
    ring: int = 0

    def __str__(self) -> str:
        text = f"{self.count}/{self.kv}x{self.dim}"
        text += f" window={self.window}" if self.window else ""
        return text + (f" ring={self.ring}" if self.ring else "")

    @property
    def width(self) -> int:
        """Values of q, k and v."""
        return (self.count + 2 * self.kv) * self.dim

    def params(self, kernel: Kernel) -> dict[str, int | float]:
        """Push words of an attention kernel."""
        found: dict[str, int | float] = {
            "n_head": self.count, "n_head_kv": self.kv, "head_dim": self.dim,
            "scale": self.dim**-0.5, "window": self.window,
        }  # fmt: skip
        bounded = any(name == "softcap" for name, _ in kernel.interface.push)
        return found | ({"softcap": 0.0} if bounded else {}) | self.rows

    @property
    def rows(self) -> dict[str, int | float]:
        """What kernels have to know of the caches' rows."""
        return {"ring": self.ring} if self.ring else {}


LLAMA, QWEN, SMALL = Heads(32, 8, 128), Heads(64, 8, 128), Heads(9, 3, 64)
GEMMA, WINDOW = Heads(8, 4, 256, 1024), Heads(32, 8, 128, 512)
RING = Heads(8, 4, 256, 1024, 1088)
ALL_HEADS = (LLAMA, QWEN, SMALL, GEMMA, WINDOW, RING)


def caches(rng: np.random.Generator, mix: Mix, rows: int, width: int) -> dict[str, Any]:
    """Keys and values; of many rows, DISTINCT are different, and lie in random order."""
    found = cache_rows.random_caches(rng, mix, min(rows, DISTINCT), width)
    if rows <= DISTINCT:
        return dict(found)
    return {name: some[rng.integers(DISTINCT, size=rows)] for name, some in found.items()}


def in_cache(rng: np.random.Generator, h: Heads, mix: Mix, n: int, length: int) -> dict[str, Any]:
    """Queries of n tokens at the end of a context, and the caches."""
    return {
        "qkv": normal(rng, n, h.width), "step": step_words(n, length - n),
        **caches(rng, mix, h.ring or length, h.kv * h.dim),
    }  # fmt: skip


def seen_bytes(ops: dict[str, Any], h: Heads, n: int, length: int) -> int:
    """What attention moves: queries, results and the rows that a window leaves."""
    seen = min(length, h.window + n - 1) if h.window else length
    rows = sum(int(ops[name][:1].nbytes) for name in "kv") * seen
    return rows + 2 * n * h.count * h.dim * 4


def decode(kernel: Kernel, h: Heads, mix: Mix, length: int, rng: np.random.Generator) -> Chain:
    """One token, its splits joined."""
    ops, width = in_cache(rng, h, mix, 1, length), h.count * h.dim
    ops["part"] = np.zeros((h.count, SPLITS, h.dim + 2), np.float32)
    traffic = seen_bytes(ops, h, 1, length)
    params: dict[str, int | float] = {**h.params(kernel), "splits": SPLITS}
    if kernel is attention.KERNEL:
        ops["y"] = np.zeros((1, width), np.float32)
        join = {"n_head": h.count, "head_dim": h.dim, "splits": SPLITS}
        links = [Link(kernel, params), Link(attention_combine.KERNEL, join)]
        return chain_of(ops, links, "y", traffic=traffic)
    ops |= groups(width) | {"arrived": np.zeros(h.count, np.uint32)}
    if kernel is attention_short_q8.KERNEL:
        del ops["part"], ops["arrived"], params["splits"]
    if kernel is attention_tiles_q8.KERNEL:
        params["heads"] = h.count // h.kv
    return chain_of(ops, [Link(kernel, params)], Output("yq", scales="ys"), traffic=traffic)


def prefill(kernel: Kernel, h: Heads, mix: Mix, n: int, length: int,
            rng: np.random.Generator) -> Chain:  # fmt: skip
    """n tokens at the end of the context, each seeing those before it."""
    ops = in_cache(rng, h, mix, n, length)
    ops["y"] = np.zeros((n, h.count * h.dim), np.float32)
    return chain_of(ops, [Link(kernel, h.params(kernel), n)], "y",
                    traffic=seen_bytes(ops, h, n, length))  # fmt: skip


def suits(kernel: Kernel, h: Heads, mix: Mix, limits: Limits) -> bool:
    """Whether heads of this kind fit a kernel on a device; models ask the same."""
    group = h.count // h.kv
    if kernel is attention_q8.KERNEL:
        return attention_q8.suits(group, h.dim, limits)
    if kernel is attention_tiles_q8.KERNEL:
        return attention_tiles_q8.suits(group, h.dim, limits, *mix)
    if kernel is attention_short_q8.KERNEL:
        return attention_short_q8.size(h.dim, limits) > 0
    if kernel is attention_prefill_coop.KERNEL:
        return attention_prefill_coop.suits(h.dim, limits)
    return True


def decode_cases(kernel: Kernel) -> Iterator[tuple[Heads, Mix, int, bool]]:
    """(heads, types of the caches, positions, whether it is timed)."""
    short = kernel is attention_short_q8.KERNEL
    for h in ALL_HEADS:  # windows and rings only where they leave positions out
        yield h, HALVES, SHORT if short and not h.window else POSITIONS, not short or not h.window
    for length in (1, 33, 300):
        yield LLAMA, HALVES, length, short and length > 1
    for mix in () if short else MIXES:
        yield from ((h, mix, POSITIONS, True) for h in (QWEN, GEMMA))


def decode_checks(room: int) -> Iterator[Check]:
    """All kernels: kinds of heads and caches at 2,000 positions or 512, short contexts."""
    joined = attention_q8.KERNEL, attention_tiles_q8.KERNEL, attention_short_q8.KERNEL
    for kernel in (attention.KERNEL, *joined):
        kernels = (kernel,) if kernel in joined else (kernel, attention_combine.KERNEL)
        for h, mix, length, times in decode_cases(kernel):
            yield Check(f"{kernel.name} {h} T={length} {'/'.join(mix).lower()}", kernels,
                        partial(decode, kernel, h, mix, length), timed=times,
                        suits=partial(suits, kernel, h, mix))  # fmt: skip


def prefill_checks(room: int) -> Iterator[Check]:
    """Both kernels: few tokens at 2,000 positions, a batch from the start, caches."""
    for kernel in (attention_prefill.KERNEL, attention_prefill_coop.KERNEL):
        tokens = zip(ALL_HEADS, (2, 4, 8, 11, 8, 8), strict=True)
        cases = [(h, HALVES, n, POSITIONS) for h, n in tokens]
        cases += [(LLAMA, HALVES, 64, 64), (WINDOW, HALVES, 11, POSITIONS)]
        cases += [(QWEN, mix, 8, POSITIONS) for mix in MIXES]
        for h, mix, n, length in cases:
            yield Check(f"{kernel.name} {h} S={n} T={length} {'/'.join(mix).lower()}", (kernel,),
                        partial(prefill, kernel, h, mix, n, length), timed=n == 8,
                        suits=partial(suits, kernel, h, mix))  # fmt: skip


ATTENTION = Limit("max rel", 1e-3, "sums over 2,000 positions in any order, weights and values in "
                  "float16 on matrix cores")  # fmt: skip
PRIMITIVES = (
    Primitive("attention", "attention of one token", ATTENTION, decode_checks),
    Primitive("prefill", "causal attention of a batch", ATTENTION, prefill_checks),
)
