"""`--save`: a file of results, which an older one of its name gives way to only for a result."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ..engine.errors import FileError


class SavedFile:
    """Opened at once, so that a name that cannot be written is refused before hours of work."""

    def __init__(self, path: Path) -> None:
        """Raises FileError."""
        self.path = path
        try:
            self._new = not path.exists()
            self._file = path.open("a", encoding="utf-8")
        except OSError as e:
            raise FileError(f"--save {path}: {e.strerror}") from e
        self._begun = False

    def write(self, text: str) -> None:
        """One more line, flushed; the first one empties the file. Raises FileError."""
        try:
            if not self._begun and self.path.is_file():  # no pipe
                self._file.truncate(0)
            self._begun = True
            self._file.write(text + "\n")
            self._file.flush()
        except OSError as e:
            raise FileError(f"--save {self.path}: {e.strerror}") from e

    def close(self) -> None:
        """Close it; without a result no new file is left behind."""
        with contextlib.suppress(OSError):  # of a line that `write` failed at
            self._file.close()
        if self._new and not self._begun:
            self.path.unlink(missing_ok=True)
