"""Formats of int containers: byte arithmetic, codecs against hand-made values, rotations."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize

from kompute_llm.engine import int_codec, int_lattice
from kompute_llm.engine.int_formats import NAMES, FormatProblem, IntKind, Sizes, infer

GROUPED = {gs: IntKind("int4-grouped", "4", gs) for gs in (32, 64, 128)}
WRITTEN = [NAMES["int8-row"], NAMES["int4-row"], NAMES["int2-row"], NAMES["int3-g64"],
           *GROUPED.values()]  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "number", "group"),
    [
        (Sizes(6, 1000, 6000, 6), "1", 0),
        (Sizes(6, 1001, 6 * 501, 6), "2", 0),
        (Sizes(6, 1001, 6 * 251, 6), "3", 0),
        (Sizes(6, 1000, 3000, 6 * 32), "4", 32),
        (Sizes(6, 1000, 3000, 6 * 16), "4", 64),
        (Sizes(6, 1000, 3000, 6 * 8), "4", 128),
        (Sizes(6, 1000, 6 * 16 * 24, 6 * 16), "5", 64),
        (Sizes(6, 1024, 3072, 6 * 8 * 2, "F32", (6, 8, 2)), "6a", 128),
        (Sizes(6, 1024, 6 * 4 * 98, 1), "6b", 256),
        (Sizes(6, 1024, 3072, 6 * 32, "U8"), "7", 32),
        (Sizes(300, 1024, 307200, 24), "8", 0),
        (Sizes(300, 1024, 307200, 24, "F8_E8M0"), "8", 0),
    ],
)
def test_byte_arithmetic_names_the_format(sizes: Sizes, number: str, group: int) -> None:
    kind = infer(sizes)
    assert (kind.number, kind.group) == (number, group)


def test_a_group_as_long_as_the_row_is_one_scale_per_row() -> None:
    assert infer(Sizes(4, 64, 128, 4)).name == "int4-row"
    assert infer(Sizes(4, 64, 128, 4), "int4-grouped").name == "int4-row"


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(4, 96, 192, 8),  # int4-g64 (48 bytes a row) and int3-g64 (2 groups of 24)
        Sizes(1, 128, 128, 1),  # int8 and fp8: one row, one block
        Sizes(1, 48, 24, 1),  # int4 and int3
    ],
)
def test_what_two_formats_fit_is_refused_unless_stamped(sizes: Sizes) -> None:
    with pytest.raises(FormatProblem, match=r"ambiguous: .*\*.*= \d+ bytes.* and "):
        infer(sizes)
    names = {"int4-grouped", "int3-g64", "int8-row", "fp8-e4m3-b128", "int4-row"}
    fitting = 0
    for name in names:
        with contextlib.suppress(FormatProblem):
            fitting += infer(sizes, name).name == name
    assert fitting == 2


def test_impossible_sizes_show_the_arithmetic() -> None:
    with pytest.raises(FormatProblem) as e:
        infer(Sizes(6, 1000, 3001, 6))
    assert "O = 6 rows of I = 1000 inputs have 3001 bytes and 6 F32 scales" in str(e.value)
    assert "int4 (O*ceil(I/2) = 3000 bytes, O = 6 scales)" in str(e.value)


def test_a_stamp_that_the_bytes_contradict_is_refused() -> None:
    with pytest.raises(FormatProblem, match="is stamped int3-g64, but O = 6"):
        infer(Sizes(6, 1000, 6000, 6), "int3-g64")
    with pytest.raises(FormatProblem, match="names no known format"):
        infer(Sizes(6, 1000, 6000, 6), "int5")


# --- codecs ----------------------------------------------------------------------------------


def test_packing_is_bit_by_bit_as_documented() -> None:
    four = int_codec.pack(NAMES["int4-row"], np.array([[-8, 7, 1]], np.int8))
    assert four.tolist() == [[0xF0, 0x09]]  # the low nibble is the even index
    two = int_codec.pack(NAMES["int2-row"], np.array([[-2, -1, 0, 1, 1]], np.int8))
    assert two.tolist() == [[0b11100100, 0b11]]
    q = np.zeros((1, 64), np.int8)
    q[0, :4], q[0, 8] = (-4, -3, 3, 0), 3
    three = int_codec.pack(NAMES["int3-g64"], q)
    assert three.shape == (1, 24)
    assert three[0, 0] == 0b00110100  # low bits of 0, 1, 7, 4
    assert three[0, 16] == 0b11111100 and three[0, 17] == 0xFF  # high bits of values 0-7, 8-15


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda k: k.label)
@pytest.mark.parametrize("cols", [64, 96, 130, 257])
def test_every_quant_survives_packing(kind: IntKind, cols: int) -> None:
    rng = np.random.default_rng(cols)
    top = int_codec.QMAX[kind.name]
    q = rng.integers(-top - 1, top + 1, (5, cols)).astype(np.int8)
    packed = int_codec.pack(kind, q)
    assert packed.shape == (5, int_codec.row_bytes(kind, cols))
    assert np.array_equal(int_codec.unpack(kind, packed, cols), q)


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda k: k.label)
@pytest.mark.parametrize("cols", [64, 100, 320])
def test_values_are_off_by_half_a_scale_at_most(kind: IntKind, cols: int) -> None:
    rng = np.random.default_rng(3)
    x: Any = rng.standard_normal((7, cols)).astype(np.float32)
    x[3] = 0
    packed, scales = int_codec.quantize(kind, x)
    group = kind.group or cols
    each = np.repeat(scales, group, axis=1)[:, :cols]
    error = np.abs(int_codec.dequantize(kind, packed, scales, cols) - x)
    assert (error <= each * (0.5 + 1e-5)).all()
    assert scales.dtype == np.float32 and (scales[3] == np.float32(1e-8)).all()


def test_halves_are_rounded_to_even() -> None:
    x = np.array([[7, 0.5, 1.5, -0.5, -2.5, 3.5]], np.float32)  # scale 1
    packed, scales = int_codec.quantize(NAMES["int4-row"], x)
    assert scales.tolist() == [[1.0]]
    assert int_codec.unpack(NAMES["int4-row"], packed, 6).tolist() == [[7, 0, 2, 0, -2, 4]]


def test_asymmetric_groups_have_scale_and_zero_point() -> None:
    kind = IntKind("int4-grouped-asym", "6a", 32)
    packed = np.full((1, 32), 0x5F, np.uint8)  # 15 and 5 in turn
    pairs = np.array([[0.5, 5.0, 2.0, 15.0]], np.float32)
    out = int_codec.dequantize(kind, packed, pairs, 64)
    assert out[0, :4].tolist() == [5.0, 0.0, 5.0, 0.0]
    assert out[0, 32:36].tolist() == [0.0, -20.0, 0.0, -20.0]


def test_small_floats() -> None:
    codes = np.array([0x38, 0xB8, 0x7E, 0x01, 0x00, 0x7F], np.uint8)
    out = int_codec.e4m3(codes)
    assert out[:5].tolist() == [1.0, -1.0, 448.0, 2.0**-9, 0.0] and np.isnan(out[5])
    assert int_codec.e8m0(np.array([127, 130, 0], np.uint8)).tolist() == [1.0, 8.0, 2.0**-127]
    mx = int_codec.dequantize(NAMES["mxfp4"], np.full((1, 16), 0x9F, np.uint8),
                              np.array([[2.0]], np.float32), 32)  # fmt: skip
    assert mx[0, :2].tolist() == [-12.0, -1.0]


def test_fp8_blocks_share_a_scale() -> None:
    packed = np.full((2, 200), 0x38, np.uint8)
    scales = np.array([[2.0, 3.0], [4.0, 5.0]], np.float32)
    out = int_codec.dequantize(NAMES["fp8-e4m3-b128"], packed, scales, 200)
    assert out[:, [0, 127, 128, 199]].tolist() == [[2, 2, 3, 3], [4, 4, 5, 5]]


# --- lattice ---------------------------------------------------------------------------------


def test_lattice_blocks_are_iq3_xxs_with_the_scale_last() -> None:
    rng = np.random.default_rng(5)
    packed = rng.integers(0, 256, (3, 2 * 98), dtype=np.uint8).reshape(3, 2, 98)
    packed[..., 96:] = np.array([0.25], np.float16).view(np.uint8)
    theirs = np.concatenate([packed[..., 96:], packed[..., :96]], axis=-1).reshape(3, -1)
    expected = gguf_dequantize(theirs, GGMLQuantizationType.IQ3_XXS) / 2
    assert np.array_equal(int_lattice.decode_blocks(packed.reshape(3, -1)), expected)


@pytest.mark.parametrize(
    ("cols", "tiles"), [(1536, [512, 1024]), (6144, [2048, 4096]), (96, [32, 64])]
)
def test_rotations_tile_the_row_and_are_orthogonal(cols: int, tiles: list[int]) -> None:
    assert int_lattice.spans(cols) == tiles
    x: Any = np.random.default_rng(1).standard_normal((3, cols)).astype(np.float32)
    turned = int_lattice.rotate(x)
    assert np.allclose((turned**2).sum(1), (x**2).sum(1), rtol=1e-5)
    assert np.allclose(int_lattice.rotate(turned, inverse=True), x, atol=1e-5)


def test_the_first_signs_follow_xorshift() -> None:
    # state 417 + 8 = 425: xorshift64* by hand with Python's integers
    s = 425
    s ^= s >> 12
    s = (s ^ (s << 25)) & (2**64 - 1)
    s ^= s >> 27
    byte = (s * 2685821657736338717 % 2**64) >> 56
    expected = [-1.0 if byte >> i & 1 else 1.0 for i in range(8)]
    assert int_lattice.signs(8).tolist() == expected
