"""Loops that show what one thread can do: read memory, copy it, multiply and add (bench --roof)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit, types

from .fast_memory import AHEAD, load, prefetch, store
from .fast_simd import LANES, lane_sum, splat

CHAINS = 6  # independent sums of LANES values: they hide latency and stay in registers
OPS = 2 * CHAINS * LANES  # operations per round
STEP = 4 * LANES * 4  # bytes that the memory loops take at a time

F = TypeVar("F", bound=Callable[..., Any])


def _compiled(*signature: Any) -> Callable[[F], F]:
    """Decorator: compile for (result, arguments…), to run without the interpreter lock."""

    def wrap(f: F) -> F:
        result, *wanted = signature
        made: Any = njit(result(*wanted), nogil=True, cache=True, error_model="numpy")(f)
        return cast(F, made)

    return wrap


@_compiled(types.float32, types.int64, types.int64)
def read(address: int, size: int) -> float:
    """Sum of `size` bytes of float32, a multiple of STEP."""
    a = splat(0.0)
    b = splat(0.0)
    c = splat(0.0)
    d = splat(0.0)
    for at in range(address, address + size, STEP):
        prefetch(at + AHEAD)
        prefetch(at + AHEAD + 64)
        prefetch(at + AHEAD + 128)
        prefetch(at + AHEAD + 192)
        a = a + load(at)
        b = b + load(at + 64)
        c = c + load(at + 128)
        d = d + load(at + 192)
    total: float = lane_sum((a + b) + (c + d))
    return total


@_compiled(types.void, types.int64, types.int64, types.int64)
def copy(source: int, target: int, size: int) -> None:
    """Copy `size` bytes, a multiple of STEP."""
    for i in range(0, size, STEP):
        store(target + i, load(source + i))
        store(target + i + 64, load(source + i + 64))
        store(target + i + 128, load(source + i + 128))
        store(target + i + 192, load(source + i + 192))


@_compiled(types.float32, types.int64, types.int64)
def multiply_add(rounds: int, start: int) -> float:
    """`rounds` rounds of OPS operations; chains that converge to 2."""
    a = splat(1.0 * start)
    b = a + 1.0
    c = a + 2.0
    d = a + 3.0
    e = a + 4.0
    f = a + 5.0
    half = splat(0.5)
    one = splat(1.0)
    for _ in range(rounds):
        a = a * half + one
        b = b * half + one
        c = c * half + one
        d = d * half + one
        e = e * half + one
        f = f * half + one
    total: float = lane_sum((a + b) + (c + d) + (e + f))
    return total
