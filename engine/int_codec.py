"""Decoding and quantizing rows of the int formats in NumPy: the oracle of their kernels.

scale = max(largest magnitude / qmax, 1e-8), quants rounded half to even and clipped. Rows are
independent in every format but fp8, whose scales belong to blocks of 128 x 128.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .blocks import Bytes, Floats
from .int_formats import FP8_BLOCK, IntKind, up

Ints = npt.NDArray[np.int8]
QMAX = {"int8-row": 127, "int4-row": 7, "int4-grouped": 7, "int3-g64": 3, "int2-row": 1}
LEAST_SCALE = np.float32(1e-8)
# 4-bit floats (OCP Microscaling Formats 1.0): sign, two bits of exponent, one of mantissa
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def row_bytes(kind: IntKind, cols: int) -> int:
    """Packed bytes of one row."""
    if kind.name in ("int8-row", "fp8-e4m3-b128"):
        return cols
    if kind.name == "int2-row":
        return up(cols, 4)
    if kind.name == "int3-g64":
        return 24 * up(cols, 64)
    if kind.name == "e8-iq3-lattice":
        return 98 * up(cols, 256)
    return up(cols, 2)


def row_scales(kind: IntKind, cols: int) -> int:
    """Scales of one row of a format that quantize() writes."""
    return up(cols, kind.group) if kind.group else 1


# --- packing ---------------------------------------------------------------------------------


def unpack(kind: IntKind, packed: Bytes, cols: int) -> Ints:
    """Quants (n, cols) of rows of packed bytes (n, row_bytes), their offset taken off."""
    if kind.name == "int8-row":
        return packed.view(np.int8)[:, :cols]
    if kind.name == "int2-row":
        return _crumbs(packed)[:, :cols].astype(np.int8) - np.int8(2)
    if kind.name == "int3-g64":
        groups = packed.reshape(len(packed), -1, 24)
        low = _crumbs(groups[..., :16])
        high = np.unpackbits(groups[..., 16:], axis=-1, bitorder="little")
        values = (low | (high << 2)).reshape(len(packed), -1)
        return values[:, :cols].astype(np.int8) - np.int8(4)
    return nibbles(packed)[:, :cols].astype(np.int8) - np.int8(8)


def nibbles(packed: Bytes) -> Bytes:
    """4-bit values in order, the low one of a byte first: (n, bytes) to (n, 2 bytes)."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)


def _crumbs(packed: Bytes) -> Bytes:
    """2-bit values in order, four to a byte, over the last axis."""
    shifts = np.arange(0, 8, 2, dtype=np.uint8)
    values = (packed[..., None] >> shifts) & np.uint8(3)
    return values.reshape(*packed.shape[:-1], -1)


def pack(kind: IntKind, q: Ints) -> Bytes:
    """The inverse of `unpack`; what is added to fill the last byte or group decodes to 0."""
    if kind.name == "int8-row":
        return np.ascontiguousarray(q).view(np.uint8)
    offset, multiple = {"int2-row": (2, 4), "int3-g64": (4, 64)}.get(kind.name, (8, 2))
    fill = -q.shape[1] % multiple
    u = np.pad(q, ((0, 0), (0, fill))).astype(np.int16) + offset
    values = u.astype(np.uint8)
    if fill and kind.name != "int3-g64":
        values[:, -fill:] = 0  # unused bits of the last byte stay empty
    if kind.name == "int2-row":
        return _join(values, 2)
    if kind.name == "int3-g64":
        groups: Bytes = values.reshape(len(q), -1, 64)
        high = np.packbits(groups >> 2, axis=-1, bitorder="little")
        both = np.concatenate([_join(groups & np.uint8(3), 2), high], axis=-1)
        return both.reshape(len(q), -1)
    return _join(values, 4)


def _join(values: Bytes, bits: int) -> Bytes:
    """Values of `bits` bits to bytes over the last axis, the first in the low bits."""
    per = 8 // bits
    parts = values.reshape(*values.shape[:-1], -1, per)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    out: Bytes = np.bitwise_or.reduce(parts << shifts, axis=-1)
    return out


# --- quantizing ------------------------------------------------------------------------------


def quantize(kind: IntKind, x: Floats) -> tuple[Bytes, Floats]:
    """Rows (n, cols) float32 to packed bytes (n, row_bytes) and scales (n, groups) float32."""
    n, cols = x.shape
    group, qmax = kind.group or cols, QMAX[kind.name]
    count = up(cols, group)
    padded = x if cols == count * group else np.pad(x, ((0, 0), (0, count * group - cols)))
    groups = padded.reshape(n, count, group)
    most = np.abs(groups).max(axis=2)
    scales = np.maximum(most / np.float32(qmax), LEAST_SCALE).astype(np.float32)
    q = np.clip(np.rint(groups / scales[..., None]), -qmax - 1, qmax).astype(np.int8)
    return pack(kind, q.reshape(n, -1)[:, :cols]), scales


# --- decoding --------------------------------------------------------------------------------


def dequantize(kind: IntKind, packed: Bytes, scales: Floats, cols: int) -> Floats:
    """Values (n, cols) of rows of packed bytes (n, row_bytes).

    `scales`: (n, groups), (n, 2 * groups) with zero points for int4-grouped-asym; for fp8 the
    blocks' scales of these rows (n, ceil(cols / 128)); unused by e8-iq3-lattice.
    """
    if kind.name == "e8-iq3-lattice":
        from .int_lattice import decode_rows

        return decode_rows(packed, cols)
    if kind.name == "fp8-e4m3-b128":
        return e4m3(packed)[:, :cols] * _spread(scales, FP8_BLOCK, cols)
    if kind.name == "mxfp4":
        return E2M1[nibbles(packed)[:, :cols]] * _spread(scales, kind.group, cols)
    if kind.name == "int4-grouped-asym":
        pairs = scales.reshape(len(scales), -1, 2)
        q = nibbles(packed)[:, :cols].astype(np.float32)
        zero = _spread(pairs[..., 1], kind.group, cols)
        return (q - zero) * _spread(pairs[..., 0], kind.group, cols)
    q8 = unpack(kind, packed, cols).astype(np.float32)
    return q8 * _spread(scales, kind.group or cols, cols)


def _spread(scales: Floats, group: int, cols: int) -> Floats:
    """Scales per group (n, groups) to scales per value (n, cols)."""
    out: Floats = np.repeat(scales, group, axis=1)[:, :cols]
    return out


def _e4m3_table() -> Floats:
    """Values of the 256 codes of float8_e4m3fn: bias 7, 448 the largest, S.1111.111 is NaN."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, (code & 7).astype(np.float64)
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7.0)
    value = np.where(exponent == 0, mantissa / 8 * 2.0**-6, normal)
    value[(code & 127) == 127] = np.nan
    return np.where(code & 128, -value, value).astype(np.float32)


_E4M3 = _e4m3_table()


def e4m3(codes: Bytes) -> Floats:
    """8-bit floats to float32."""
    out: Floats = _E4M3[codes]
    return out


def e8m0(codes: Bytes) -> Floats:
    """Power-of-two scales 2^(code - 127); 255 is NaN (OCP Microscaling Formats 1.0)."""
    out: Any = np.ldexp(np.float64(1.0), codes.astype(np.int32) - 127)
    return np.where(codes == 255, np.nan, out).astype(np.float32)


def bf16(raw: Bytes) -> Floats:
    """bfloat16 bytes to float32 (n,)."""
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def to_bf16(x: Floats) -> npt.NDArray[np.uint16]:
    """float32 to bfloat16 bits, rounded half to even; NaN stays NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 64, rounded).astype(np.uint16)
