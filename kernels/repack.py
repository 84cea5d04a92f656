"""repack: blocks as a model file holds them, to the planes that the kernels read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..engine.blocks import FORMATS
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .matvec_launch import grid_2d


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One invocation per word of the plane."""
    size = limits.workgroup(256)
    count = -(-int(params["plane_bytes"]) // (4 * size))
    return Launch("", (size,), grid_2d(count, limits))


def reference(
    src: Array, dst: Array, *,
    src_byte: int, block_bytes: int, offset: int, size: int, stride: int, plane_bytes: int,
    dst_word: int,
) -> None:
    """Bytes [offset, offset + size) of the blocks that start at src_byte, and zeros up to
    `stride`, end to end into dst.

    src, dst uint32 words; plane_bytes = blocks * stride; a last partial word is filled with zeros.
    """
    count = plane_bytes // stride
    raw = src.view(np.uint8)[src_byte : src_byte + count * block_bytes].reshape(count, block_bytes)
    out = np.zeros(-(-plane_bytes // 4) * 4, np.uint8)
    out[:plane_bytes].reshape(count, stride)[:, :size] = raw[:, offset : offset + size]
    dst[dst_word : dst_word + out.size // 4] = out.view(np.uint32)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every plane of every format, an odd number of blocks, source and target off the start."""
    for fmt in FORMATS.values():
        for blocks in (1, 37):
            for plane in fmt.planes:
                src = rng.integers(0, 1 << 32, blocks * fmt.bytes // 4 + 8, dtype=np.uint32)
                dst = rng.integers(0, 1 << 32, blocks * plane.stride // 4 + 20, dtype=np.uint32)
                params = {
                    "src_byte": 6, "block_bytes": fmt.bytes, "offset": plane.offset,
                    "size": plane.size, "stride": plane.stride,
                    "plane_bytes": blocks * plane.stride, "dst_word": 12,
                }
                yield Case(
                    f"{fmt.name} {plane.name} blocks={blocks}", {"src": src, "dst": dst}, params,
                    exact=True,
                )


KERNEL = Kernel("repack", launch, reference, cases)
