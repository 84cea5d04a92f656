"""Weight formats: decoding against values written out by hand, and the device layout."""

from __future__ import annotations

import numpy as np
import pytest
from fixtures import encode
from kquants import QUANTIZERS

from kompute_llm.engine.blocks import BY_TYPE, FORMATS, Format, Matrix, pack_planes
from kompute_llm.engine.grids import grid_words


def half(x: float) -> bytes:
    return np.float16(x).tobytes()


# One block of each format with few non-zero parts: bytes, and value by index (others: `rest`).
HALF32 = np.float32(0.5).tobytes()
BY_HAND: dict[str, tuple[bytes, dict[int, float], float]] = {
    "F32": (np.float32(1.5).tobytes(), {0: 1.5}, 0),
    "F16": (half(-0.25), {0: -0.25}, 0),
    "BF16": (np.float32(3.0).tobytes()[2:], {0: 3.0}, 0),
    "Q4_0": (half(2) + bytes([0xF9] + [0x88] * 15), {0: 2.0, 16: 14.0}, 0),
    "Q4_1": (half(2) + half(1) + bytes([0xF9] + [0] * 15), {0: 19.0, 16: 31.0}, 1.0),
    "Q5_0": (half(2) + bytes([1, 0, 1, 0]) + bytes([0x1F] + [0] * 15), {0: 30.0, 16: 2.0}, -32.0),
    "Q5_1": (half(2) + half(1) + bytes([1, 0, 0, 0, 0x1F] + [0] * 15), {0: 63.0, 16: 3.0}, 1.0),
    "Q8_0": (half(0.5) + bytes([0x80, 127] + [0] * 30), {0: -64.0, 1: 63.5}, 0),
    # scale 3 and minimum 2 of group 0, d 0.5 and dmin 0.25; quants 5 and 9 of groups 0 and 1
    "Q4_K": (half(0.5) + half(0.25) + bytes([3, 0, 0, 0, 2] + [0] * 7) + bytes([0x95] + [0] * 127),
             {0: 7.0, 32: 0.0} | {i: -0.5 for i in range(1, 32)}, 0),
    "Q5_K": (half(0.5) + half(0.25) + bytes([3, 0, 0, 0, 2] + [0] * 7) + bytes([1] + [0] * 31)
             + bytes([0x95] + [0] * 127),
             {0: 31.0, 32: 0.0} | {i: -0.5 for i in range(1, 32)}, 0),
    # scale 2 of group 0 only: value 0 is (0x15 - 32) * 2 * 0.5, its 15 neighbours (0 - 32) * 1
    "Q6_K": (bytes([5] + [0] * 127) + bytes([1] + [0] * 63) + bytes([2] + [0] * 15) + half(0.5),
             {0: -11.0} | {i: -32.0 for i in range(1, 16)}, 0),
    # scale 3 and minimum 2 of group 0
    "Q2_K": (bytes([0x23] + [0] * 15) + bytes([1] + [0] * 63) + half(0.5) + half(0.25),
             {0: 1.0} | {i: -0.5 for i in range(1, 16)}, 0),
    # scale 33 - 32 of group 0, -32 of the others; third bit of value 0
    "Q3_K": (bytes([1] + [0] * 31) + bytes([2] + [0] * 63) + bytes([1] + [0] * 7 + [2, 0, 0, 0])
             + half(0.5), {0: 1.0} | {i: -2.0 for i in range(1, 16)}, 64.0),
    "IQ4_NL": (half(0.5) + bytes([0xF0] + [0x88] * 15), {0: -63.5, 16: 56.5}, 0.5),
    # scale 33 - 32 of group 0, -32 of the others
    "IQ4_XS": (half(0.5) + bytes([2, 0, 1, 0, 0, 0, 0xF0] + [0x88] * 127),
               {i: 0.5 for i in range(32)} | {0: -63.5, 16: 56.5}, -16.0),
    "MXFP4": (bytes([129, 0xF7] + [0] * 15), {0: 24.0, 16: -24.0}, 0),
    "NVFP4": (bytes([0x38, 0, 0, 0, 0xF7] + [0] * 31), {0: 6.0, 8: -6.0}, 0),
    "TQ1_0": (bytes([255] + [0] * 51) + half(0.5), {i: 0.5 for i in range(0, 160, 32)}, -0.5),
    "TQ2_0": (bytes([0x56] + [0x55] * 63) + half(0.5), {0: 0.5}, 0),
    # index 0 is 8 times -1 (IQ1), 8 (IQ2), 4 times 4 (IQ3_XXS) or 1 (IQ3_S)
    "IQ1_S": (half(8) + bytes([0] * 33 + [0x80] + [0] * 14), {i: -9.0 for i in range(32)}, -7.0),
    "IQ1_M": (bytes([0] * 32 + [8] + [0] * 20 + [0x80, 0, 0x40]), {i: -9.0 for i in range(8)},
              -7.0),
    "IQ2_XXS": (half(1) + bytes([0, 0, 0, 0, 1] + [0] * 59), {0: -1.0, 7: -1.0}, 1.0),
    "IQ2_XS": (half(1) + bytes([0, 2] + [0] * 70), {0: -1.0, 7: -1.0}, 1.0),
    "IQ2_S": (half(1) + bytes([0] * 32 + [1] + [0] * 47), {0: -1.0}, 1.0),
    "IQ3_XXS": (half(1) + bytes([0] * 64 + [1] + [0] * 31), {0: -1.0, 7: -1.0}, 1.0),
    "IQ3_S": (half(1) + bytes([0] * 72 + [1] + [0] * 35), {0: -1.0}, 1.0),
    # float32 scale 0.5 at the end; three bits: low pairs, then high bits
    "INT8": (bytes([254] + [0] * 63) + HALF32, {0: -1.0}, 0),
    "INT4_G32": (bytes([0xF0] + [0x88] * 15) + HALF32, {0: -4.0, 16: 3.5}, 0),
    "INT4_G64": (bytes([0xF0] + [0x88] * 31) + HALF32, {0: -4.0, 16: 3.5}, 0),
    "INT4_G128": (bytes([0xF0] + [0x88] * 63) + HALF32, {0: -4.0, 16: 3.5}, 0),
    "INT3_G64": (bytes([3] + [0] * 15 + [0xFF] * 8) + HALF32, {0: 1.5}, 0),
}  # fmt: skip


ENCODED = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", *QUANTIZERS, "MXFP4")


@pytest.mark.parametrize("name", FORMATS)
def test_decoding_by_hand(name: str) -> None:
    raw, values, rest = BY_HAND[name]
    fmt = FORMATS[name]
    assert len(raw) == fmt.bytes
    want = np.full(fmt.elems, rest, np.float32)
    for i, value in values.items():
        want[i] = value
    m = Matrix.of(fmt, np.frombuffer(raw * 6, np.uint8), 2 * fmt.elems)
    assert (m.rows, m.cols) == (3, 2 * fmt.elems)
    got = m.dequantize()
    assert got.dtype == np.float32 and np.array_equal(got, np.tile(want, (3, 2)))


@pytest.mark.parametrize("name", ENCODED)
def test_rows_decode_alone(name: str) -> None:
    x = np.random.default_rng(3).standard_normal((5, 512), np.float32)
    fmt = FORMATS[name]
    m = Matrix.of(fmt, np.frombuffer(encode(x, name), np.uint8), 512)
    whole = m.dequantize()
    assert whole.shape == (5, 512)
    assert np.array_equal(m.dequantize(1, 3), whole[1:3])
    assert m.dequantize(5).shape == (0, 512)
    limits = {"F32": 0, "F16": 1e-3, "BF16": 8e-3, "Q8_0": 2e-2, "Q6_K": 0.12, "MXFP4": 1.0}
    limit = limits.get(name, 0.5)
    assert np.abs(whole - x).max() <= limit


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_planes_hold_every_byte(name: str, rows: int) -> None:
    fmt = FORMATS[name]
    blocks = rows * (1 if fmt.elems > 1 else 7)
    raw = np.random.default_rng(rows).integers(0, 256, blocks * fmt.bytes, np.uint8)
    m = Matrix.of(fmt, raw, fmt.elems * blocks // rows)
    words = fmt.plane_words(blocks)
    packed = pack_planes(m)
    assert len(packed) == sum(words) and all(w % 4 == 0 for w in words)
    start = 0
    for plane, n in zip(fmt.planes, words, strict=False):
        part = packed[start : start + n].view(np.uint8)
        size = blocks * plane.stride
        want = raw.reshape(blocks, -1)[:, plane.offset : plane.offset + plane.size]
        got = part[:size].reshape(blocks, -1)
        assert np.array_equal(got[:, : plane.size], want) and not got[:, plane.size :].any()
        assert not part[size:].any()
        start += n
    assert np.array_equal(packed[start:], grid_words(name) if fmt.grid else [])


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
def test_format_table(fmt: Format) -> None:
    covered = sorted(i for p in fmt.planes for i in range(p.offset, p.offset + p.size))
    assert covered == list(range(fmt.bytes)) and len(fmt.planes) + fmt.grid <= 4
    assert all(p.stride % 4 == 0 or p.pad == 0 for p in fmt.planes)
    assert BY_TYPE[fmt.type_id] is fmt and fmt.row_bytes(4 * fmt.elems) == 4 * fmt.bytes
