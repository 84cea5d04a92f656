"""Typed access to the metadata of a container: every value is checked where it is read.

Each function names the key, what was expected and what the file holds. `required=False` gives the
default when the key is absent; a key that is there with a wrong value is always an error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .container import Container
from .errors import ModelError


class Keys:
    """Reads keys of one architecture: `k.integer("block_count")` reads "llama.block_count"."""

    def __init__(self, container: Container, prefix: str) -> None:
        self.container, self.prefix = container, prefix

    def fail(self, key: str, problem: str) -> ModelError:
        """An error about one key, given without the prefix."""
        return ModelError(self.container.path, problem, f"key {self.prefix + key!r}")

    def get(self, key: str) -> Any:
        """The raw value or None."""
        return self.container.metadata.get(self.prefix + key)

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """An integer from `low` to `high`; without a default the key must be there."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        return self._integer(key, value, low, high)

    def uniform(self, key: str, n: int, low: int, high: int, default: int | None = None) -> int:
        """An integer that may be given per layer (array of `n`) if all layers agree."""
        value = self.get(key)
        if not isinstance(value, np.ndarray):
            return self.integer(key, low, high, default)
        if len(value) != n:
            raise self.fail(key, f"expected {n} values, one per layer, got {len(value)}")
        distinct = np.unique(value)
        if len(distinct) != 1:
            raise self.fail(
                key, f"layers differ ({_short(value.tolist())}); only equal layers are supported"
            )
        return self._integer(key, distinct[0].item(), low, high)

    def per_layer(self, key: str, n: int, low: int, high: int) -> list[int]:
        """An integer per layer: an array of `n`, or one for all."""
        value = self.get(key)
        if not isinstance(value, np.ndarray):
            return [self.integer(key, low, high)] * n
        if len(value) != n:
            raise self.fail(key, f"expected {n} values, one per layer, got {len(value)}")
        return [self._integer(key, v, low, high) for v in value.tolist()]

    def real(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number with low <= value <= high."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.fail(key, f"missing; expected a number from {low:g} to {high:g}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(key, f"expected a number, got {_short(value)}")
        if not math.isfinite(value) or not low <= value <= high:
            raise self.fail(key, f"is {value:g}, expected a number from {low:g} to {high:g}")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        """A truth value."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool | np.bool_):
            raise self.fail(key, f"expected true or false, got {_short(value)}")
        return default if value is None else bool(value)

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.fail(key, "missing" if value is None else f"expected text, got {value!r}")
        return value

    def _integer(self, key: str, value: Any, low: int, high: int) -> int:
        if value is None:
            raise self.fail(key, f"missing; expected an integer from {low} to {high}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, f"expected an integer, got {_short(value)}")
        if not low <= value <= high:
            raise self.fail(key, f"is {value}, expected an integer from {low} to {high}")
        return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
