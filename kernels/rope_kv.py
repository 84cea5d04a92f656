"""rope_kv: rotary position embedding of neighbouring pairs, and the write into the KV cache."""

from __future__ import annotations

from .kernel import Array, Kernel
from .rope_launch import cases, launch, rope_and_store


def reference(
    qkv: Array, rope: Array, k: Array, v: Array, step: Array, *,
    n_head: int, n_head_kv: int, head_dim: int, n_rot: int, ring: int = 0,
) -> None:
    """Values (2i, 2i+1) of a head rotate by angle i of the position (Su et al. 2021, eq. 34).

    qkv (batch, (n_head + 2 n_head_kv) head_dim); rope (n_ctx, n_rot / 2, 2) cos and sin;
    k, v (n_ctx or ring, n_head_kv head_dim).
    """
    pairs = slice(0, n_rot, 2), slice(1, n_rot, 2)
    rope_and_store(qkv, rope, k, v, step, (n_head, n_head_kv, head_dim), *pairs, ring)


KERNEL = Kernel("rope_kv", launch, reference, cases)
