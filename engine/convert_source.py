"""The model that is converted: float32 rows of any tensor, and what identifies it."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from .blocks import Floats
from .container import Container
from .errors import ModelError
from .int_container import IntContainer
from .tensor import Tensor, block_size

SAMPLE = 1 << 20  # bytes of each end of a file that go into its fingerprint


class Source:
    """An opened model. Rows are those of the last axis; experts follow each other."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.tensors = dict(container.tensors)

    def rows(self, t: Tensor) -> int:
        """Number of rows of a tensor."""
        return math.prod(t.shape[:-1])

    def values(self, t: Tensor, start: int, stop: int) -> Floats:
        """Rows [start, stop) as float32. Raises ModelError for formats that nothing decodes and
        for values that are not finite."""
        c = self.container
        if isinstance(c, IntContainer):
            x = c.rows[t.name].values(start, stop)
        else:
            x = self._decoded(t, start, stop)
        if not np.isfinite(x).all():
            raise c.fail(t.name, f"holds values that are not finite in rows {start} to {stop - 1}")
        return x

    def _decoded(self, t: Tensor, start: int, stop: int) -> Floats:
        size = t.nbytes // max(self.rows(t), 1)
        raw = self.container.raw(t)[start * size : stop * size]
        if block_size(t.type_id) is None:
            raise self.container.fail(t.name, f"format {t.format_name} is not known")
        try:
            x = dequantize(raw.reshape(stop - start, size), GGMLQuantizationType(t.type_id))
        except (NotImplementedError, KeyError):
            raise self.container.fail(
                t.name, f"format {t.format_name} cannot be decoded"
            ) from None
        return np.asarray(x, np.float32).reshape(stop - start, t.cols)

    def fingerprint(self) -> list[dict[str, object]]:
        """Name, size and a hash of both ends of every file: a resumed conversion goes on only
        with the source that it began with."""
        return [_fingerprint(p) for p in self.container.paths]


def _fingerprint(path: Path) -> dict[str, object]:
    try:
        with open(path, "rb") as f:
            size = f.seek(0, 2)
            f.seek(0)
            digest = hashlib.sha256(f.read(SAMPLE))
            f.seek(max(0, size - SAMPLE))
            digest.update(f.read(SAMPLE))
    except OSError as e:
        raise ModelError(path, f"cannot be read: {e.strerror}") from None
    return {"name": path.name, "bytes": size, "sha256_of_ends": digest.hexdigest()}
