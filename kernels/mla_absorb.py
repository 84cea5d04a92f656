"""mla_absorb: one token's absorbed queries from the plain ones, and its row of the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .mla import SHAPES, absorb, cache_build, cache_rows, sizes
from .mla_query import case_operands, whole
from .reference import vector


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """PARTS workgroups per head, and one for the cache."""
    heads, head = int(params["heads"]), int(params["nope"]) + int(params["n_rot"])
    size, lanes = limits.workgroup(256), 8
    while lanes * head < size:
        size //= 2
    share = max(1, min(limits.units // heads, 16))
    kb = "KB16" if ops["kb"].format_name == "F16" else "KB32"
    spec = (size, share, 1, head, lanes, 1)
    return Launch(f"{kb}.{cache_build(ops)}", spec, (heads * share + 1, 1, 1))


def reference(
    a: Array, kb: Matrix, h: Matrix, rope: Array, q: Array, k: Array, step: Array, *,
    rank: int, nope: int, n_rot: int, heads: int, eps: float,
) -> None:
    """q[0] (heads, rank + n_rot) and k[pos] from a[0] = queries, latent, key."""
    pos, first = int(step[words.POS]), heads * (nope + n_rot)
    query = a[0, :first].reshape(heads, nope + n_rot)
    q[0] = absorb(query, whole(kb), rope[pos], rank).reshape(-1)
    latent = a[:1, first : first + rank + n_rot]
    k[pos] = cache_rows(latent, vector(h), rope[pos : pos + 1], rank, eps)[0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """All shapes and types of the cache."""
    for shape in SHAPES:
        for dtype in (np.float16, np.float32):
            ops = case_operands(rng, shape, dtype, shape[0] * (shape[2] + shape[3]))
            name = f"{'x'.join(map(str, shape))} {np.dtype(dtype).name}"
            limit = 1e-7 if dtype is np.float16 else 1e-10
            yield Case(name, ops, {"eps": 1e-5, **sizes(shape)}, limit=limit)


KERNEL = Kernel("mla_absorb", launch, reference, cases)
