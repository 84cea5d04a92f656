"""Engine formats of int containers: block layouts, and which format a container's rows take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors_bytes import write

from kompute_llm.engine import int_codec
from kompute_llm.engine.blocks import FORMATS
from kompute_llm.engine.int_blocks import (
    INT_BLOCKS,
    IntBlock,
    pack_blocks,
    pack_stored,
    unpack_blocks,
)
from kompute_llm.engine.int_formats import NAMES, IntKind
from kompute_llm.engine.int_matrix import RowsMatrix, engine_format
from kompute_llm.engine.int_rows import Joined, Packed
from kompute_llm.engine.safetensors import read_safetensors

BLOCKS = list(INT_BLOCKS.values())


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: b.name)
def test_blocks_hold_every_quant_and_scale(block: IntBlock) -> None:
    rng = np.random.default_rng(0)
    top = {"INT8": 127, "INT3_G64": 3}.get(block.name, 7)
    q = rng.integers(-top - 1, top + 1, (5, 384)).astype(np.int8)
    scales: Any = rng.random((5, 384 // block.elems)).astype(np.float32)
    raw = pack_blocks(block, q, scales)
    assert raw.shape == (5, 384 // block.elems * block.bytes)
    expected = q * np.repeat(scales, block.elems, axis=1)
    assert np.array_equal(unpack_blocks(block.name, raw, 384), expected)
    one = pack_blocks(block, q, scales[:, :1])  # a scale per row
    assert np.array_equal(unpack_blocks(block.name, one, 384), q * scales[:, :1])


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: b.name)
def test_stored_bytes_are_permuted_to_the_same_blocks(block: IntBlock) -> None:
    rng = np.random.default_rng(1)
    kind = {"INT8": NAMES["int8-row"], "INT3_G64": NAMES["int3-g64"]}.get(
        block.name, IntKind("int4-grouped", "4", block.elems)
    )
    stored = rng.integers(0, 256, (7, int_codec.row_bytes(kind, 384)), dtype=np.uint8)
    scales: Any = rng.random((7, 384 // block.elems)).astype(np.float32)
    expected = pack_blocks(block, int_codec.unpack(kind, stored, 384), scales)
    assert np.array_equal(pack_stored(block, stored, scales), expected)


def test_three_bits_are_where_the_kernels_look() -> None:
    q = np.full((1, 64), -4, np.int8)
    q[0, 16 + 4 * 2 + 1] = 3  # first chunk, second group, i = 2, j = 1: all three bits
    raw = pack_blocks(INT_BLOCKS["INT3_G64"], q, np.ones((1, 1), np.float32))[0]
    assert np.flatnonzero(raw[:24]).tolist() == [5, 17]
    assert raw[5] == 0b11 << 4 and raw[17] == 1 << 6


def packed(tmp_path: Path, kind: IntKind, cols: int, rows: int = 6) -> tuple[Packed, Any]:
    """A stored matrix of a format, and what it decodes to."""
    rng = np.random.default_rng(cols)
    if kind.name == "mxfp4":
        data = rng.integers(0, 256, (rows, cols // 2), dtype=np.uint8)
        scales: Any = rng.integers(120, 130, (rows, cols // 32), dtype=np.uint8)
        wide = int_codec.e8m0(scales)
    else:
        data, scales = int_codec.quantize(kind, rng.standard_normal((rows, cols), np.float32))
        wide = scales
    file = read_safetensors(write(tmp_path / "m.safetensors", {"w": data, "w.qs": scales}))
    values = int_codec.dequantize(kind, data, wide, cols)
    return Packed(file.tensors["w"], file.tensors["w.qs"], kind, rows, cols), values


GROUPED = {g: IntKind("int4-grouped", "4", g) for g in (32, 64, 128)}


@pytest.mark.parametrize(
    ("kind", "cols", "name"),
    [
        (NAMES["int8-row"], 192, "INT8"),
        (NAMES["int8-row"], 96, "F16"),
        (NAMES["int4-row"], 256, "INT4_G128"),
        (NAMES["int4-row"], 576, "INT4_G64"),
        (NAMES["int4-row"], 96, "INT4_G32"),
        (NAMES["int2-row"], 256, "INT4_G128"),
        (GROUPED[32], 256, "INT4_G32"),
        (GROUPED[64], 320, "INT4_G64"),
        (GROUPED[128], 256, "INT4_G128"),
        (GROUPED[128], 320, "INT4_G64"),  # the last group is half as long
        (NAMES["int3-g64"], 128, "INT3_G64"),
        (NAMES["int3-g64"], 96, "F16"),
        (NAMES["mxfp4"], 96, "MXFP4"),
    ],
)
def test_rows_take_a_format_that_keeps_their_values(
    tmp_path: Path, kind: IntKind, cols: int, name: str
) -> None:
    rows, values = packed(tmp_path, kind, cols)
    assert engine_format(rows).name == name
    m = RowsMatrix(FORMATS[name], rows)
    assert m.nbytes == m.raw.nbytes
    if name == "F16":
        assert np.allclose(m.dequantize(), values, rtol=2.0**-10, atol=1e-6)
    else:
        assert np.array_equal(m.dequantize(), values)
    assert np.array_equal(m.part(2, 5).dequantize(), m.dequantize(2, 5))


def test_experts_of_one_format_are_one_matrix(tmp_path: Path) -> None:
    a, values = packed(tmp_path, GROUPED[64], 128)
    both = Joined([a, a])
    m = RowsMatrix(engine_format(both), both)
    assert m.fmt.name == "INT4_G64"
    assert np.array_equal(m.dequantize(4, 9), np.concatenate([values, values])[4:9])
    m.forget()
    assert m.raw.shape == (12, 2 * 36)
