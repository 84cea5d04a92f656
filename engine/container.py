"""Open a model: any file, shard or folder, as one container of metadata and mapped tensors.

This is the boundary to file formats: `open_model` looks at the first bytes and hands over to the
reader that knows them. Nothing after it knows in what kind of file the weights lie.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from .blocks import BY_TYPE, FORMATS, Bytes, Floats, Matrix
from .errors import ModelError
from .gguf import GGUFFile
from .gguf_shards import NAME, read_set
from .gguf_values import Entry, Metadata
from .tensor import Tensor

__all__ = ["Container", "Tensor", "open_model"]


class Container:
    """Metadata and tensors of one model. Bytes are views of the memory-mapped files.

    `path` is what was opened, `paths` are its shards in order.
    """

    def __init__(
        self,
        path: Path,
        paths: tuple[Path, ...],
        metadata: Metadata,
        tensors: Mapping[str, Tensor],
        maps: Sequence[mmap.mmap],
    ) -> None:
        self.path, self.paths, self.metadata, self.tensors = path, paths, metadata, tensors
        self._maps = list(maps)

    def fail(self, name: str, problem: str) -> ModelError:
        """An error about one tensor, naming the shard it lies in."""
        t = self.tensors.get(name)
        return ModelError(self.paths[t.shard] if t else self.path, problem, f"tensor {name!r}")

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor of that name, which must exist and have that shape (NumPy order)."""
        if name not in self.tensors:
            raise self.fail(name, f"missing; expected shape {shape}")
        t = self.tensors[name]
        if t.shape != shape:
            raise self.fail(name, f"expected shape {shape}, got {t.shape}")
        if t.type_id not in BY_TYPE:
            raise self.fail(
                name, f"format {t.format_name} is not supported; supported: {', '.join(FORMATS)}"
            )
        return t

    def raw(self, t: Tensor) -> Bytes:
        """The bytes of a tensor, uint8 (nbytes,), read-only, not copied."""
        return np.frombuffer(self._maps[t.shard], np.uint8, t.nbytes, t.offset)

    def matrix(self, name: str, *shape: int) -> Matrix:
        """A tensor as the file holds it, as rows of its last axis; only an alignment below 4 makes
        a copy."""
        t = self.tensor(name, shape)
        raw = self.raw(t)
        return Matrix.of(BY_TYPE[t.type_id], raw if t.offset % 4 == 0 else raw.copy(), shape[-1])

    def vector(self, name: str, n: int) -> Floats:
        """A 1-D tensor as float32 (n,), a copy."""
        t = self.tensor(name, (n,))
        values: Floats = Matrix.of(BY_TYPE[t.type_id], self.raw(t), n).dequantize()[0].copy()
        return values

    def close(self) -> None:
        """Unmap the files. Those with views still in use stay mapped until the last one goes;
        metadata that was not read before cannot be read afterwards."""
        for m in self._maps:
            with contextlib.suppress(BufferError):
                m.close()
        self._maps.clear()

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_model(path: str | Path) -> Container:
    """Open a model file, any shard of a split model, or a folder that holds exactly one model."""
    given = Path(os.path.expanduser(path))
    if holds_shards(given) or given.suffix == ".safetensors":
        from .int_container import open_folder

        return open_folder(given if os.path.isdir(given) else given.parent)
    file = _model_in(given) if os.path.isdir(given) else given
    return _join(file, read_set(file))


def holds_shards(path: Path) -> bool:
    """Whether a path is a folder of safetensors shards with what describes them."""
    described = any(os.path.exists(path / name) for name in ("config.json", "metadata.gguf"))
    return described and any(path.glob("*.safetensors"))


def _model_in(folder: Path) -> Path:
    """The one model of a folder: a .gguf file, or the first shard found of a split model.

    Vision projectors (mmproj) lie beside the model they belong to and are not counted.
    """
    try:
        files = sorted(p for p in folder.iterdir() if p.name.endswith(".gguf"))
    except OSError as e:
        raise ModelError(folder, f"cannot be listed: {e.strerror}") from None
    models: dict[str, Path] = {}
    for p in files:
        if "mmproj" in p.name.lower():
            continue
        name = NAME.fullmatch(p.name)
        models.setdefault(f"{name['stem']}-of-{name['count']}" if name else p.name, p)
    if not models:
        raise ModelError(folder, "the folder holds no .gguf file")
    if len(models) > 1:
        names = ", ".join(p.name for p in models.values())
        raise ModelError(folder, f"the folder holds {len(models)} models; name one of: {names}")
    return next(iter(models.values()))


def _join(path: Path, files: Sequence[GGUFFile]) -> Container:
    """One container of all shards; a name used in two of them is refused."""
    entries: dict[str, Entry] = {}
    tensors: dict[str, Tensor] = {}
    for i, f in enumerate(files):
        for key, entry in f.metadata.entries.items():
            known = entries.setdefault(key, entry)
            if not key.startswith("split.") and _differ(known, entry):
                raise ModelError(
                    f.path,
                    f"given twice with different values: at offset {known.key_offset} of "
                    f"{known.path.name} and at offset {entry.key_offset} of {f.path.name}",
                    f"key {key!r}",
                )
        for name, t in f.tensors.items():
            if name in tensors:
                first = files[tensors[name].shard]
                raise ModelError(
                    f.path,
                    f"given twice: at offset {first.infos[name]} of {first.path.name} and at "
                    f"offset {f.infos[name]} of {f.path.name}",
                    f"tensor {name!r}",
                )
            tensors[name] = Tensor(name, t.shape, t.type_id, t.offset, t.nbytes, shard=i)
    paths = tuple(f.path for f in files)
    return Container(path, paths, Metadata(entries), tensors, [f.data for f in files])


def _differ(a: Entry, b: Entry) -> bool:
    return a is not b and (a.type_id != b.type_id or a.raw != b.raw)
