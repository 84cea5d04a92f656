"""JSON files of a model folder, bounded, and typed access to the values of a config.json."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from .errors import ModelError

MAX_JSON = 64 << 20


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises ModelError."""
    try:
        if path.stat().st_size > MAX_JSON:
            raise ModelError(path, f"has more than {MAX_JSON} bytes")
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelError(path, "no such file") from None
    except OSError as e:
        raise ModelError(path, f"cannot be read: {e.strerror}") from None
    except (ValueError, RecursionError) as e:
        raise ModelError(path, f"is not JSON: {str(e) or 'nested too deeply'}") from None
    if not isinstance(value, dict):
        raise ModelError(path, "is not a JSON object")
    return value


class Config:
    """The values of a config.json, each checked where it is read."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path, self.values = path, values

    def fail(self, key: str, problem: str) -> ModelError:
        """An error about one key."""
        return ModelError(self.path, problem, f"key {key!r}")

    def get(self, key: str) -> Any:
        """The value, or None where it is absent or null."""
        return self.values.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        """A count of 0 or more; without a default it must be there."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
            raise self.fail(key, f"expected a count, got {value!r:.60}" if key in self.values
                            else "missing; expected a count")  # fmt: skip
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise self.fail(key, f"expected a number, got {value!r:.60}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(key, f"expected true or false, got {value!r:.60}")
        return value

    def object(self, key: str) -> Config | None:
        """A nested object, or None."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.fail(key, f"expected an object, got {value!r:.60}")
        return Config(self.path, value)


def read_config(folder: Path) -> Config:
    """config.json of a folder. Raises ModelError when it is absent or damaged."""
    return Config(folder / "config.json", read_json(folder / "config.json"))
