"""How compiled kernels run: a list of operations, replayed by several threads in step.

An operation is a function f(args, team, me, members) and its argument words, all int64. Members
claim pieces of an operation one by one, and meet at a barrier after it. `team` is the address of
words that they share, a cache line each.
"""

from __future__ import annotations

import time
from typing import Any

from llvmlite import ir
from numba import types

from .fast_half import IS_X86
from .fast_memory import load_word, store_word
from .fast_simd import I32, I64, call, device, op, pointer

LINE = 64  # bytes between shared words, so that they do not share a cache line
ARRIVED, ROUND, NEXT, ABORT, STOP = (i * LINE for i in range(5))
TEAM_WORDS = 5 * LINE // 8
OP_WORDS = 32  # function address, then argument words
SPINS = 300  # pauses before a waiting member offers its core to others (some 10 us)


@op(types.int64, types.int64, types.int64)
def fetch_add(b: Any, address: Any, value: Any) -> Any:
    """Add to a shared word; the value before."""
    return b.atomic_rmw("add", pointer(b, address, I64), value, "acq_rel")


@op(types.void, types.int64, types.int64)
def fetch_add_u32(b: Any, address: Any, value: Any) -> Any:
    """Add to a 32-bit word that several members count in."""
    return b.atomic_rmw("add", pointer(b, address, I32), b.trunc(value, I32), "monotonic")


@op(types.void, types.int64, types.int64)
def fetch_max_u32(b: Any, address: Any, value: Any) -> Any:
    """Raise a 32-bit word that several members raise, as unsigned numbers."""
    return b.atomic_rmw("umax", pointer(b, address, I32), b.trunc(value, I32), "monotonic")


@op(types.int64, types.int64)
def shared_load(b: Any, address: Any) -> Any:
    """Read a shared word, and see everything written before it was stored."""
    return b.load_atomic(pointer(b, address, I64), "acquire", 8)


@op(types.void, types.int64, types.int64)
def shared_store(b: Any, address: Any, value: Any) -> Any:
    """Write a shared word after everything written so far."""
    return b.store_atomic(value, pointer(b, address, I64), "release", 8)


@op(types.int64, types.int64)
def pause(b: Any, x: Any) -> Any:
    """A short wait in a spin loop."""
    if IS_X86:
        call(b, "llvm.x86.sse2.pause", ir.VoidType())
    return x


@op(types.int64, types.int64)
def give_way(b: Any, x: Any) -> Any:
    """Let another thread have the core (POSIX sched_yield)."""
    call(b, "sched_yield", I32)
    return x


@op(types.void, *[types.int64] * 5)
def call_address(b: Any, f: Any, args: Any, team: Any, me: Any, members: Any) -> Any:
    """Call a compiled kernel."""
    kind = ir.FunctionType(ir.VoidType(), [I64] * 4)
    return b.call(pointer(b, f, kind), [args, team, me, members])


@op(types.int64, types.int64)
def nanoseconds(b: Any, place: Any) -> Any:
    """CLOCK_MONOTONIC, through 16 bytes at `place`."""
    two = pointer(b, place, I64)
    call(b, "clock_gettime", I32, I32(time.CLOCK_MONOTONIC), two)
    rest = b.load(b.gep(two, [I64(1)]))
    return b.add(b.mul(b.load(two), I64(1_000_000_000)), rest)


@device
def claim(team: int) -> int:
    """The number of the next piece of the running operation, from 0."""
    piece: int = fetch_add(team + NEXT, 1)
    return piece


@device
def barrier(team: int, members: int, times: int, stamp: int) -> None:
    """Wait until every member is here; the last one prepares the next operation, and writes the
    time to `stamp` when `times`, two spare words, is not 0. One that waited may wake much later,
    when the next operation is done already."""
    this = shared_load(team + ROUND)
    if fetch_add(team + ARRIVED, 1) == members - 1:
        if times != 0:
            store_word(stamp, nanoseconds(times))
        store_word(team + ARRIVED, 0)
        store_word(team + NEXT, 0)
        store_word(team + STOP, shared_load(team + ABORT))
        shared_store(team + ROUND, this + 1)
        return
    spins = 0
    while shared_load(team + ROUND) == this:
        spins += 1
        if spins < SPINS:
            pause(spins)
        else:
            give_way(spins)


def replay(ops: int, count: int, times: int, team: int, me: int, members: int) -> None:
    """Run `count` operations at `ops`; when `times` is not 0, the words there are two spare ones,
    the start and every operation's end in nanoseconds. An abort ends it early."""
    if times != 0 and me == 0:
        store_word(times + 16, nanoseconds(times))
    for i in range(count):
        at = ops + i * (8 * OP_WORDS)
        call_address(load_word(at), at + 8, team, me, members)
        barrier(team, members, times, times + 24 + 8 * i)
        if load_word(team + STOP) != 0:
            return
