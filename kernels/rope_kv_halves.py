"""rope_kv_halves: as rope_kv, with value i paired with value i + n_rot / 2 (NeoX style)."""

from __future__ import annotations

from .kernel import Array, Kernel
from .rope_launch import cases, launch, rope_and_store


def reference(
    qkv: Array, rope: Array, k: Array, v: Array, step: Array, *,
    n_head: int, n_head_kv: int, head_dim: int, n_rot: int, ring: int = 0,
) -> None:
    """Values (i, i + n_rot / 2) of a head rotate by angle i of the position.

    Shapes as in rope_kv.
    """
    half = n_rot // 2
    pairs = slice(0, half), slice(half, n_rot)
    rope_and_store(qkv, rope, k, v, step, (n_head, n_head_kv, head_dim), *pairs, ring)


KERNEL = Kernel("rope_kv_halves", launch, reference, cases)
