"""Work of the harness on threads, in advance of the device: references, pipelines to compile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ..kernels.kernel import Array, Case, Kernel
from .blas_threads import one_core_a_product
from .cpu_cores import available_cores
from .device import Device
from .harness import CaseResult, Shader, compare, run_reference

A = TypeVar("A")
B = TypeVar("B")
THREADS = 16
Choose = Callable[[Kernel, Iterable[Case]], Iterable[Case]]
AHEAD = 4  # cases of kernels for each thread; they are small


def in_advance(
    work: Callable[[A], B], items: Iterable[A], threads: int, ahead: int = 1
) -> Iterator[B]:
    """`work` of each item in their order, up to `ahead` items for each thread in advance; without
    threads when they are asked for."""
    if not threads:
        yield from map(work, items)
        return
    with one_core_a_product(), ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[B]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > threads * ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class Ready:
    """A case that is ready to run, and what its reference gave."""

    kernel: Kernel
    case: Case
    shader: Shader
    want: dict[str, Array]

    def run(self) -> CaseResult:
        """Run it and compare."""
        got, build = self.shader.run()
        return compare(self.kernel, self.case, self.want, got, build)


def cases_ready(
    device: Device, kernels: Iterable[Kernel], seed: int, chosen: Choose | None = None
) -> Iterator[Ready]:
    """Every case of the kernels, or those that `chosen` takes of each kernel's."""

    def one(item: tuple[Kernel, Case]) -> Ready:
        kernel, case = item
        shader = Shader(device, kernel, case)
        return Ready(kernel, case, shader, run_reference(kernel, case))

    def cases(kernel: Kernel) -> Iterable[Case]:
        found = kernel.cases(np.random.default_rng(seed))
        return chosen(kernel, found) if chosen else found

    items = ((k, c) for k in kernels for c in cases(k))
    # one pipeline may take as long as fifty others
    yield from in_advance(one, items, min(THREADS, available_cores()), AHEAD)
