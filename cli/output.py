"""The terminal: generated text on stdout, everything else on stderr, colours only on terminals.

Rich is imported only where it draws something; NO_COLOR and TERM=dumb are its own rules.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, ClassVar

MAX_ERROR = 4000  # characters: names in a model file may be long
SHOW_CURSOR = "\x1b[?25h"
# Control characters would let a model drive the terminal; tab, newline and return are text.
_VISIBLE = {c: f"^{chr(c ^ 64)}" for c in (*range(32), 127) if c not in (9, 10, 13)}
_VISIBLE |= {c: f"<{c:02x}>" for c in range(128, 160)}


def visible(text: str) -> str:
    """The text with control characters spelt out: names in a model file could hold any."""
    return text.translate(_VISIBLE)


def note(text: str) -> None:
    """One line on stderr. A closed stderr never disturbs the text on stdout."""
    if StatusLine.shown is not None:
        StatusLine.shown.show("")
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(visible(text) + "\n")
        sys.stderr.flush()


def warn(text: str) -> None:
    """A warning on stderr."""
    note(f"warning: {text}")


def error(text: str) -> None:
    """An error on stderr, on one line whatever the message holds."""
    line = " ".join(text.split())
    note("error: " + (line if len(line) <= MAX_ERROR else line[:MAX_ERROR] + " ..."))


def is_terminal(stream: Any) -> bool:
    """Whether `stream` is a terminal that understands cursor movement."""
    return bool(stream.isatty()) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def columns() -> int:
    """Width for drawings on stdout: the terminal's, else 80."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


class TextOut:
    """Generated text on stdout: UTF-8 whatever the locale, flushed at every write."""

    def __init__(self) -> None:
        self._raw: BinaryIO = sys.stdout.buffer
        self._tty = sys.stdout.isatty()
        self._last = ""

    def write(self, text: str) -> None:
        """Write and flush; OSError (BrokenPipeError) when the reader is gone or the disk full."""
        if not text:
            return
        self._last = text[-1]
        if self._tty:
            text = visible(text)
        self._raw.write(text.encode("utf-8", "replace"))
        self._raw.flush()

    def end(self) -> None:
        """Finish the last line of a text: what follows on the same terminal or pipe is apart."""
        if self._last not in ("", "\n"):
            self._raw.write(b"\n")
            self._raw.flush()


@contextlib.contextmanager
def load_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar in bytes on a terminal's stderr, nothing elsewhere: yields (done, total)."""
    if not is_terminal(sys.stderr):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[sizes]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, sizes="")

        def update(done: int, total: int) -> None:
            sizes = f"{done / 2**20:.0f} of {total / 2**20:.0f} MiB"
            bar.update(task, completed=done, total=total, sizes=sizes)

        yield update


class StatusLine:
    """One line of progress on a terminal's stderr that is overwritten, also by `note`; nothing
    elsewhere."""

    shown: ClassVar[StatusLine | None] = None  # whose line is on the screen

    def __init__(self) -> None:
        self._on = is_terminal(sys.stderr)
        self._text = ""

    def show(self, text: str) -> None:
        """Replace the line; "" clears it."""
        if not self._on or text == self._text:
            return
        columns = max(shutil.get_terminal_size().columns - 1, 10)
        text = text[:columns]
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write("\r" + text.ljust(len(self._text)) + ("" if text else "\r"))
            sys.stderr.flush()
        self._text = text
        StatusLine.shown = self if text else None
