"""Conversion of a model to an int container or to GGUF, shard by shard, in bounded memory.

The source is any model that opens, under its GGUF names. An int container gets its metadata as
metadata.gguf, its tensors in numbered safetensors shards; each shard is verified before it gets its
name, and a run that was stopped goes on with the first shard that is missing.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGMLQuantizationType

from .container import open_model
from .convert_formats import Choice, IntTarget
from .convert_manifest import ConvertError, Manifest, locked, open_manifest, write_file
from .convert_shard import Errors, Job, write_shard
from .convert_source import Source
from .errors import FileError, UsageError
from .gguf_write import Row, file_bytes, header, pairs
from .int_container import METADATA
from .int_formats import SHAPES, STAMP, STAMP_LIMIT, FormatProblem, Sizes, infer
from .int_stored import INDEX
from .safetensors import header_bytes

SHARD_BYTES = 1 << 30
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9,
              "BF16": 32}  # fmt: skip
SPARE = 64 << 20  # bytes to leave on the disk


@dataclass(frozen=True)
class Report:
    """What a conversion did: errors by "part format", shards written now and found finished."""

    errors: dict[str, Errors]
    written: int
    kept: int
    nbytes: int


class Conversion:
    """One conversion, planned: nothing is written before `run`."""

    def __init__(
        self, src: Path, dst: Path, choice: Choice, shard_bytes: int = SHARD_BYTES
    ) -> None:
        self.dst, self.choice = dst, choice
        _refuse_places(src, dst)
        self.source = Source(open_model(src))
        self._src = src
        jobs = [Job(t, choice.of(t)) for t in self.source.tensors.values()]
        if not jobs:
            raise ConvertError(f"{src}: holds no tensors")
        self.shards = _shards(jobs, shard_bytes)
        count = len(self.shards)
        end = "gguf" if choice.gguf else "safetensors"
        single = choice.gguf and count == 1  # llama.cpp names split models only
        self.names = ["model.gguf"] if single else [
            f"model-{i + 1:05d}-of-{count:05d}.{end}" for i in range(count)
        ]  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes of weights that will be written."""
        return sum(job.nbytes for shard in self.shards for job in shard)

    @property
    def work(self) -> int:
        """Values to encode and verify: what progress counts up to."""
        return 2 * sum(job.tensor.elems for shard in self.shards for job in shard)

    def close(self) -> None:
        """Unmap the source."""
        self.source.container.close()

    def run(self, progress: Callable[[int, int], None]) -> Report:
        """Write what is missing; `progress(done, total)` may raise to stop. Raises ConvertError."""
        self.dst.mkdir(parents=True, exist_ok=True)
        with locked(self.dst):
            manifest = open_manifest(self.dst, self._plan())
            self._check_space(manifest)
            kept = len(manifest.done)
            if not self.choice.gguf:
                self._describe()
            done = 0
            for i, name in enumerate(self.names):
                if name not in manifest.done:

                    def step(values: int) -> None:
                        nonlocal done
                        done += values
                        progress(done, self.work)

                    manifest.finish(name, self._write(i, step))
                else:
                    done += 2 * sum(job.tensor.elems for job in self.shards[i])
                    progress(done, self.work)
            if not self.choice.gguf:
                self._index(manifest)
        return self._report(manifest, kept)

    def _plan(self) -> dict[str, Any]:
        formats = {"container": "gguf" if self.choice.gguf else "int", **self.choice.names}
        return {"options": formats, "shards": self.names, "source": self.source.fingerprint()}

    def _check_space(self, manifest: Manifest) -> None:
        left = [s for n, s in zip(self.names, self.shards, strict=True) if n not in manifest.done]
        need = sum(job.nbytes for shard in left for job in shard)
        free = shutil.disk_usage(self.dst).free
        if need + SPARE > free:
            raise ConvertError(f"{self.dst}: {need + SPARE} bytes are needed, {free} are free")

    # --- shards ------------------------------------------------------------------------------

    def _write(self, i: int, step: Callable[[int], None]) -> dict[str, Any]:
        jobs, path = self.shards[i], self.dst / self.names[i]
        if self.choice.gguf:
            head, places, size = self._gguf_head(i)
        else:
            count = sum(isinstance(j.target, IntTarget) for shard in self.shards for j in shard)
            head, places, size = _container_head(jobs, stamp_all=count <= STAMP_LIMIT)
        return write_shard(path, head, places, size, jobs, self.source, step)

    def _gguf_head(self, i: int) -> tuple[bytes, dict[str, int], int]:
        rows = [
            Row(j.tensor.name, j.tensor.shape, int(GGMLQuantizationType[j.target.name]), j.nbytes)
            for j in self.shards[i]
        ]
        keys: dict[str, bytes] = {}
        if i == 0:
            changes = {"general.file_type": FILE_TYPES[self.choice.default.name],
                       "general.quantization_version": 2}  # fmt: skip
            keys = pairs(self.source.container.metadata, changes)
        if len(self.shards) > 1:
            total = sum(len(shard) for shard in self.shards)
            keys |= _split_keys(i, len(self.shards), total)
        head, places = header(keys, rows)
        return head, places, file_bytes(rows, len(head))

    # --- beside the shards -------------------------------------------------------------------

    def _describe(self) -> None:
        """metadata.gguf, and config.json as the source has it (for readers of other programs)."""
        keys = pairs(self.source.container.metadata, {"general.file_type": None})
        write_file(self.dst / METADATA, header(keys, [])[0])
        config = self._src / "config.json"
        if config.is_file():
            write_file(self.dst / "config.json", config.read_bytes())

    def _index(self, manifest: Manifest) -> None:
        table = {
            job.tensor.name + s.suffix: name
            for name, shard in zip(self.names, self.shards, strict=True)
            for job in shard for s in job.streams
        }  # fmt: skip
        total = sum(int(facts["bytes"]) for facts in manifest.done.values())
        value = {"metadata": {"total_size": total}, "weight_map": table}
        write_file(self.dst / INDEX, json.dumps(value).encode())

    def _report(self, manifest: Manifest, kept: int) -> Report:
        errors: dict[str, Errors] = {}
        for facts in manifest.done.values():
            for key, values in facts["errors"].items():
                errors.setdefault(key, Errors()).add(Errors(**values))
        size = sum(int(facts["bytes"]) for facts in manifest.done.values())
        return Report(errors, len(self.names) - kept, kept, size)


def _refuse_places(src: Path, dst: Path) -> None:
    """DST must be a folder of its own."""
    if dst.exists() and not dst.is_dir():
        raise FileError(f"{dst}: is a file; give a folder for the result")
    if dst.suffix in (".gguf", ".safetensors"):
        raise UsageError(f"{dst}: give a folder for the result, not a file")
    inside = src if src.is_dir() else src.parent
    if dst.exists() and inside.exists() and dst.resolve() == inside.resolve():
        raise UsageError(f"{dst}: holds the source; give another folder")


def _shards(jobs: Sequence[Job], most: int) -> list[list[Job]]:
    """Runs of jobs of about `most` bytes; a larger tensor is a shard of its own."""
    out: list[list[Job]] = [[]]
    size = 0
    for job in jobs:
        if out[-1] and size + job.nbytes > most:
            out.append([])
            size = 0
        out[-1].append(job)
        size += job.nbytes
    return out


def _container_head(
    jobs: Sequence[Job], stamp_all: bool
) -> tuple[bytes, dict[str, int], int]:
    """Header, offsets and size of a safetensors shard. Other readers of the format bound the number
    of stamps, so a model of many tensors stamps those alone that byte counts do not settle."""
    entries, shapes, stamps = {}, {}, {}
    for job in jobs:
        for s in job.streams:
            entries[job.tensor.name + s.suffix] = (s.dtype, s.shape)
        if isinstance(job.target, IntTarget):
            shapes[job.tensor.name] = list(job.tensor.shape)
            if stamp_all or _needs_stamp(job):
                stamps[job.tensor.name] = job.target.kind.name
    metadata = {"format": "np"}
    if shapes:
        metadata |= {SHAPES: json.dumps(shapes), STAMP: json.dumps(stamps)}
    head, places = header_bytes(entries, metadata)
    return head, places, len(head) + sum(job.nbytes for job in jobs)


def _needs_stamp(job: Job) -> bool:
    if not isinstance(job.target, IntTarget):
        return False
    rows, cols = job.tensor.elems // job.tensor.cols, job.tensor.cols
    packed, scales = job.streams
    count = rows * scales.row_bytes // 4
    try:
        infer(Sizes(rows, cols, rows * packed.row_bytes, count, "F32", scales.shape))
    except FormatProblem:
        return True
    return False


def _split_keys(i: int, count: int, tensors: int) -> dict[str, bytes]:
    """split.no and split.count are uint16, split.tensors.count int32 (llama.cpp, gguf-split)."""
    return {
        "split.no": struct.pack("<IH", 2, i),
        "split.count": struct.pack("<IH", 2, count),
        "split.tensors.count": struct.pack("<Ii", 5, tensors),
    }
