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
Words = npt.NDArray[np.uint32]
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
    n = len(q)
    if block.name == "INT8":
        quants = np.ascontiguousarray(q).view(np.uint8)
    elif block.name == "INT3_G64":
        quants = _pack3(q)
    else:
        u = (q + np.int8(8)).view(np.uint8).reshape(n, -1, 2, 16)
        quants = u[:, :, 0] | (u[:, :, 1] << np.uint8(4))
    return _with_scales(block, quants.reshape(n, -1), scales)


def pack_stored(block: IntBlock, packed: Bytes, scales: Floats) -> Bytes:
    """As pack_blocks, from rows (n, bytes) as a container stores them in the block's bits: whole
    words are permuted, no value is looked at."""
    if block.name == "INT8":
        quants = packed
    elif block.name == "INT3_G64":
        quants = _reorder3(packed)
    else:
        quants = _reorder4(packed)
    return _with_scales(block, quants, scales)


def _reorder4(packed: Bytes) -> Bytes:
    """Values 2 m and 2 m + 1 in byte m, to values m and 16 + m in byte m of every 16."""
    pairs = packed.reshape(len(packed), -1, 2, 8)
    a, b = pairs[:, :, 0], pairs[:, :, 1]
    out = np.empty((*a.shape, 2), np.uint8)
    out[..., 0] = (a & 15) | (b << np.uint8(4))
    out[..., 1] = (a >> 4) | (b & 0xF0)
    return out.reshape(packed.shape)


def _reorder3(packed: Bytes) -> Bytes:
    """Groups of 64: bit pairs of values 4 b … 4 b + 3 in byte b, high bits in order, to the order
    of INT3_G64. In every word the 4 x 4 pairs, and the 8 x 4 high bits, are transposed."""
    words = np.ascontiguousarray(packed).view("<u4").reshape(-1, 6)
    low, high = words[:, :4], words[:, 4:]
    out = np.empty_like(words)
    six, twelve = np.uint32(6), np.uint32(12)
    t = (low ^ (low >> six)) & np.uint32(0x00CC00CC)
    low = low ^ t ^ (t << six)
    t = (low ^ (low >> twelve)) & np.uint32(0x0000F0F0)
    out[:, :4] = low ^ t ^ (t << twelve)
    out[:, 4:] = 0
    for j in range(4):
        x: Words = (high >> np.uint32(j)) & np.uint32(0x11111111)  # every fourth bit, …
        x = (x | (x >> np.uint32(3))) & np.uint32(0x03030303)  # … drawn together
        x = (x | (x >> np.uint32(6))) & np.uint32(0x000F000F)
        out[:, 4:] |= ((x | (x >> np.uint32(12))) & np.uint32(0xFF)) << np.uint32(8 * j)
    return out.view(np.uint8).reshape(packed.shape)


def _with_scales(block: IntBlock, quants: Bytes, scales: Floats) -> Bytes:
    n = len(quants)
    count = quants.shape[1] // (block.bytes - SCALE)
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
