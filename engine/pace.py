"""How many prompt tokens go into one submit: few where work is slow, for watchdogs and Ctrl-C.

Drivers give a device up whose submit takes some seconds (amdgpu: 10, Windows: 2), and nothing can
be interrupted within one. So the first submit is small by estimate, and the next ones are as large
as the measured speed allows.
"""

from __future__ import annotations

SECONDS = 0.5  # what a submit should take at most
SLOW = 1.0  # a submit that takes longer makes the next one smaller
LEAST = 32  # tokens; fewer take hardly less time, for a tile of products is as large
# Operations in the first submit, by type of device: half a second for the slowest of its kind.
FIRST_WORK = {"discrete": 2e12, "integrated": 1e11, "virtual": 1e11, "cpu": 1e10}


class Pace:
    """Tokens of the next submit, `batch`: a power of two times LEAST, at most `most`."""

    def __init__(self, most: int, kind: str, n_params: int) -> None:
        self.most = most
        # a product takes one multiplication and one addition per weight and token
        self.batch = self._fit(LEAST, FIRST_WORK.get(kind, 1e11) / (2.0 * n_params))

    def _fit(self, batch: int, tokens: float) -> int:
        while batch < self.most and 2 * batch <= tokens:
            batch *= 2
        return min(batch, self.most)

    def took(self, tokens: int, seconds: float) -> None:
        """Take note of a submit; larger ones take less time per token, so this is cautious."""
        fits = SECONDS * tokens / seconds
        if 2 * self.batch <= fits:
            self.batch = self._fit(self.batch, fits)
        elif seconds > SLOW:
            self.batch = min(self._fit(LEAST, fits), self.batch)
