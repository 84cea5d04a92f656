"""Incremental UTF-8: bytes of tokens go in, whole characters come out."""

from __future__ import annotations

import codecs


class Utf8Stream:
    """Decodes a byte stream that is cut anywhere, for output that is never broken.

    A character split over several tokens is held back until it is complete. Bytes that cannot
    become a character are replaced by U+FFFD as soon as that is certain, one per maximal invalid
    part (Unicode 15, section 3.9, which Python's decoder follows).
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, data: bytes) -> str:
        """Text that `data` completes; may be empty."""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What is left at the end (U+FFFD for an incomplete character); the stream starts anew."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest

    @property
    def pending(self) -> int:
        """Bytes held back."""
        return len(self._decoder.getstate()[0])
