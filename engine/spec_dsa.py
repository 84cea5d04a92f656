"""The keys of sparse attention (DeepSeek V3.2, GLM-5), read into a DsaSpec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .keys import Keys

if TYPE_CHECKING:
    from .shapes import Shapes
    from .spec_model import LayerSpec, ModelSpec

LONG_CONTEXT = 1 << 20  # from here on, models share a choice between layers (GLM-5.2)


@dataclass(frozen=True)
class DsaSpec:
    """An indexer of `heads` heads of `dim` values chooses `most` positions. `full`: the layers that
    choose; the others take the choice of the last one before them. `halves`: its pairs rotate as
    (i, i + n_rot / 2)."""

    heads: int
    dim: int
    most: int
    full: tuple[bool, ...]
    halves: bool = False


def dsa_spec(k: Keys, n_layer: int, n_rot: int, *, shares: bool, halves: bool) -> DsaSpec:
    """The indexer; `shares`: whether layers of the family may share a choice."""
    heads = k.integer("attention.indexer.head_count", 1, 1024)
    dim = k.integer("attention.indexer.key_length", n_rot, 512)
    if dim % 32:
        raise k.fail("attention.indexer.key_length", f"is {dim}, expected a multiple of 32")
    most = k.integer("attention.indexer.top_k", 1, 1 << 20)
    types = k.get("attention.indexer.types") if shares else None
    if types is not None:
        values = np.asarray(types).reshape(-1)
        if len(values) < n_layer:
            problem = f"has {len(values)} values for {n_layer} layers"
            raise k.fail("attention.indexer.types", problem)
        full = tuple(bool(v) for v in values[:n_layer])
    elif shares and k.integer("context_length", 1, (1 << 31) - 1) >= LONG_CONTEXT:
        full = tuple(i < 2 or (i - 2) % 4 == 0 for i in range(n_layer))
    else:
        full = (True,) * n_layer
    if not full[0]:
        raise k.fail("attention.indexer.types", "says that layer 0 takes the choice of an earlier "
                                                "layer")  # fmt: skip
    return DsaSpec(heads, dim, most, full, halves)


def indexer_shapes(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """The tensors of a layer that chooses positions."""
    d, m = s.dsa, s.mla
    assert d is not None and m is not None
    if not d.full[layer.cache]:
        return {}
    return {
        "indexer.attn_q_b.weight": (d.heads * d.dim, m.q_rank),
        "indexer.attn_k.weight": (d.dim, s.n_embd), "indexer.proj.weight": (d.heads, s.n_embd),
        "indexer.k_norm.weight": (d.dim,), "indexer.k_norm.bias": (d.dim,),
    }  # fmt: skip
