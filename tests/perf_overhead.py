"""Cost of one eval through Kompute and the runtime layer: python tests/perf_overhead.py [DEVICE].

Prints microseconds per eval of sequences with 1, 10 and 300 empty dispatches (`fill` of no words),
then what one more dispatch costs. No test: it needs a quiet machine, but no compiler.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

from kompute_llm.engine.device import Device, choose
from kompute_llm.kernels import fill

EVALS = 200


def microseconds(device: Device, dispatches: int, independent: bool) -> tuple[float, float]:
    """Median and least time of one eval with that many empty dispatches."""
    operand, push = device.storage(4, "operand"), np.zeros(3, np.uint32)
    algorithm = device.algorithm("fill", [operand], fill.KERNEL.spirv(""), [32], push.size)
    seq = device.sequence()
    for _ in range(dispatches):
        device.record(seq, algorithm, push, (1, 1, 1), independent=independent)
    times = []
    for _ in range(EVALS + 20):
        start = time.perf_counter()
        device.eval(seq)
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times[20:]), min(times[20:])


def main() -> None:
    """One line per sequence length."""
    start = time.perf_counter()
    with Device.open(choose(sys.argv[1] if len(sys.argv) > 1 else None)) as device:
        print(f"{device.describe}: opened in {(time.perf_counter() - start) * 1e3:.0f} ms")
        for independent in (False, True):
            few = 0.0
            for n in (1, 10, 300):
                median, least = microseconds(device, n, independent)
                few = few or median
                each = f", {(median - few) / (n - 1):.2f} µs per further dispatch" if n > 1 else ""
                kind = "independent" if independent else "dependent"
                print(f"{n:4} {kind} dispatches: median {median:.1f} µs, least {least:.1f}{each}")


if __name__ == "__main__":
    main()
