"""Lines on a terminal: what overwrites what."""

from __future__ import annotations

import io
import sys

import pytest

from kompute_llm.cli.output import StatusLine, note


class Terminal(io.StringIO):
    """A stream that says it is a terminal; `screen` is what it shows."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """The lines, each with what the last carriage returns left of it."""
        shown = []
        for line in self.getvalue().split("\n"):
            cells: list[str] = []
            for part in line.split("\r"):
                cells[: len(part)] = part
            shown.append("".join(cells).rstrip())
        return shown


def terminal(monkeypatch: pytest.MonkeyPatch, kind: str = "xterm") -> Terminal:
    """Standard error as a terminal."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", kind)
    return made


def test_notes_take_the_place_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    status = StatusLine()
    status.show("tg128: repetition 3 of 5, still running")
    note("warning: something")
    status.show("5/5")
    status.show("")
    note("done")
    assert stderr.screen() == ["warning: something", "done", ""]


def test_no_progress_on_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch, "dumb")
    StatusLine().show("1 of 2")
    note("done")
    assert stderr.getvalue() == "done\n"
