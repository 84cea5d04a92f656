"""Some cases of each kernel, for devices on which compiling them all takes minutes.

A driver of software compiles a pipeline in 0.1 to 3 s, far more than a case takes to run. So what
is drawn are pipelines, and every case that shares one of them comes along.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np

from ..kernels.kernel import Case, Kernel
from ..kernels.limits import Limits
from .ahead import pipeline_key
from .harness import shapes_of

SPIRV_BYTES = 32 << 10  # of a kernel's pipelines; lavapipe compiles 1 KiB in about 0.03 s


class Sample:
    """Draws pipelines of kernels, others with every seed: the first of them in random order that
    have SPIRV_BYTES together, one at least."""

    def __init__(self, limits: Limits, seed: int) -> None:
        self._limits, self._seed = limits, seed
        self._left_out: dict[str, int] = {}

    @property
    def left_out(self) -> int:
        """How many cases of all kernels so far."""
        return sum(self._left_out.values())

    def __call__(self, kernel: Kernel, cases: Iterable[Case]) -> list[Case]:
        """The cases of the pipelines drawn, in their order."""
        by_key: dict[tuple[object, ...], list[tuple[int, Case]]] = {}
        sizes = {}
        for i, case in enumerate(cases):
            launch = kernel.launch(shapes_of(case), case.params, case.rows, self._limits)
            key = pipeline_key(kernel, launch)
            by_key.setdefault(key, []).append((i, case))
            sizes[key] = len(kernel.spirv(launch.build))
        rng = np.random.default_rng([self._seed, zlib.crc32(kernel.name.encode())])
        keys, room = list(by_key), SPIRV_BYTES
        chosen: list[tuple[int, Case]] = []
        for n in rng.permutation(len(keys)):
            room -= sizes[keys[n]]
            if chosen and room < 0:
                break
            chosen += by_key[keys[n]]
        self._left_out[kernel.name] = sum(map(len, by_key.values())) - len(chosen)
        return [case for _, case in sorted(chosen, key=lambda item: item[0])]
