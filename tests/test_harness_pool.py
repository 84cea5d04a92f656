"""Buffers that cases lend each other, and large weights that are spread on the device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kompute_llm.engine import harness_pool
from kompute_llm.engine.blocks import Matrix, pack_planes
from kompute_llm.engine.device import Device
from kompute_llm.engine.errors import DeviceError
from kompute_llm.engine.harness import device_words, word_count
from kompute_llm.engine.harness_bound import Loader
from kompute_llm.engine.harness_pool import LARGEST, Pool
from kompute_llm.engine.repeated import Repeated
from kompute_llm.kernels.reference import random_matrix


class Counted:
    """A device that only counts what it allocates, `room` buffers at most."""

    def __init__(self, room: int = 99) -> None:
        self.made, self.room = 0, room

    def heaps(self) -> list[Any]:
        return [SimpleNamespace(size=1 << 20, device_local=True)]

    def exchange(self, words: int, name: str) -> Any:
        if self.made >= self.room:
            raise DeviceError(f"{name}: no room")
        self.made += 1
        return np.zeros(words, np.uint32)

    storage = exchange


def test_buffers_are_lent_again() -> None:
    device: Any = Counted()
    pool = Pool(device)
    a, b = pool.exchange(100, "a"), pool.exchange(128, "b")
    assert len(a) == len(b) == 128 and a is not b
    pool.give_back([a])
    assert pool.exchange(65, "c") is a
    assert len(pool.exchange(64, "d")) == 64
    large = pool.exchange(LARGEST + 1, "e")
    assert len(large) == LARGEST + 1
    pool.give_back([large])
    assert pool.exchange(LARGEST + 1, "f") is not large


def test_large_buffers_wait_within_limits() -> None:
    """The smallest that is large enough, not one much larger; the oldest go first."""
    device: Any = Counted()
    pool = Pool(device)  # keeps an eighth of 1 MiB: 32768 words
    sizes = (9000, 10000, 12000)
    made = [pool.storage(n, "w") for n in sizes]
    pool.give_back(storage=made)
    assert pool.dropped == 0
    assert pool.storage(9500, "w") is made[1]
    assert pool.storage(100, "w") is not made[0]
    pool.give_back(storage=[made[1], np.zeros(5000, np.uint32)])
    assert pool.dropped == 1
    assert pool.storage(9000, "w") is made[1]  # and not the first one, which went


def test_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits makes room; without any the error stays."""
    device: Any = Counted(room=1)
    pool = Pool(device)
    with pytest.raises(DeviceError):
        [pool.storage(10, "w") for _ in range(2)]
    pool.give_back(storage=[np.zeros(8, np.uint32)])
    device.room = 2
    monkeypatch.setattr(harness_pool, "SLACK", 1.0)
    pool.storage(10, "w")
    assert pool.dropped == 0
    device.room, device.made = 1, 1
    with pytest.raises(DeviceError):
        pool.storage(10, "w")
    assert pool.dropped == 1


@pytest.mark.parametrize("fmt", ["F16", "Q4_K", "Q8_0", "Q6_K", "MXFP4", "IQ2_XS", "INT3_G64"])
def test_rows_are_spread_on_the_device(vulkan: Device, fmt: str) -> None:
    """The same planes as those of the bytes that a host makes; rows of odd length take that way."""
    rng, loader = np.random.default_rng(2), Loader(vulkan)
    for cols in (1024, 1280):
        base = random_matrix(rng, fmt, 9, cols)
        m = Repeated(base, rng.integers(9, size=150))
        assert (m.rows, m.cols, m.nbytes) == (150, cols, 150 * m.fmt.row_bytes(cols))
        spread = loader._fits(m)
        assert spread == (m.fmt.row_bytes(cols) % 16 == 0)
        tensor, want = loader.load("w", m), pack_planes(Matrix(m.fmt, m.raw, 150, cols))
        assert word_count(m) == device_words(m).size
        back, seq = vulkan.host(want.size), vulkan.sequence()
        vulkan.copy(seq, tensor, back, 0, 0, want.size)
        vulkan.eval(seq)
        for plane, end in zip(m.fmt.planes, np.cumsum(m.fmt.plane_words(m.nbytes // m.fmt.bytes)),
                              strict=False):  # fmt: skip
            size = m.nbytes // m.fmt.bytes * plane.stride  # what follows it is padding
            start = (end - -(-size // 16) * 4) * 4
            got, right = (x.view(np.uint8)[start : start + size] for x in (back.data(), want))
            assert np.array_equal(got, right), plane.name
        loader.pool.give_back(storage=[tensor])


def test_parts_of_repeated_rows() -> None:
    rng = np.random.default_rng(3)
    m = Repeated(random_matrix(rng, "Q8_0", 5, 64), rng.integers(5, size=40))
    part = m.part(7, 19)
    assert part.rows == 12 and np.array_equal(part.raw, m.raw[7:19])
    assert np.array_equal(part.dequantize(), m.dequantize(7, 19))
    x = rng.standard_normal((3, 64)).astype(np.float32)
    np.testing.assert_allclose(part.dequantize() @ x.T, m.times(x, 7, 19).T, rtol=1e-4, atol=1e-4)
