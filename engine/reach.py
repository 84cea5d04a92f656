"""Which positions may be fed next where caches are rings: what they would see must be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import UsageError
from .spec_model import ModelSpec

if TYPE_CHECKING:
    from .builder_base import PlanOptions


class Reach:
    """Keeps account of the positions that all layers still have.

    Feeding goes on behind the last position, starts anew at 0, or goes back as far as the rows
    before a position are still those that its window wants.
    """

    def __init__(self, spec: ModelSpec, opts: PlanOptions) -> None:
        layers = spec.layers if opts.ring else ()
        sizes = [(spec.cache_rows(s.cache, opts.n_ctx, opts.batch), s.window) for s in layers]
        rings = [(rows, window) for rows, window in sizes if rows < opts.n_ctx]
        self._rows = min((rows for rows, _ in rings), default=opts.n_ctx)
        self._window = max((window for _, window in rings), default=0)
        self._first = self._stop = 0  # positions that every ring has
        self._lost = False  # whether a ring has lost a position

    def feed(self, pos: int, n: int) -> None:
        """Take note of n tokens from `pos` on. Raises UsageError if they would see positions whose
        keys and values are gone."""
        start = max(0, pos - self._window + 1)
        if pos > 0 and self._lost and not self._first <= start <= pos <= self._stop:
            raise UsageError(
                f"position {pos} cannot be fed: layers with a window of {self._window} have "
                f"positions {self._first} to {self._stop - 1} only"
            )
        if pos == 0 and self._first > 0:
            self._first = self._stop = 0
        self._stop = max(self._stop, pos + n)
        self._first = max(self._first, self._stop - self._rows)
        self._lost = self._lost or self._first > 0
