"""Ctrl-C: the first one asks, the second one, or too long a wait, ends the process at once.

Python runs signal handlers between bytecodes only, so a long call into the driver would hold
them up. The wake-up descriptor is written by the C handler itself and a thread reads it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from .output import SHOW_CURSOR, is_terminal, note

EXIT_CODE = 130  # 128 + SIGINT, as shells report it
PATIENCE = 1.5  # seconds from the first Ctrl-C to a forced end; exit within 2 s is promised


def ignore() -> None:
    """Nothing to say at a forced end."""


class Interrupt:
    """While entered, SIGINT sets `pressed`; while `raising`, it raises KeyboardInterrupt too.

    `on_forced` runs in another thread just before a forced end; it should only print.
    """

    def __init__(self, on_forced: Callable[[], None] = ignore) -> None:
        self.pressed = False
        self.raising = True
        self.on_forced = on_forced

    def check(self) -> None:
        """Raise KeyboardInterrupt if one was swallowed on its way (callbacks of C libraries do)."""
        if self.pressed:
            raise KeyboardInterrupt

    def __enter__(self) -> Interrupt:
        self._read, self._write = os.pipe()
        self._hook = sys.unraisablehook
        os.set_blocking(self._write, False)
        # Installed even where a shell started us with SIGINT ignored ("command &" in a script):
        # whoever sends it on purpose expects it to work.
        self._old = signal.signal(signal.SIGINT, self._handle)
        self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, name="interrupt", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._old_fd)
        signal.signal(signal.SIGINT, self._old)
        os.write(self._write, b"\0")  # ends the thread
        self._thread.join()
        os.close(self._read)
        os.close(self._write)
        sys.unraisablehook = self._hook
        if self.pressed and self.raising and isinstance(exc, Exception):
            raise KeyboardInterrupt from exc  # an extension module made another error of it

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        sys.unraisablehook = lambda args: None  # no "Exception ignored in" about this one
        if self.raising:
            raise KeyboardInterrupt

    def _watch(self) -> None:
        """Read signal numbers; 0 is the order to leave."""
        seen = 0
        while True:
            patience = PATIENCE if seen else None
            ready, _, _ = select.select([self._read], [], [], patience)
            byte = os.read(self._read, 1)[0] if ready else signal.SIGINT
            if byte == 0:
                return
            seen += byte == signal.SIGINT
            if seen > 1:
                self._leave()

    def _leave(self) -> None:
        with contextlib.suppress(Exception):
            if is_terminal(sys.stderr):
                sys.stderr.write(SHOW_CURSOR)  # a progress bar may have hidden it
            self.on_forced()
            note("interrupted; the device was not waited for")
        os._exit(EXIT_CODE)
