"""random_planes: the planes of random weights, made where they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .matvec_launch import grid_2d

WORDS = 4  # per invocation, as in the shader


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One invocation per WORDS words."""
    size = limits.workgroup(256)
    return Launch("", (size,), grid_2d(-(-int(params["count"]) // (size * WORDS)), limits))


def mix(numbers: Array, seed: int) -> Array:
    """Hashes of uint32 numbers: the shader's 32-bit mix."""
    x = numbers.astype(np.uint32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= np.uint32(seed) ^ (x >> np.uint32(15))
    x *= np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def reference(
    table: Array, dst: Array, *,
    dst_word: int, count: int, first: int, seed: int, unit: int, units: int, table_word: int,
) -> None:
    """dst[dst_word : dst_word + count] = words first, first + 1, … of a random plane; uint32.

    With `unit` 0 word i is mix(i). Else unit i of the plane, `unit` words, is the unit
    mix(i) mod `units` of those that start at table_word; `units` is a power of two.
    """
    at = first + np.arange(count, dtype=np.uint64)
    if unit == 0:
        words = mix(at, seed)
    else:
        drawn = mix(at // unit, seed) & np.uint32(units - 1)
        words = table[table_word + drawn.astype(np.int64) * unit + (at % unit).astype(np.int64)]
    dst[dst_word : dst_word + count] = words


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Any bits, and units as long as those of the formats; the middle of a buffer alone."""
    for unit, units in ((0, 1), (1, 1), (1, 64), (2, 16), (4, 32), (11, 8)):
        for count, first in ((1, 0), (700, 0), (3000, 12345 * max(unit, 1)), (37, 5)):
            table = rng.integers(0, 1 << 32, 3 + max(unit, 1) * units, dtype=np.uint32)
            dst = rng.integers(0, 1 << 32, count + 9, dtype=np.uint32)
            params = {
                "dst_word": 5, "count": count, "first": first, "unit": unit, "units": units,
                "seed": int(rng.integers(1 << 32)), "table_word": 3,
            }  # fmt: skip
            yield Case(
                f"units of {unit}: {count} words from {first}", {"table": table, "dst": dst},
                params, exact=True,
            )  # fmt: skip
    params = {"dst_word": 0, "count": 9, "first": (1 << 32) - 9, "unit": 0, "units": 1, "seed": 7,
              "table_word": 0}  # fmt: skip
    yield Case("the last words that a number has",
               {"table": np.zeros(1, np.uint32), "dst": np.zeros(9, np.uint32)}, params,
               exact=True)  # fmt: skip


KERNEL = Kernel("random_planes", launch, reference, cases)
