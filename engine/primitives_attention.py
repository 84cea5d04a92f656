"""Primitives of attention with heads: decode, prefill, and what writes the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    attention_tiles_q8,
    cache_rows,
    norm_matvec,
    norm_rope_kv,
    q8,
    qkv_rope_q8,
    rope_kv,
    rope_kv_halves,
)
from ..kernels.kernel import Kernel
from ..kernels.limits import Limits
from ..kernels.reference import random_matrix, step_words
from .harness_chain import Chain, Link, Output, chain_of
from .primitives import Check, Limit, Primitive, formats_of, normal, weight
from .primitives_products import EPS, groups

POSITIONS = 2000
SPLITS = 16
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


def in_cache(rng: np.random.Generator, h: Heads, mix: Mix, n: int, length: int) -> dict[str, Any]:
    """Queries of n tokens at the end of a context, and the caches."""
    return {
        "qkv": normal(rng, n, h.width), "step": step_words(n, length - n),
        **cache_rows.random_caches(rng, mix, h.ring or length, h.kv * h.dim),
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
    if kernel is attention_prefill_coop.KERNEL:
        return attention_prefill_coop.suits(h.dim, limits)
    return True


def decode_checks(room: int) -> Iterator[Check]:
    """All kernels: kinds of heads and caches at 2,000 positions, short contexts."""
    for kernel in (attention.KERNEL, attention_q8.KERNEL, attention_tiles_q8.KERNEL):
        kernels = (kernel, attention_combine.KERNEL)
        cases = [(h, HALVES, POSITIONS) for h in ALL_HEADS]
        cases += [(LLAMA, HALVES, length) for length in (1, 33, 300)]
        cases += [(h, mix, POSITIONS) for mix in MIXES for h in (QWEN, GEMMA)]
        for h, mix, length in cases:
            yield Check(f"{kernel.name} {h} T={length} {'/'.join(mix).lower()}", kernels,
                        partial(decode, kernel, h, mix, length), timed=length == POSITIONS,
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


# --- rotation and cache ------------------------------------------------------------------------


def rope_operands(
    rng: np.random.Generator, h: Heads, mix: Mix, n: int, length: int, n_rot: int
) -> dict[str, Any]:
    """As `in_cache`, with a table of rotations."""
    angle = rng.uniform(0, 6.28, (length, n_rot // 2))
    table = np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32)
    return {**in_cache(rng, h, mix, n, length), "rope": table}


def store(kernel: Kernel, h: Heads, mix: Mix, n: int, rng: np.random.Generator) -> Chain:
    """Rotation of q and k, rows of k and v into the caches."""
    ops = rope_operands(rng, h, mix, n, POSITIONS, h.dim)
    rows = sum(int(ops[name][:n].nbytes) for name in ("k", "v", "rope"))
    traffic = rows + 2 * n * h.width * 4
    params: dict[str, int | float] = {
        "n_head": h.count, "n_head_kv": h.kv, "head_dim": h.dim, "n_rot": h.dim, **h.rows,
    }  # fmt: skip
    if kernel is not norm_rope_kv.KERNEL:
        return chain_of(ops, [Link(kernel, params, n)], "qkv", "k", "v",
                        traffic=traffic)  # fmt: skip
    ops |= {"bias": random_matrix(rng, "F32", 1, h.width), "y": np.zeros((n, h.width), np.float32),
            "g": random_matrix(rng, "F32", 1, 2 * h.dim)}  # fmt: skip
    params |= {"apart": h.dim // 2, "eps": EPS, "writes": 1, "q_group": h.dim, "k_group": h.dim,
               "v_group": 0}  # fmt: skip
    queries = np.zeros((n, h.width), bool)
    queries[:, : h.count * h.dim] = True
    return chain_of(ops, [Link(kernel, params, n)], Output("y", mask=queries), "k", "v",
                    traffic=traffic)  # fmt: skip


def project(fmt: str, h: Heads, cols: int, int8: bool, mix: Mix, rng: np.random.Generator) -> Chain:
    """Norm, products of q, k and v, rotation and cache rows of one token."""
    ops = rope_operands(rng, h, mix, 1, 40, h.dim)
    ops["w"] = weight(rng, fmt, h.width, cols)
    params: dict[str, int | float] = {"cols": cols, "rows": h.width, "y_off": 0, "eps": EPS}
    heads = {"n_head": h.count, "n_head_kv": h.kv, "head_dim": h.dim, "n_rot": h.dim}
    if int8:
        ops = q8.vector_operands(rng, cols) | {"y": normal(rng, 1, h.width)} | ops
        del ops["qkv"]
        queries = np.arange(h.width)[None] < h.count * h.dim
        return chain_of(ops, [Link(qkv_rope_q8.KERNEL, params | heads)],
                        Output("y", mask=queries), "k", "v")  # fmt: skip
    ops |= {"x": normal(rng, 1, cols), "g": random_matrix(rng, "F32", 1, cols)}
    first = Link(norm_matvec.KERNEL, params | {"y_stride": h.width}, 1, {"y": "qkv"})
    return chain_of(ops, [first, Link(rope_kv.KERNEL, heads)], "qkv", "k", "v")


def rope_checks(mixes: Sequence[Mix], room: int) -> Iterator[Check]:
    """All kernels: one token and several, types of caches."""
    for kernel in (rope_kv.KERNEL, rope_kv_halves.KERNEL, norm_rope_kv.KERNEL):
        for mix in mixes:
            for h, n in ((QWEN, 1), (RING, 11)):
                yield Check(f"{kernel.name} {h} S={n} {'/'.join(mix).lower()}", (kernel,),
                            partial(store, kernel, h, mix, n))  # fmt: skip


def qkv_checks(room: int) -> Iterator[Check]:
    """Every format."""
    for int8, first in ((False, norm_matvec.KERNEL), (True, qkv_rope_q8.KERNEL)):
        for i, fmt in enumerate(formats_of(first)):
            mix = (HALVES, MIXES[0])[i % 2]
            kernels = (first,) if int8 else (first, rope_kv.KERNEL)
            name = f"{'int8' if int8 else 'f32'} {fmt} {LLAMA} of 4096 {'/'.join(mix).lower()}"
            yield Check(name, kernels, partial(project, fmt, LLAMA, 4096, int8, mix))


ATTENTION = Limit("max rel", 1e-3, "sums over 2,000 positions in any order, weights and values in "
                  "float16 on matrix cores")  # fmt: skip
ROTATED = Limit("max rel", 1e-3, "float16 caches round to 1 in 2,048")
STORED = Limit("NMSE", 1e-4, "values between two quants of a cache round either way: a step of "
               "q4_0 is an eighth of the largest value")  # fmt: skip
QKV = Limit("max rel", 1e-2, "norm, product, rotation and rounding in the cache one behind another")
PRIMITIVES = (
    Primitive("qkv", "from the layer's input to rotated heads and cache rows", QKV, qkv_checks),
    Primitive("rope", "rotation and cache rows", ROTATED,
              partial(rope_checks, (HALVES, MIXES[0]))),
    Primitive("rope-quantized", "rotation and quantized cache rows", STORED,
              partial(rope_checks, MIXES[1:])),
    Primitive("attention", "attention of one token", ATTENTION, decode_checks),
    Primitive("prefill", "causal attention of a batch", ATTENTION, prefill_checks),
)  # fmt: skip
