"""Buffers without values and recorded chains of kernels, for measurements of single kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kompute_llm.engine.blocks import FORMATS
from kompute_llm.engine.device import Device
from kompute_llm.engine.plan import Buf
from kompute_llm.engine.recorder import Algorithms
from kompute_llm.kernels import fill
from kompute_llm.kernels.kernel import Kernel
from kompute_llm.kernels.reference import step_words

EVALS = 20
WARM = 0.15  # seconds of work before a measurement: clocks rise slowly
PATTERN = 0x11111111  # of weights: small finite scales in every format
Operand = tuple[Any, Any]  # tensor and shape
Step = Callable[[Any], None]  # records dispatches into a sequence


@dataclass(frozen=True)
class Stack:
    """A weight without values, as launches see it."""

    rows: int
    cols: int
    format_name: str

    @property
    def planes(self) -> tuple[int, ...]:
        """Words of each plane."""
        fmt = FORMATS[self.format_name]
        return fmt.plane_words(self.rows * self.cols // fmt.elems)

    @property
    def nbytes(self) -> int:
        """Bytes that a product reads."""
        fmt = FORMATS[self.format_name]
        return self.rows * self.cols // fmt.elems * fmt.bytes


class Bench:
    """Buffers and recorded sequences on one device."""

    def __init__(self, device: Device, bandwidth: float, positions: int) -> None:
        self.device, self.bandwidth = device, bandwidth
        self.algorithms = Algorithms(device)
        self.step = self.exchange(step_words(1, positions - 1))

    def exchange(self, values: Any) -> Any:
        """A buffer with values."""
        words = np.ascontiguousarray(values).view(np.uint32).reshape(-1)
        tensor = self.device.exchange(max(4, words.size), "values")
        tensor.data()[: words.size] = words
        seq = self.device.sequence()
        self.device.sync_device(seq, [tensor])
        self.device.eval(seq)
        return tensor

    def storage(self, words: int) -> Any:
        """A buffer full of PATTERN."""
        tensor, seq = self.device.storage(words, "bench"), self.device.sequence()
        params = {"word": 0, "count": words, "value": PATTERN}
        self.algorithms.record(seq, fill.KERNEL, {"dst": tensor}, {}, params, 1)
        self.device.eval(seq)
        return tensor

    def add(self, seq: Any, kernel: Kernel, params: dict[str, Any], **ops: tuple[Any, Any]) -> None:
        """Record a dispatch; operands are (tensor, shape)."""
        values = dict(params)
        for name, (_, shape) in ops.items():
            if isinstance(shape, Stack):
                for i in range(4):
                    values[f"{name}_p{i}"] = sum(shape.planes[:i])
        values |= {name: 0 for name, _ in kernel.interface.push if name.endswith("_base")}
        tensors = {name: op[0] for name, op in ops.items()} | {"step": self.step}
        shapes = {name: op[1] for name, op in ops.items()}
        self.algorithms.record(seq, kernel, tensors, shapes, values, 1)

    def warm(self, seq: Any) -> None:
        """Keep the device busy until its clocks have risen."""
        start = time.perf_counter()
        while time.perf_counter() - start < WARM:
            self.device.eval(seq)

    def best(self, seq: Any) -> float:
        """Least microseconds of one eval."""
        self.warm(seq)
        times = []
        for _ in range(EVALS):
            start = time.perf_counter()
            self.device.eval(seq)
            times.append((time.perf_counter() - start) * 1e6)
        return min(times)

    def say(
        self, what: str, micros: float, nbytes: float, per: str, least: float | None = None
    ) -> None:
        """One line of the table; `least` beside a median."""
        floor = nbytes / self.bandwidth * 1e6
        text = f"{what:46} {micros:9.2f} µs per {per}, floor {floor:.2f} µs ({floor / micros:.0%})"
        print(text if least is None else f"{text}, least {least:.2f}")

    def weight(self, rows: int, cols: int, fmt: str) -> tuple[Any, Stack]:
        """A weight full of PATTERN."""
        stack = Stack(rows, cols, fmt)
        return self.storage(sum(stack.planes)), stack

    def vector(self, n: int) -> dict[str, tuple[Any, Buf]]:
        """Quants, scales and sums of squares of a vector, and its float32 values."""
        return {
            "q": (self.storage(n // 4), Buf("q", (n // 4,), "U32")),
            "s": (self.storage(n // 8), Buf("s", (n // 16, 2))),
            "ssq": (self.storage(n // 16), Buf("ssq", (n // 16,))),
            "f": (self.storage(n), Buf("f", (1, n))),
        }  # fmt: skip

    def turns(self, sequences: Sequence[Any], rounds: int = 7) -> list[float]:
        """Median microseconds of an eval of each: clocks fall while a device idles, so all are
        recorded before and take turns."""
        times: list[list[float]] = [[] for _ in sequences]
        self.warm(sequences[0])
        for i in range(rounds + 1):
            for seq, found in zip(sequences, times, strict=True):
                start = time.perf_counter()
                self.device.eval(seq)
                if i:  # the first round warms up
                    found.append((time.perf_counter() - start) * 1e6)
        return [float(np.median(found)) for found in times]

    def chain(self, steps: Sequence[Step], repeats: int) -> Any:
        """The steps one after another, several times, in one sequence."""
        seq = self.device.sequence()
        for _ in range(repeats):
            for step in steps:
                step(seq)
        return seq
