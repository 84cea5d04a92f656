"""Work of the harness on threads, in advance of the device: references, pipelines to compile."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np

from ..kernels.kernel import Array, Case, Kernel
from .blas_threads import one_core_a_product
from .cpu_cores import available_cores
from .device import Device
from .harness import CaseResult, Shader, compare, run_reference
from .harness_pool import Pool

A = TypeVar("A")
B = TypeVar("B")
THREADS = 16
Choose = Callable[[Kernel, Iterable[Case]], Iterable[Case]]
AHEAD = 4  # cases of kernels for each thread; they are small
TOGETHER = 8  # cases of kernels in one submit to a GPU
MAKERS = 2  # threads that make the cases
HAND_OVER = 5e-4  # seconds after which a thread that computes lets another one run


def in_advance(
    work: Callable[[A], B], items: Iterable[A], threads: int, ahead: int = 1
) -> Iterator[B]:
    """`work` of each item in their order, up to `ahead` items for each thread in advance; without
    threads when they are asked for."""
    if not threads:
        yield from map(work, items)
        return
    with one_core_a_product(), _eager(), ThreadPoolExecutor(threads) as pool:
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
            if isinstance(items, Generator):
                items.close()  # it may have threads of its own


@contextmanager
def _eager() -> Iterator[None]:
    """The thread that drives the device lets go of the interpreter at every wait. Ten others that
    want it would keep it for 5 ms each."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(HAND_OVER)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@dataclass(frozen=True)
class Ready:
    """A case that is ready to run, and what its reference gave."""

    kernel: Kernel
    case: Case
    shader: Shader
    want: dict[str, Array]

    def result(self) -> CaseResult:
        """Compare what ran; the buffers are free then."""
        got, build = self.shader.read()
        self.shader.free()
        return compare(self.kernel, self.case, self.want, got, build)


def results(ready: Iterable[Ready], together: int = 1) -> Iterator[tuple[Ready, CaseResult]]:
    """Run cases in their order, `together` of them in a submit."""
    waiting = iter(ready)
    while some := list(islice(waiting, together)):
        device = some[0].shader.device
        seq = device.sequence()
        for item in some:
            item.shader.record(seq)
        device.eval(seq)
        for item in some:
            yield item, item.result()


def cases_ready(
    device: Device, kernels: Iterable[Kernel], seed: int, chosen: Choose | None = None
) -> Iterator[Ready]:
    """Every case of the kernels, or those that `chosen` takes of each kernel's; in its threads."""
    pool = Pool(device)

    def cases(kernel: Kernel) -> list[tuple[Kernel, Case]]:
        found = kernel.cases(np.random.default_rng(seed))
        return [(kernel, case) for case in (chosen(kernel, found) if chosen else found)]

    def items() -> Iterator[tuple[Kernel, Case]]:
        for found in in_advance(cases, kernels, min(MAKERS, threads)):
            yield from found

    def one(item: tuple[Kernel, Case]) -> Ready:
        kernel, case = item
        shader = Shader(device, kernel, case, pool)
        return Ready(kernel, case, shader, run_reference(kernel, case))

    threads = min(THREADS, available_cores())
    # one pipeline may take as long as fifty others
    yield from in_advance(one, items(), threads, AHEAD)
