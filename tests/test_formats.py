"""Weight formats: both executors decode what gguf decodes, also where scales are extreme."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kompute_llm.engine.blocks import FORMATS, Format, Matrix
from kompute_llm.engine.cpu_team import Program, Team
from kompute_llm.engine.device import Device
from kompute_llm.engine.grids import GRIDS, grid_words
from kompute_llm.engine.harness import can_run, run_case, run_shader
from kompute_llm.engine.plan import Buf, Dispatch, Phase, Weight
from kompute_llm.kernels import embed, matmul_int8, norm_matvec_q8, q8
from kompute_llm.kernels.kernel import Case
from kompute_llm.kernels.matmul_int8_launch import int8_operands
from kompute_llm.kernels.matmul_launch import case_operands, case_params
from kompute_llm.kernels.matvec_launch import ALL_FORMATS, PLAIN_FORMATS
from kompute_llm.kernels.quantize_layout import row_words
from kompute_llm.kernels.random_blocks import set_scales
from kompute_llm.kernels.reference import random_matrix, step_words

Bytes = npt.NDArray[np.uint8]
# float16: zeros, the smallest subnormals, the largest ones, one, the largest numbers, infinities,
# no number
EDGES = (0, 0x8000, 1, 0x8001, 0x03FF, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00)
# where float16 scales and minima lie in a block
HALVES = {
    "F16": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q2_K": (80, 82), "Q3_K": (108,),
    "IQ4_NL": (0,), "IQ4_XS": (0,), "TQ1_0": (52,), "TQ2_0": (64,), "IQ1_S": (0,),
    "IQ2_XXS": (0,), "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,),
}  # fmt: skip
each_format = pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)


def edge_blocks(fmt: Format, rng: np.random.Generator) -> Bytes:
    """Random quants under extreme scales: every pair of EDGES, every exponent byte."""
    if fmt.name in ("MXFP4", "NVFP4"):
        raw = rng.integers(0, 256, (256, fmt.bytes), np.uint8)
        raw[:, : fmt.planes[1].size] = np.arange(256, dtype=np.uint8)[:, None]
        return raw
    pairs = np.array([(a, b) for a in EDGES for b in EDGES], np.uint16)
    raw = rng.integers(0, 256, (len(pairs), fmt.bytes), np.uint8)
    if fmt.name == "IQ1_M":
        words = raw[:, 48:].copy().view(np.uint16) & 0x0FFF
        words |= (pairs[:, :1] >> np.arange(0, 16, 4, dtype=np.uint16) & 15) << 12
        raw[:, 48:] = words.view(np.uint8)
    for i, at in enumerate(HALVES.get(fmt.name, ())):
        raw[:, at : at + 2] = pairs[:, i : i + 1].copy().view(np.uint8)
    raw[:3] = 0
    raw[3:6, :] = 0xFF
    return raw


def blocks(fmt: Format, rng: np.random.Generator, count: int) -> Bytes:
    """Blocks of random bits whose scales are random numbers."""
    raw = rng.integers(0, 256, (count, fmt.bytes), np.uint8)
    if fmt.elems > 1:
        set_scales(rng, fmt, raw, 1.0)
    return raw


def case(m: Matrix) -> Case:
    """All rows of a matrix as embeddings."""
    ops: dict[str, Any] = {
        "tokens": np.arange(m.rows, dtype=np.uint32), "w": m, "step": step_words(m.rows, 0),
        "x": np.full((m.rows, m.cols), np.nan, np.float32),
    }  # fmt: skip
    params = {"n_embd": m.cols, "row0": 0, "rows": m.rows, "scale": 1.0}
    return Case("", ops, params, rows=m.rows)


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    made = Team(1)
    yield made
    made.close()


def cpu_decode(team: Team, m: Matrix) -> Any:
    """Rows as the compiled kernels decode them."""
    c = case(m)
    arrays: dict[str, Any] = {n: v for n, v in c.operands.items() if n != "w"}
    kinds = {"float32": "F32", "uint32": "U32"}
    ops: dict[str, Any] = {n: Buf(n, v.shape, kinds[v.dtype.name]) for n, v in arrays.items()}
    ops["w"] = Weight("w", (m,))
    program = Program([Dispatch(embed.KERNEL, ops, c.params, Phase.EMBED)], arrays, 1)
    team.run(program.ops, 1)
    return arrays["x"]


@each_format
def test_cpu_decodes_bit_for_bit(team: Team, fmt: Format) -> None:
    """Random blocks and edges: equal words, but for what a NaN carries."""
    rng = np.random.default_rng(11)
    raw = np.concatenate([blocks(fmt, rng, 512), edge_blocks(fmt, rng)])
    cols = max(fmt.elems, 32)
    m = Matrix.of(fmt, raw.reshape(-1)[: raw.size // fmt.row_bytes(cols) * fmt.row_bytes(cols)],
                  cols)  # fmt: skip
    with np.errstate(all="ignore"):
        want = m.dequantize()
    got = cpu_decode(team, m)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    same = (got.view(np.uint32) == want.view(np.uint32)) | np.isnan(want)
    assert same.all(), np.argwhere(~same)[:5]


@each_format
def test_shader_decodes_exactly(vulkan: Device, fmt: Format) -> None:
    """Random blocks, an odd number per row: at most the last bit differs (fused operations)."""
    rng = np.random.default_rng(12)
    cols = 3 * max(fmt.elems, 32)
    raw = blocks(fmt, rng, 37 * cols // fmt.elems)
    if fmt.name in ("F16", "F32", "BF16"):
        raw &= np.array([0xFF] * (fmt.bytes - 1) + [0xBF], np.uint8)  # finite, not large
    m = Matrix.of(fmt, raw.reshape(-1), cols)
    got, _ = run_shader(vulkan, embed.KERNEL, case(m))
    want = m.dequantize()
    normal = np.abs(want) > 1e-35  # devices may flush smaller numbers to zero
    assert np.allclose(got["x"][normal], want[normal], rtol=1.2e-7, atol=1e-7)
    assert (np.abs(got["x"][~normal]) <= 1e-35).all()


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"])
def test_long_rows_in_int8(vulkan: Device, name: str) -> None:
    """Rows of 28672 values, their number no multiple of 4: one token, and a ragged batch."""
    if not can_run(vulkan, norm_matvec_q8.KERNEL):
        pytest.skip("no packed dot products")
    rng, rows, cols = np.random.default_rng(13), 5, 28672
    w = random_matrix(rng, name, rows, cols, 1 / np.sqrt(cols))
    ops = q8.vector_operands(rng, cols) | {"w": w, "y": np.zeros((1, rows), np.float32)}
    params = {"cols": cols, "rows": rows, "y_off": 0, "eps": 1e-5}
    one = Case(name, ops, params, scale=0.5)
    assert run_case(vulkan, norm_matvec_q8.KERNEL, one).ok
    ops = int8_operands(case_operands(rng, name, 3, rows, cols) | {"w": w}, cols)
    params = case_params(rows, cols) | {"x_stride": row_words(cols)}
    batch = Case(name, ops, params, rows=3, scale=0.5)
    assert run_case(vulkan, matmul_int8.KERNEL, batch).ok


@pytest.mark.parametrize("name", GRIDS)
def test_codebooks(name: str) -> None:
    """Sizes and values of the tables; what a format's sign trick rests on: no magnitude is 0."""
    values = np.unique(grid_words(name).view(np.uint8))
    want = {"IQ1": [0, 8, 16], "IQ2": [8, 25, 43]}.get(name[:3])
    if want is None:
        assert len(values) == 8 and values.min() > 0 and values.max() < 64
    else:
        assert values.tolist() == want
    assert grid_words(name).size in (256, 512, 1024, 2048, 4096)


def test_every_format_has_kernels() -> None:
    """No format without kernels, none in two lists."""
    assert sorted(ALL_FORMATS + PLAIN_FORMATS) == sorted(FORMATS)
