"""Weights made on the device: sizes and variety of values in all formats, pieces, progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kompute_llm.engine import random_fill
from kompute_llm.engine.arena import WeightArena
from kompute_llm.engine.blocks import FORMATS, Bytes, Floats, Format, Matrix
from kompute_llm.engine.device import Device
from kompute_llm.engine.plan import Weight
from kompute_llm.engine.random_matrix import SIZE, RandomMatrix, random_blocks
from kompute_llm.engine.recorder import Algorithms
from kompute_llm.engine.upload import Upload

COLS = 1024


def no_bytes() -> Bytes:
    raise AssertionError("the host made bytes of random weights")


def read(device: Device, tensor: Any) -> npt.NDArray[np.uint32]:
    """The words of a device buffer."""
    out, seq = device.exchange(len(tensor), "read back"), device.sequence()
    device.copy(seq, tensor, out, 0, 0, len(tensor))
    device.sync_local(seq, [out])
    device.eval(seq)
    words: npt.NDArray[np.uint32] = out.data().copy()
    return words


def values(w: Weight, places: tuple[int, ...], words: npt.NDArray[np.uint32]) -> Floats:
    """What the planes of a weight decode to: float32 (rows, cols)."""
    n = w.rows * w.cols // w.fmt.elems
    raw = np.zeros((n, w.fmt.bytes), np.uint8)
    for plane, at in zip(w.fmt.planes, places, strict=False):
        part = words[at:].view(np.uint8)[: n * plane.stride].reshape(n, plane.stride)
        raw[:, plane.offset : plane.offset + plane.size] = part[:, : plane.size]
        assert not part[:, plane.size :].any()
    return Matrix.of(w.fmt, raw.reshape(-1), w.cols).dequantize()


def load(
    device: Device, weights: list[Weight], progress: Callable[[int, int], None] | None = None
) -> list[Floats]:
    """Load weights and read back what they are."""
    arena = WeightArena(device, weights)
    arena.load(Upload(device, Algorithms(device)), progress)
    (tensor,) = arena.tensors
    words = read(device, tensor)
    return [values(w, arena.places[w.name].words, words) for w in weights]


def stack(fmt: Format, *names: str, rows: int = 32) -> Weight:
    return Weight("|".join(names), tuple(RandomMatrix(fmt, rows, COLS, n, no_bytes)
                                         for n in names))  # fmt: skip


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=list(FORMATS))
def test_values(vulkan: Device, fmt: Format) -> None:
    """Of the sizes that blocks of set_scales have, and no two tensors alike."""
    a, b = load(vulkan, [stack(fmt, "a", "b"), stack(fmt, "c")])
    width = COLS if fmt.elems == 1 else fmt.elems
    host = Matrix.of(fmt, random_blocks(fmt, 1 << 12).reshape(-1), width).dequantize()
    assert np.isfinite(a).all() and SIZE / 2 < a.std() < 2 * SIZE
    assert 0.9 < a.std() / host.std() < 1.1 and np.abs(a).max() < 1.2 * np.abs(host).max()
    levels = 1 / len(np.unique(host[0]))  # chance alone makes some values equal
    for x, y in ((a[:32], a[32:]), (a[:32], b), (a[0], a[1])):
        assert np.mean(x == y) < 3 * levels + 0.02


@pytest.mark.parametrize("name", ["Q4_0", "Q3_K", "F16", "MXFP4", "IQ3_S"])
def test_pieces(vulkan: Device, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces, stacks, splits and columns of a weight: a row of a tensor is the same in all."""
    fmt = FORMATS[name]
    (whole,) = load(vulkan, [stack(fmt, "a")])
    m = RandomMatrix(fmt, 32, COLS, "a", no_bytes)
    monkeypatch.setattr(random_fill, "SUBMIT_BYTES", 96 * fmt.bytes)
    seen: list[tuple[int, int]] = []
    got = load(vulkan, [
        stack(fmt, "x", "a"), Weight("low", (m.part(0, 8),)), Weight("high", (m.part(8, 99),)),
    ], lambda done, total: seen.append((done, total)))  # fmt: skip
    np.testing.assert_array_equal(got[0][32:], whole)
    np.testing.assert_array_equal(np.concatenate(got[1:]), whole)
    assert [d for d, _ in seen] == sorted({d for d, _ in seen})
    assert seen[-1] == (3 * m.nbytes, 3 * m.nbytes) and len(seen) > 4


def test_an_exception_of_progress_ends_the_load(
    vulkan: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_fill, "SUBMIT_BYTES", 1 << 12)
    calls = []

    def progress(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(vulkan, [stack(FORMATS["Q8_0"], "a", rows=64)], progress)
    assert len(calls) == 3


def test_beside_weights_of_the_host(vulkan: Device) -> None:
    """Parts with bytes are uploaded as ever, between random ones."""
    fmt = FORMATS["Q6_K"]
    given = Matrix.of(fmt, random_blocks(fmt, 32 * COLS // fmt.elems).reshape(-1), COLS)
    parts = stack(fmt, "a", "b").parts
    mixed = Weight("m", (parts[0], given, parts[1]))
    got, alone = load(vulkan, [mixed, stack(fmt, "b")])
    np.testing.assert_array_equal(got[32:64], given.dequantize())
    np.testing.assert_array_equal(got[64:], alone)


def test_host_side() -> None:
    """Bytes on the host: those of the source, in parts, columns and other formats."""
    fmt = FORMATS["Q4_0"]
    raw = random_blocks(fmt, 8 * 4).reshape(-1)
    real = Matrix.of(fmt, raw, 128)
    m = RandomMatrix(fmt, 8, 128, "a", lambda: raw)
    f16 = FORMATS["F16"]
    for mine, its in (
        (m, real), (m.part(2, 5), real.part(2, 5)), (m.part(2, 6).part(1, 9), real.part(3, 6)),
        (m.columns(32, 64), real.columns(32, 64)), (m.converted(f16), real.converted(f16)),
    ):  # fmt: skip
        assert (mine.rows, mine.cols, mine.nbytes) == (its.rows, its.cols, its.nbytes)
        np.testing.assert_array_equal(mine.raw, its.raw)
        mine.forget()
        np.testing.assert_array_equal(mine.dequantize(), its.dequantize())
