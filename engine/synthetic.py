"""Models of random weights: an architecture and formats from a table, no file to download.

Speed depends on shapes and formats, not on what the weights say. The description becomes the
header of a sparse GGUF file (which takes no room on the disk), so everything that reads models
checks it as it would any other. Matrices are `RandomMatrix`: a device fills them itself
(engine/random_fill.py), the CPU executor and `export` read bytes out of random blocks, so their
values are others.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from .blocks import BY_TYPE, FORMATS, Bytes, Format, Matrix
from .container import Container, open_model
from .errors import FileError, UsageError
from .random_matrix import RandomMatrix, random_blocks
from .synthetic_shape import Shape, tensors, write_header
from .tensor import Tensor

PREFIX = "synthetic:"
BASE = 1 << 18  # random blocks of a format, repeated as often as needed
STARTS = 1 << 12  # blocks between which tensors begin, so that no two are the same
HOST = ("norm.weight", "ffn_gate_inp.weight", ".bias")  # small, and the same on every executor


class Synthetic(Container):
    """A container of random tensors; on the host, all of a format share one run of blocks."""

    def __init__(self, name: str, shape: Shape) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kompute-llm-")
        self.header = Path(self._folder.name, "model.gguf")
        write_header(self.header, name, shape)
        real = open_model(self.header)
        path = Path(PREFIX + name)
        # formats of int containers, which GGUF has not, stand in the header as bytes
        self._foreign = {n: FORMATS[f] for n, s, f in tensors(shape)
                         if FORMATS[f].type_id < 0 and s[-1] % FORMATS[f].elems == 0}  # fmt: skip
        shapes = {n: s for n, s, _ in tensors(shape)}
        found = dict(real.tensors)
        for n, fmt in self._foreign.items():
            found[n] = replace(found[n], shape=shapes[n], type_id=fmt.type_id)
        super().__init__(path, (path,), real.metadata, found, real._maps)
        self._tiles: dict[str, Bytes] = {}

    def raw(self, t: Tensor) -> Bytes:
        """Random blocks; ones for norms, small numbers for routers."""
        if t.name.endswith("norm.weight"):
            return np.ones(t.nbytes // 4, np.float32).view(np.uint8)
        fmt = BY_TYPE[t.type_id]
        start = t.offset // 32 % STARTS // 32 * 32 * fmt.bytes
        return self._tile(fmt, start + t.nbytes)[start : start + t.nbytes]

    def matrix(self, name: str, *shape: int) -> Matrix:
        """Rows whose bytes are made only if the host reads them; a device has random ones of its
        own (engine/random_fill.py)."""
        t = self.tensor(name, shape)
        if name.endswith(HOST):
            return super().matrix(name, *shape)
        return RandomMatrix(
            BY_TYPE[t.type_id], math.prod(shape[:-1]), shape[-1], name, lambda: self.raw(t)
        )

    def _tile(self, fmt: Format, least: int) -> Bytes:
        """At least that many bytes of blocks of a format: BASE of them, or for all tensors."""
        if fmt.name not in self._tiles:
            self._tiles[fmt.name] = random_blocks(fmt, BASE).reshape(-1)
        if len(self._tiles[fmt.name]) < least:
            most = max(t.nbytes for t in self.tensors.values() if t.type_id == fmt.type_id)
            self._tiles[fmt.name] = np.resize(self._tiles[fmt.name], most + STARTS * fmt.bytes)
        return self._tiles[fmt.name]

    def close(self) -> None:
        """Unmap and remove the header."""
        super().close()
        self._tiles.clear()
        self._folder.cleanup()

    def export(self, path: Path) -> int:
        """Write the model as a GGUF file; returns its bytes. Raises UsageError for formats that
        GGUF does not have, FileError where writing fails."""
        for name, fmt in self._foreign.items():
            raise UsageError(f"{path}: GGUF has no format {fmt.name}, which {name} has")
        try:
            shutil.copyfile(self.header, path)
            with path.open("r+b") as f:
                for t in self.tensors.values():
                    f.seek(t.offset)
                    f.write(self.raw(t).data)
            return path.stat().st_size
        except OSError as e:
            raise FileError(f"{path}: {e.strerror}") from e
