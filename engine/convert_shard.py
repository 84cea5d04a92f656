"""One output shard: written in pieces, read back and compared with the source, then renamed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .blocks import Bytes, Floats
from .convert_formats import Stream, Target, part_of
from .convert_manifest import PART, ConvertError, rename
from .convert_source import Source
from .tensor import Tensor

PIECE = 1 << 22  # values that are in work at a time: 16 MB of float32 and a few copies
HASHED = 1 << 22
Progress = Callable[[int], None]  # source values done since the last call


@dataclass(frozen=True)
class Job:
    """A tensor to convert."""

    tensor: Tensor
    target: Target

    @property
    def streams(self) -> list[Stream]:
        """What is written for it."""
        return self.target.streams(self.tensor.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all streams."""
        rows = int(np.prod(self.tensor.shape[:-1]))
        return rows * sum(s.row_bytes for s in self.streams)


@dataclass
class Errors:
    """What rounding did to the values of one part in one format."""

    tensors: int = 0
    values: int = 0
    nbytes: int = 0
    worst: float = 0.0  # largest absolute difference
    squares: float = 0.0  # sum of squared differences
    reference: float = 0.0  # sum of squared values

    @property
    def nmse(self) -> float:
        """Squared error over squared values."""
        return self.squares / self.reference if self.reference else 0.0

    def add(self, other: Errors) -> None:
        """Take over another shard's."""
        self.worst = max(self.worst, other.worst)
        for name in ("tensors", "values", "nbytes", "squares", "reference"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def pieces(source: Source, t: Tensor) -> Iterator[tuple[int, Floats]]:
    """Runs of rows: (first row, values)."""
    rows, step = source.rows(t), max(1, PIECE // max(t.cols, 1))
    for start in range(0, rows, step):
        yield start, source.values(t, start, min(start + step, rows))


def write_shard(
    path: Path, head: bytes, places: Mapping[str, int], size: int, jobs: Sequence[Job],
    source: Source, progress: Progress,
) -> dict[str, Any]:
    """Write `path` whole or not at all; returns its size, sha256 and errors for the manifest.

    `places` are offsets by tensor name (with a stream's suffix). Raises ConvertError when the file
    does not read back as it should.
    """
    part = path.with_name(f".{path.name}{PART}")
    with open(part, "wb+") as f:
        f.write(head)
        for job in jobs:
            _write(f, job, places, source, progress)
        f.truncate(size)  # padding after the last tensor
        f.flush()
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # read back what the disk has
        errors = _verify(f, path, jobs, places, source, progress)
        digest = _sha256(f)
    rename(part, path)
    return {"bytes": size, "sha256": digest, "errors": {k: asdict(e) for k, e in errors.items()}}


def _write(
    f: BinaryIO, job: Job, places: Mapping[str, int], source: Source, progress: Progress
) -> None:
    for first, x in pieces(source, job.tensor):
        for stream, data in zip(job.streams, job.target.encode(x), strict=True):
            f.seek(places[job.tensor.name + stream.suffix] + first * stream.row_bytes)
            f.write(np.ascontiguousarray(data).data)
        progress(x.size)


def _verify(
    f: BinaryIO, path: Path, jobs: Sequence[Job], places: Mapping[str, int], source: Source,
    progress: Progress,
) -> dict[str, Errors]:
    """Decode what lies in the file and hold it against the source; errors by "part format"."""
    found: dict[str, Errors] = {}
    for job in jobs:
        t = job.tensor
        e = found.setdefault(f"{part_of(t)} {job.target.name}", Errors())
        e.tensors, e.nbytes = e.tensors + 1, e.nbytes + job.nbytes
        for first, x in pieces(source, t):
            streams = [_read(f, places[t.name + s.suffix], s, first, len(x)) for s in job.streams]
            off = np.abs(job.target.decode(streams, t.cols) - x)
            if not (off <= job.target.bound(x, streams)).all():
                raise ConvertError(f"{path}: tensor {t.name!r} does not read back as written: "
                                   f"off by {float(np.nanmax(off)):.3g}; is the disk sound?")
            e.values += x.size
            e.worst = max(e.worst, float(off.max()))
            e.squares += float(np.square(off, dtype=np.float64).sum())
            e.reference += float(np.square(x, dtype=np.float64).sum())
            progress(x.size)
    return found


def _read(f: BinaryIO, place: int, s: Stream, first: int, rows: int) -> Bytes:
    f.seek(place + first * s.row_bytes)
    data = f.read(rows * s.row_bytes)
    return np.frombuffer(data, np.uint8).reshape(rows, s.row_bytes)


def _sha256(f: BinaryIO) -> str:
    f.seek(0)
    digest = hashlib.sha256()
    while block := f.read(HASHED):
        digest.update(block)
    return digest.hexdigest()
