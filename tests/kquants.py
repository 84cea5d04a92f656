"""Plain quantizers of the K formats for tests; gguf-py only decodes them.

Each takes float32 (blocks, 256) and gives uint8 (blocks, bytes). Layouts: block_q4_K, block_q5_K
and block_q6_K of ggml-common.h. Scales are found by range, which is coarse but enough here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[Any]  # uint8


def _half(x: Floats) -> tuple[Floats, Bytes]:
    """Rounded to float16: the values, and their bytes (blocks, 2)."""
    h = x.astype(np.float16)
    return h.astype(np.float32), h.view(np.uint8).reshape(len(x), 2)


def _ratio(a: Floats, b: Floats) -> Floats:
    return np.divide(a, b, out=np.zeros(np.broadcast(a, b).shape, np.float32), where=b != 0)


def q6_k(x: Floats) -> Bytes:
    """ql 128, qh 64, 16 int8 scales, float16 d."""
    groups = x.reshape(-1, 16, 16)
    wanted = np.abs(groups).max(2) / 31
    d, d_bytes = _half(wanted.max(1) / 127)
    sc = np.clip(np.rint(_ratio(wanted, d[:, None])), 0, 127)
    q = np.clip(np.rint(_ratio(groups, (sc * d[:, None])[..., None])), -32, 31) + 32
    runs: Bytes = q.astype(np.uint8).reshape(-1, 2, 4, 32)  # halves of four runs of 32
    low = np.stack(
        [runs[:, :, 0] & 15 | runs[:, :, 2] << 4, runs[:, :, 1] & 15 | runs[:, :, 3] << 4], 2
    )
    high: Bytes = np.bitwise_or.reduce([(runs[:, :, i] >> 4) << (2 * i) for i in range(4)])
    n = len(x)
    parts = [low.reshape(n, 128), high.reshape(n, 64), sc.astype(np.uint8), d_bytes]
    return np.concatenate(parts, 1).astype(np.uint8)


def _scaled_min(x: Floats, top: int) -> tuple[Bytes, Bytes]:
    """Header (d, dmin, packed 6-bit scales and minima; 16 bytes) and quants (blocks, 8, 32)."""
    groups = x.reshape(-1, 8, 32)
    low = np.maximum(-groups.min(2), 0)
    step = (groups.max(2) + low).clip(0) / top
    d, d_bytes = _half(step.max(1) / 63)
    dmin, dmin_bytes = _half(low.max(1) / 63)
    sc = np.clip(np.rint(_ratio(step, d[:, None])), 0, 63).astype(np.uint8)
    mn = np.clip(np.rint(_ratio(low, dmin[:, None])), 0, 63).astype(np.uint8)
    scale, offset = (sc * d[:, None])[..., None], (mn * dmin[:, None])[..., None]
    q = np.clip(np.rint(_ratio(groups + offset, scale)), 0, top).astype(np.uint8)
    packed = [sc[:, :4] | sc[:, 4:] >> 4 << 6, mn[:, :4] | mn[:, 4:] >> 4 << 6]
    packed.append(sc[:, 4:] & 15 | (mn[:, 4:] & 15) << 4)
    return np.concatenate([d_bytes, dmin_bytes, *packed], 1).astype(np.uint8), q


def _nibbles(q: Bytes) -> Bytes:
    """(blocks, 8, 32) -> 128 bytes: group 2i in the low nibbles, group 2i + 1 in the high ones."""
    packed: Bytes = (q[:, 0::2] & 15 | (q[:, 1::2] & 15) << 4).reshape(len(q), 128)
    return packed


def q4_k(x: Floats) -> Bytes:
    """Header 16, quants 128."""
    head, q = _scaled_min(x, 15)
    return np.concatenate([head, _nibbles(q)], 1)


def q5_k(x: Floats) -> Bytes:
    """Header 16, high bits 32 (bit g of byte i: value i of group g), quants 128."""
    head, q = _scaled_min(x, 31)
    high: Bytes = np.zeros((len(q), 32), np.uint8)
    for g in range(8):
        high |= (q[:, g] >> 4) << g
    return np.concatenate([head, high, _nibbles(q)], 1)


QUANTIZERS = {"Q4_K": q4_k, "Q5_K": q5_k, "Q6_K": q6_k}
