"""attention_short_q8: decode attention over float16 caches, one workgroup a head, nothing split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from . import attention, attention_q8, q8
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits

STREAMS = 32  # groups of lanes in a workgroup; this and `unroll` by a sweep on an H200


def lanes(dim: int, subgroup: int) -> int:
    """Lanes that share a position: a power of two, one for each vector of 8 values if it can be."""
    n = 1
    while n < min(dim // 8, subgroup):
        n *= 2
    return n


def size(dim: int, limits: Limits) -> int:
    """Invocations of a workgroup whose states fit into shared memory, or 0."""
    subgroup = limits.subgroup_size
    wanted = limits.workgroup(min(STREAMS * lanes(dim, subgroup), 512), subgroup)
    while wanted >= subgroup:
        streams = wanted // lanes(dim, subgroup)
        if 4 * (streams * (dim + 2) + wanted) <= limits.shared_bytes:
            return wanted
        wanted //= 2
    return 0


def suits(dim: int, k: str, v: str, limits: Limits) -> bool:
    """Whether heads of this size over caches of these types can take this kernel."""
    return k == v == "F16" and dim % q8.GROUP == 0 and q8.needs(limits) and size(dim, limits) > 0


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """A workgroup per query head."""
    dim, subgroup = int(params["head_dim"]), limits.subgroup_size
    invocations, shared_by = size(dim, limits), lanes(dim, subgroup)
    pieces = -(-dim // 8 // shared_by)
    unroll = 1 if pieces > 2 else 4 if shared_by <= 8 else 2
    spec = (invocations, dim, shared_by, subgroup, unroll, int(params.get("ring", 0)))
    return Launch("", spec, (int(params["n_head"]), 1, 1), subgroup)


def reference(
    qkv: Array, k: Array, v: Array, yq: Array, ys: Array, step: Array, *, n_head: int,
    n_head_kv: int, head_dim: int, scale: float, window: int, softcap: float, ring: int = 0,
    splits: int = 1,
) -> None:
    """yq, ys = q8(softmax(q k^T scale) v); shapes as in attention_q8."""
    scratch = np.zeros((n_head, 1, head_dim + 2), np.float32), np.zeros(n_head, np.uint32)
    attention_q8.reference(
        qkv, k, v, *scratch, yq, ys, step, n_head=n_head, n_head_kv=n_head_kv, head_dim=head_dim,
        splits=1, scale=scale, window=window, softcap=softcap, ring=ring,
    )


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of attention_q8 over float16 caches, and contexts around the ends of a pass."""
    shapes = [(("F16", "F16"), (pos, 4, 2, 128, 1, 0)) for pos in (0, 1, 127, 128, 511)]
    more = attention_q8.adapted(attention.cases_of(rng, shapes))
    for case in (*attention_q8.cases(rng), *more):
        if not case.name.startswith("F16/F16 "):
            continue
        ops = {n: v for n, v in case.operands.items() if n not in ("part", "arrived")}
        yield replace(case, operands=ops, only={})


KERNEL = Kernel("attention_short_q8", launch, reference, cases, needs=q8.needs)
