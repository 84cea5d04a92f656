"""Threads that replay compiled operations together, and the lists of operations they replay.

The main thread only waits, so that Ctrl-C reaches it at once; the operations are then abandoned
after the one that is running. Nothing here prints or knows tokens.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels import cache_rows
from ..kernels.fast import FAST, compiled, replayer
from ..kernels.fast_team import ABORT, OP_WORDS, TEAM_WORDS
from .plan import Buf, Dispatch, Weight

Array = npt.NDArray[Any]
Words = npt.NDArray[np.int64]


def aligned(words: int) -> Words:
    """Zeroed int64 words that start on a cache line."""
    raw = np.zeros(words + 8, np.int64)
    skip = -raw.ctypes.data // 8 % 8
    return raw[skip : skip + words]


def weight_table(w: Weight) -> Words:
    """What a kernel needs of a weight: bytes per row, then (address, rows) of each part."""
    words = [w.parts[0].raw.shape[1]]
    for m in w.parts:
        assert m.raw.flags.c_contiguous
        words += [m.raw.ctypes.data, m.rows]
    return np.array(words, np.int64)


def float_word(value: float) -> int:
    """A float64 as the int64 with the same bits."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


@dataclass(frozen=True)
class Job:
    """One replay: addresses and counts for fast_team.replay, and the lock that it holds."""

    ops: int
    count: int
    times: int
    done: threading.Lock


class Team:
    """`members` threads; `run` returns when all have replayed the operations."""

    def __init__(self, members: int) -> None:
        self.members = members
        self._words = aligned(TEAM_WORDS)
        self._run = replayer()
        self._inboxes: list[SimpleQueue[Job | None]] = [SimpleQueue() for _ in range(members)]
        self._done = threading.Lock()  # held while a job runs
        for me in range(members):
            name = f"kompute-llm cpu {me}"
            threading.Thread(target=self._serve, args=(me,), name=name, daemon=True).start()

    def _serve(self, me: int) -> None:
        team = self._words.ctypes.data
        while (job := self._inboxes[me].get()) is not None:
            if me == 0:  # wakes the others: the main thread could be interrupted half-way
                for inbox in self._inboxes[1:]:
                    inbox.put(job)
            self._run(job.ops, job.count, job.times, team, me, self.members)
            if me == 0:
                job.done.release()

    def run(self, ops: Words, count: int, times: Words | None = None) -> None:
        """Replay the first `count` operations; `times` (2 spare words, the start, then the end of
        every operation) takes nanoseconds. After an exception in between, nothing runs any more."""
        self._wait()
        self._words[ABORT // 8] = 0
        done = threading.Lock()
        done.acquire()
        job = Job(ops.ctypes.data, count, times.ctypes.data if times is not None else 0, done)
        put = self._inboxes[0].put
        # signals are handled between calls, not between these two steps
        self._done = done
        put(job)
        try:
            self._wait()
        except BaseException:
            self._words[ABORT // 8] = 1
            self._wait()
            raise

    def _wait(self) -> None:
        with self._done:
            pass

    def close(self) -> None:
        """End the threads after the running job."""
        self._wait()
        for inbox in self._inboxes:
            inbox.put(None)


class Program:
    """Consecutive dispatches as operation words over fixed arrays."""

    def __init__(
        self, dispatches: Sequence[Dispatch], arrays: Mapping[str, Array], members: int
    ) -> None:
        self.dispatches = tuple(dispatches)
        self.ops = aligned(len(dispatches) * OP_WORDS)
        self.times = np.zeros(len(dispatches) + 3, np.int64)
        self._tables: dict[str, Words] = {}
        self._arrays = arrays
        floats = max(FAST[d.kernel.name].scratch(d.params) for d in dispatches)
        self._bytes = -(-floats * 4 // 4096) * 4096
        self.scratch = aligned(max(self._bytes * members // 8, 1))
        for row, d in zip(self.ops.reshape(-1, OP_WORDS), dispatches, strict=True):
            self._fill(row, d)

    def _fill(self, row: Words, d: Dispatch) -> None:
        fast = FAST[d.kernel.name]
        fmt = d.operands[fast.weight].format_name if fast.weight else ""
        row[0] = compiled(d.kernel.name, fmt)
        for i, name in enumerate(fast.words):
            row[1 + i] = self._word(d, name)

    def _word(self, d: Dispatch, name: str) -> int:
        if name == "scratch":
            return int(self.scratch.ctypes.data)
        if name == "scratch_bytes":
            return self._bytes
        base, _, question = name.partition(".")
        if base not in d.operands:
            value = d.params[name]
            return float_word(value) if isinstance(value, float) else int(value)
        operand = d.operands[base]
        if question == "type":
            return cache_rows.TYPES.index(operand.format_name)
        if question == "row":
            return int(self._arrays[operand.name].strides[0])
        if question == "rows":
            return len(self._arrays[operand.name])
        if isinstance(operand, Buf):
            return int(self._arrays[operand.name].ctypes.data)
        if operand.name not in self._tables:
            self._tables[operand.name] = weight_table(operand)
        return int(self._tables[operand.name].ctypes.data)
