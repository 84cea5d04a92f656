"""Primitives without weights to speak of: norms, sampling, rows and copies; all such primitives."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ..kernels import (
    embed,
    experts_gather,
    experts_sort,
    fill,
    norm_add,
    repack,
    rmsnorm,
    sample_pick,
    sample_scan,
)
from ..kernels.kernel import Kernel
from ..kernels.reference import random_matrix, step_words
from . import sampler
from . import step as words
from .blocks import FORMATS
from .harness_chain import Chain, Link, Output, chain_of
from .primitives import Check, Limit, Primitive, formats_of, normal, weight
from .primitives_experts import route
from .primitives_products import EPS
from .primitives_router import router_checks

# --- norms ---------------------------------------------------------------------------------------


def norm(kernel: Kernel, n: int, cols: int, rng: np.random.Generator) -> Chain:
    """Rows normalised, or added to others afterwards."""
    ops = {"x": normal(rng, n, cols), "g": random_matrix(rng, "F32", 1, cols),
           "y": normal(rng, n, cols), "step": step_words(n, 0)}  # fmt: skip
    if kernel is rmsnorm.KERNEL:
        return chain_of(ops, [Link(kernel, {"n_embd": cols, "eps": EPS}, n)], "y")
    params = {"cols": cols, "groups": 1, "eps": EPS, "scale": 0.5}
    return chain_of(ops, [Link(kernel, params, n)], "y")


def norm_checks(room: int) -> Iterator[Check]:
    """Widths of models, one token and several."""
    for kernel in (rmsnorm.KERNEL, norm_add.KERNEL):
        for cols in (576, 2048, 6144, 16384):
            for n in (1, 2, 11):
                yield Check(f"{kernel.name} {cols} S={n}", (kernel,),
                            partial(norm, kernel, n, cols))  # fmt: skip


# --- sampling ------------------------------------------------------------------------------------


def sample(options: sampler.Sampling, vocab: int, rng: np.random.Generator) -> Chain:
    """From logits to the token drawn, at position 70 with a window of penalties."""
    group, n_ctx = sample_scan.group_size(vocab), 128
    step = step_words(1, 70)
    step[[words.SEED_LO, words.SEED_HI]] = sampler.seed_words(int(rng.integers(1 << 62)))
    step[[words.COUNT, words.DRAWS]] = 66, 66
    history: Any = np.zeros(n_ctx, np.uint32)
    history[:71] = rng.integers(vocab, size=71) + 1
    counts: Any = np.zeros(vocab, np.uint32)
    np.add.at(counts, history[:71] - 1, 1)
    ops: dict[str, Any] = {
        "logits": normal(rng, 1, vocab) * 3, "counts": counts, "history": history, "step": step,
        "settings": sampler.settings_words(options, ()), "tokens": np.zeros(4, np.uint32),
        "keys": np.zeros(vocab, np.uint32),
        "best": np.zeros(sample_scan.best_shape(vocab), np.uint32),
        "result": np.zeros(words.WORDS + words.RING, np.uint32),
    }  # fmt: skip
    params: dict[str, int | float] = {"n_vocab": vocab, "group": group}
    links = [Link(sample_scan.KERNEL, params), Link(sample_pick.KERNEL, params | {"n_ctx": n_ctx})]
    drawn = np.zeros(words.WORDS + words.RING, bool)
    drawn[: words.WORDS] = True
    drawn[words.WORDS + 66 % words.RING] = True
    return chain_of(ops, links, "keys", "best", "step", "counts", "history",
                    Output("result", mask=drawn))  # fmt: skip


def sample_checks(room: int) -> Iterator[Check]:
    """Vocabularies of models; argmax, top-k, nucleus, penalties."""
    kernels = (sample_scan.KERNEL, sample_pick.KERNEL)
    for vocab in (32000, 49152, 151936, 262144):
        for name in ("greedy", "default", "top-k 128", "top-p", "penalties"):
            yield Check(f"{name} of {vocab}", kernels,
                        partial(sample, sample_pick.OPTIONS[name], vocab))  # fmt: skip


# --- rows and copies -----------------------------------------------------------------------------


def rows(fmt: str, n: int, rng: np.random.Generator) -> Chain:
    """Rows of a token table."""
    vocab, cols = 1024, 6144
    w = weight(rng, fmt, vocab, cols)
    tokens = rng.integers(vocab, size=n).astype(np.uint32)
    ops: dict[str, Any] = {
        "tokens": tokens, "w": w, "x": np.zeros((n, cols), np.float32),
        "step": step_words(n, 3),
    }  # fmt: skip
    params = {"n_embd": cols, "row0": 0, "rows": vocab, "scale": 1.0}
    traffic = n * (FORMATS[fmt].row_bytes(cols) + 4 * cols)
    return chain_of(ops, [Link(embed.KERNEL, params, n)], "x", traffic=traffic)


def rows_checks(room: int) -> Iterator[Check]:
    """Every format."""
    for i, fmt in enumerate(formats_of(embed.KERNEL)):
        n = (1, 2, 4, 8, 11)[i % 5]
        yield Check(f"embed {fmt} 6144 S={n}", (embed.KERNEL,), partial(rows, fmt, n))


def split(fmt: str, rng: np.random.Generator) -> Chain:
    """A matrix of 64 x 6144 values from the blocks of a file to the planes of the device."""
    f = FORMATS[fmt]
    blocks = 64 * 6144 // f.elems
    src = rng.integers(0, 1 << 32, -(-blocks * f.bytes // 4), dtype=np.uint32)
    sizes, links = f.plane_words(blocks), []
    ops: dict[str, Any] = {"src": src}
    for i, plane in enumerate(f.planes):
        ops[f"dst{i}"] = rng.integers(0, 1 << 32, sizes[i] + 4, dtype=np.uint32)
        params = {"src_byte": 0, "block_bytes": f.bytes, "offset": plane.offset,
                  "size": plane.size, "stride": plane.stride,
                  "plane_bytes": blocks * plane.stride, "dst_word": 0}  # fmt: skip
        links.append(Link(repack.KERNEL, params, 1, {"dst": f"dst{i}"}))
    return chain_of(ops, links, *(f"dst{i}" for i in range(len(f.planes))))


def gather(n: int, rng: np.random.Generator) -> Chain:
    """Rows of tokens in the order of their experts, 8 of 64."""
    experts, slots, width = 64, 8, 6144
    pairs = n * slots
    ops = {
        "route": route(rng, n, slots, experts), "start": np.zeros(experts + 1, np.uint32),
        "order": np.zeros(pairs, np.uint32), "place": np.zeros(pairs, np.uint32),
        "x": normal(rng, n, width), "y": np.zeros((pairs, width), np.float32),
        "step": step_words(n, 4),
    }  # fmt: skip
    sort = Link(experts_sort.KERNEL, {"experts": experts}, n)
    move = Link(experts_gather.KERNEL, {"words": width, "slots": slots, "experts": experts}, n)
    return chain_of(ops, [sort, move], "start", "order", "place", Output("y", exact=True))


def filled(count: int, rng: np.random.Generator) -> Chain:
    """Words inside of a buffer."""
    ops = {"dst": rng.integers(0, 1 << 32, count + 64, dtype=np.uint32)}
    params = {"word": 32, "count": count, "value": int(rng.integers(1 << 32))}
    return chain_of(ops, [Link(fill.KERNEL, params)], "dst")


def copy_checks(room: int) -> Iterator[Check]:
    """Blocks to planes in every format, rows by expert, words."""
    for fmt in FORMATS:
        yield Check(f"repack {fmt} 64x6144", (repack.KERNEL,), partial(split, fmt))
    for n in (1, 2, 11):
        yield Check(f"experts_gather 8 of 64x6144 S={n}",
                    (experts_sort.KERNEL, experts_gather.KERNEL), partial(gather, n))  # fmt: skip
    yield Check("fill 98304 words", (fill.KERNEL,), partial(filled, 98304))


EXACT = Limit("exact", 0.0, "integers and copies, as in llama.cpp's operator tests")
SOFTMAX = Limit("NMSE", 1e-6, "experts exactly; weights are a softmax or sigmoid, with the limit "
                "of llama.cpp's operator tests")  # fmt: skip
NORM = Limit("max rel", 1e-5, "one sum of squares in float32 and a square root")
ROWS = Limit("max rel", 1e-6, "a product and a sum in float32: half a unit in the last place each")
PRIMITIVES = (
    Primitive("router", "softmax or sigmoid, top-k and weights of experts", SOFTMAX, router_checks),
    Primitive("norm", "norms of rows", NORM, norm_checks),
    Primitive("sampling", "argmax, top-k, nucleus and draw", EXACT, sample_checks),
    Primitive("rows", "rows of the token table", ROWS, rows_checks),
    Primitive("copy", "blocks to planes, rows by expert, fill", EXACT, copy_checks),
)
