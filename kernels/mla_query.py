"""mla_query: one token's absorbed queries from the compressed one, and its row of the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .matvec_launch import ALL_FORMATS, FEW_PLAIN
from .mla import SHAPES, absorb, cache_rows, case_rope, sizes
from .reference import Floats, parts, product, random_matrix, rms_normalise, step_words, vector


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """PARTS workgroups per head, and one for the cache."""
    heads, head = int(params["heads"]), int(params["nope"]) + int(params["n_rot"])
    cols, size = int(params["cols"]), limits.workgroup(256)
    lanes = 8
    while lanes > 1 and 4 * (cols + head + lanes * head) > limits.shared_bytes:
        lanes //= 2
    while lanes * head < size:
        size //= 2
    share = max(1, min(limits.units // heads, 16))
    halves = (int(ops[name].format_name == "F16") for name in ("kb", "k"))
    # rows of an invocation at once: whole rounds over the part of a head that every workgroup makes
    rounds = int(params["nope"]) // (size // lanes)
    together = next((n for n in (4, 3, 2) if rounds and rounds % n == 0), 1)
    spec = (size, share, cols, head, lanes, together, *halves)
    return Launch(ops["w"].format_name, spec, (heads * share + 1, 1, 1))


def whole(w: Any) -> Floats:
    """All rows of a weight."""
    found = [m.dequantize() for m in parts(w)]
    return found[0] if len(found) == 1 else np.concatenate(found)


def reference(
    a: Array, g: Matrix, w: Matrix, kb: Matrix, h: Matrix, rope: Array, q: Array, k: Array,
    step: Array, *, cols: int, q_rank: int, rank: int, nope: int, n_rot: int, heads: int,
    eps: float,
) -> None:
    """q[0] (heads, rank + n_rot) and k[pos] from a[0] = compressed query, latent, key."""
    pos = int(step[words.POS])
    x = np.zeros((1, cols), np.float32)
    x[:, :q_rank] = rms_normalise(a[:1, :q_rank], vector(g), eps)
    query = product(x, w)[0].reshape(heads, nope + n_rot)
    q[0] = absorb(query, whole(kb), rope[pos], rank).reshape(-1)
    latent = a[:1, q_rank : q_rank + rank + n_rot]
    k[pos] = cache_rows(latent, vector(h), rope[pos : pos + 1], rank, eps)[0]


def case_operands(
    rng: np.random.Generator, shape: tuple[int, int, int, int], dtype: type, first: int,
    kb: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Operands of the kernels that write queries and cache; a begins with `first` values. k_b is
    as fine as the cache unless `kb` says otherwise."""
    heads, rank, nope, n_rot = shape
    kb = kb or ("F16" if dtype is np.float16 else "F32")
    return {
        "a": rng.standard_normal((1, first + rank + n_rot)).astype(np.float32),
        "kb": random_matrix(rng, kb, heads * rank, nope, nope**-0.5),
        "h": random_matrix(rng, "F32", 1, rank), "rope": case_rope(rng, 5, n_rot),
        "q": np.zeros((1, heads * (rank + n_rot)), np.float32),
        "k": rng.standard_normal((5, rank + n_rot)).astype(dtype), "step": step_words(1, 3),
    }  # fmt: skip


def format_cases(
    rng: np.random.Generator, formats: tuple[str, ...], loose: float
) -> Iterator[Case]:
    """Every format once, some shapes, both types of k_b and of the cache; `loose`: limit, unless
    the cache's rounding allows more."""
    for i, fmt in enumerate(formats):
        shape = SHAPES[i % len(SHAPES)]
        q_rank, cols = (40, 64) if fmt == "F16" else (256, 256)
        dtype = np.float16 if i % 2 else np.float32
        ops = case_operands(rng, shape, dtype, q_rank, ("F32", "F16", "F16", "F32")[i % 4])
        rows = shape[0] * (shape[2] + shape[3])
        ops |= {
            "g": random_matrix(rng, "F32", 1, q_rank),
            "w": random_matrix(rng, fmt, rows, cols, cols**-0.5),
        }  # fmt: skip
        params = {"cols": cols, "q_rank": q_rank, "eps": 1e-5, **sizes(shape)}
        name = f"{fmt} {'x'.join(map(str, shape))} {np.dtype(dtype).name}"
        yield Case(name, ops, params, limit=max(loose, 1e-7 if dtype is np.float16 else 0))


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format once."""
    return format_cases(rng, (*ALL_FORMATS, *FEW_PLAIN), 1e-10)


KERNEL = Kernel("mla_query", launch, reference, cases)
