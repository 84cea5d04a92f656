"""Where the prompt comes from: -p, -f or standard input, always as UTF-8 text."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..engine.errors import FileError, UsageError
from .output import warn

LARGEST = 64 << 20  # bytes; far beyond any context, and a guard against -f /dev/zero


def read_prompt(prompt: str | None, file: str | None, dash: bool) -> str:
    """The prompt's text. Exactly one source: `prompt`, `file` ("-" is stdin), "-" or a pipe.

    One newline at the end of a file or pipe is dropped. Raises UsageError without a source or with
    two, FileError for one that is empty or not readable; `-p ""` alone may be empty.
    """
    dash = dash or prompt == "-" or file == "-"
    sources = [prompt not in (None, "-"), file not in (None, "-"), dash]
    if sum(sources) > 1:
        raise UsageError("give one prompt: -p TEXT, -f FILE or - for standard input")
    if prompt is not None and not dash:
        # arguments that were no valid text come as lone surrogates; os.fsencode restores bytes
        return decode(os.fsencode(prompt), "-p")
    if file is not None and not dash:
        return _content(_read_file(file), f"the prompt file {file}")
    if not dash and sys.stdin.isatty():
        raise UsageError("no prompt: give -p TEXT, -f FILE or text on standard input")
    return _content(_read_stdin(explicit=dash), "standard input")


def _content(data: bytes, name: str) -> str:
    if len(data) > LARGEST:
        raise FileError(f"{name} is larger than {LARGEST >> 20} MiB: no context holds it")
    text = decode(data, name)
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise FileError(f"{name} is empty: no prompt")
    return text


def _read_file(file: str) -> bytes:
    try:
        with open(Path(file).expanduser(), "rb") as f:
            return f.read(LARGEST + 1)
    except OSError as e:
        raise FileError(f"cannot read the prompt file {file}: {e.strerror}") from e
    except ValueError as e:  # a NUL in the name
        raise FileError(f"cannot read the prompt file {file!r}: {e}") from e


def _read_stdin(explicit: bool) -> bytes:
    try:
        data = sys.stdin.buffer.read(LARGEST + 1)
    except OSError as e:  # a directory, or opened for writing only
        raise FileError(f"cannot read standard input: {e.strerror}") from e
    if not data and not explicit:
        raise UsageError("no prompt: give -p TEXT, -f FILE or text on standard input")
    return data


def decode(data: bytes, name: str) -> str:
    """UTF-8 (or UTF-16 that says so by its mark) as text; invalid bytes become U+FFFD, warned."""
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as e:
        text = data.decode(encoding, "replace")
        warn(f"{name} is not valid {encoding.removesuffix('-sig').upper()} (byte {e.start}); "
             f"{text.count(chr(0xFFFD))} replacement characters stand for what is not")
        return text
