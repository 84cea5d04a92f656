"""Bounds on the time and memory of code that a model file brings: its chat template.

Both come from the operating system, because a template can spend them inside one call of a
filter. The timer needs the main thread (signals are delivered there) and the memory bound needs
Linux; elsewhere the bound is missing.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

AGAIN = 0.1  # seconds until the timer fires once more, should something swallow the exception


class OutOfTimeError(Exception):
    """The time is up."""


@contextlib.contextmanager
def bounded(seconds: float, nbytes: int) -> Iterator[None]:
    """Raise OutOfTimeError in the block after `seconds`, MemoryError for `nbytes` more."""
    with _memory(nbytes), _time(seconds):
        yield


@contextlib.contextmanager
def _time(seconds: float) -> Iterator[None]:
    alarm = getattr(signal, "SIGALRM", None)
    if alarm is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    active = True

    def ring(number: int, frame: FrameType | None) -> None:
        if active:
            raise OutOfTimeError

    before = signal.signal(alarm, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        active = False  # a signal that is already on its way does no harm
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(alarm, before)


@contextlib.contextmanager
def _memory(nbytes: int) -> Iterator[None]:
    used = _address_space()
    if used is None:
        yield
        return
    resource: Any = importlib.import_module("resource")  # not on every system
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    known = [n for n in (soft, hard) if n != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([used + nbytes, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int | None:
    """Bytes of this process's address space, where Linux tells."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmSize:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
