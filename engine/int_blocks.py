"""Engine formats of int containers: quants and a float32 scale per block, ordered for the kernels.

Blocks of INT4_G32, G64 and G128 hold 16 bytes for every 32 values: byte i has value i in its low
nibble and value 16 + i in the high one, minus 8. INT8 has signed bytes. INT3_G64 has, for every 32
values, two words of low bit pairs and one of high bits: byte j of word h has values 16 h + 4 i + j
at bit 2 i, and the high bits are at bit 4 h + i of byte j; minus 4. A scale per row is repeated for
every block of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float32]
CHUNK = 32
SCALE = 4  # bytes


@dataclass(frozen=True)
class IntBlock:
    """A block of `elems` values: planes (name, bytes) in order, the scale last. Ids are negative:
    no file can name them."""

    name: str
    type_id: int
    elems: int
    planes: tuple[tuple[str, int], ...]

    @property
    def bytes(self) -> int:
        """Bytes of a block."""
        return sum(size for _, size in self.planes)


INT_BLOCKS: dict[str, IntBlock] = {
    b.name: b
    for b in (
        IntBlock("INT8", -1, 64, (("qs", 64), ("d", SCALE))),
        IntBlock("INT4_G32", -2, 32, (("qs", 16), ("d", SCALE))),
        IntBlock("INT4_G64", -3, 64, (("qs", 32), ("d", SCALE))),
        IntBlock("INT4_G128", -4, 128, (("qs", 64), ("d", SCALE))),
        IntBlock("INT3_G64", -5, 64, (("ql", 16), ("qh", 8), ("d", SCALE))),
    )
}


def pack_blocks(block: IntBlock, q: Ints, scales: Floats) -> Bytes:
    """Quants (n, cols) and scales (n, groups) as blocks: uint8 (n, cols / elems * bytes).

    `cols` is a multiple of `elems`; a group is a whole number of blocks (the last may be short).
    """
    n, cols = q.shape
    count = cols // block.elems
    if block.name == "INT8":
        quants = np.ascontiguousarray(q).view(np.uint8)
    elif block.name == "INT3_G64":
        quants = _pack3(q)
    else:
        u = (q + np.int8(8)).view(np.uint8).reshape(n, -1, 2, 16)
        quants = u[:, :, 0] | (u[:, :, 1] << np.uint8(4))
    out = np.empty((n, count, block.bytes), np.uint8)
    out[..., :-SCALE] = quants.reshape(n, count, -1)
    out[..., -SCALE:] = _per_block(scales, count).view(np.uint8).reshape(n, count, SCALE)
    return out.reshape(n, -1)


def _per_block(scales: Floats, count: int) -> Floats:
    """Scales (n, groups) repeated for `count` blocks of a row."""
    each = -(-count // scales.shape[1])
    return np.ascontiguousarray(np.repeat(scales, each, axis=1)[:, :count], np.float32)


def _pack3(q: Ints) -> Bytes:
    """(n, cols) to (n, blocks, 24): 16 bytes of low bit pairs, 8 of high bits."""
    u = (q + np.int8(4)).view(np.uint8).reshape(len(q), -1, 2, 2, 4, 4)  # block, chunk, h, i, j
    two = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    low = np.bitwise_or.reduce((u & 3) << two, axis=4)  # block, chunk, h, j
    place = np.arange(8, dtype=np.uint8).reshape(2, 4, 1)
    high = np.bitwise_or.reduce((u >> 2) << place, axis=(3, 4))  # block, chunk, j
    shape = (*u.shape[:2], -1)
    return np.concatenate([low.reshape(shape), high.reshape(shape)], axis=2)


def unpack_blocks(name: str, raw: Bytes, cols: int) -> Floats:
    """Values (n, cols) of rows of blocks (n, bytes)."""
    block, n = INT_BLOCKS[name], len(raw)
    parts = raw.reshape(n, cols // block.elems, block.bytes)
    scales = np.ascontiguousarray(parts[..., -SCALE:]).view(np.float32)
    quants = parts[..., :-SCALE]
    if name == "INT8":
        q = np.ascontiguousarray(quants).view(np.int8).astype(np.float32)
    elif name == "INT3_G64":
        q = _unpack3(quants)
    else:
        b = quants.reshape(n, -1, 1, 16)
        q = np.concatenate([b & 15, b >> 4], axis=2).astype(np.float32) - np.float32(8)
    out: Floats = (q.reshape(n, -1, block.elems) * scales).reshape(n, cols)
    return out


def _unpack3(quants: Bytes) -> Floats:
    n, count = quants.shape[:2]
    low = quants[..., :16].reshape(n, count, 2, 2, 1, 4)  # block, chunk, h, -, j
    high = quants[..., 16:].reshape(n, count, 2, 1, 1, 4)
    two = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    place = np.arange(8, dtype=np.uint8).reshape(2, 4, 1)
    u = ((low >> two) & 3) | (((high >> place) & 1) << 2)
    return u.astype(np.float32) - np.float32(4)
