"""Tilings of the kernels of narrow models, then of layers: perf_narrow.py --sweep."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kompute_llm.kernels import narrow

SHORTEST = 64  # positions


def timed(layer: Any, tilings: Sequence[narrow.Tiling], kernels: Sequence[Any]) -> list[float]:
    """Microseconds a layer of the kernels in each tiling."""
    before, sequences = narrow.TILING, []
    for t in tilings:
        narrow.TILING = t
        sequences.append(layer.chain(kernels))
    narrow.TILING = before
    times: list[float] = layer.micros(sequences)
    return times


def sweep(layer: Any, positions: int) -> None:
    """Each kernel by what concerns it, then whole layers by slices; the fastest first."""
    t = narrow.TILING
    product = itertools.product
    attention = [replace(t, attention=n, workgroups=w, unroll=u)
                 for n, w, u in product((128, 256, 512), (18, 36, 45, 72), (2, 4))]  # fmt: skip
    ffn = [replace(t, ffn=n, slice_rows=r) for n, r in product((0, 256, 512), (32, 64, 96, 128))]
    qkv = [replace(t, qkv=n, qkv_lanes=lanes, slice_rows=r)
           for n, lanes, r in product((0, 256, 512), (8, 16, 32), (32, 64))]  # fmt: skip
    whole = [replace(t, slice_rows=r, attention=n) for r, n in product((32, 64, 96), (256, 512))]
    rows: list[tuple[str, list[narrow.Tiling], tuple[Any, ...]]] = [
        ("attention_out_q8", attention, (layer.attend3,)),
        ("layer in three", whole, (layer.qkv3, layer.attend3, layer.ffn3)),
    ]
    if positions == SHORTEST:  # the others do not care
        rows += [("sum_ffn_q8", ffn, (layer.ffn3,)), ("sum_qkv_rope_q8", qkv, (layer.qkv3,))]
    for name, tilings, kernels in rows:
        found = zip(timed(layer, tilings, kernels), tilings, strict=True)
        for micros, tiling in sorted(found, key=lambda pair: pair[0]):
            changed = {n: v for n, v in vars(tiling).items() if v != getattr(t, n)}
            print(f"T={positions} {name} {micros:6.2f} µs {changed or 'as it is'}")
