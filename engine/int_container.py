"""Int containers: a folder of safetensors shards as a Container with GGUF names and keys.

`NAME` (uint8) with `NAME.qs` is a packed matrix (int_formats.py); float8 with `NAME_scale_inv` is
the same in 128 x 128 blocks; everything else holds plain floats. What the model is says config.json
(hf_config.py, hf_names.py, hf_tokenizer.py), or metadata.gguf: the keys of the GGUF file that a
container was converted from, whose tensors then have GGUF names.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .blocks import BY_TYPE, Bytes, Floats, Matrix
from .checks import MAX_LISTED, by_layer
from .container import Container
from .errors import ModelError
from .gguf import read_gguf
from .gguf_values import Metadata
from .hf_config import config_keys
from .hf_names import EXPERT, Names, gguf_rows
from .hf_tokenizer import tokenizer_keys
from .int_formats import FP8_BLOCK, FormatProblem, Sizes, infer, up
from .int_matrix import RowsMatrix, encode, engine_format, mapped
from .int_rows import FP8, Packed, Plain, Rows
from .int_stored import Folder, read_folder
from .json_file import read_config
from .safetensors import Stored
from .tensor import Tensor

METADATA = "metadata.gguf"
Shape = tuple[int, ...]


class ValueMetadata(Metadata):
    """Metadata made of values instead of a header's bytes."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__({})
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def count(self, key: str) -> int | None:
        """Length of an array, or None."""
        value = self._values.get(key)
        return len(value) if isinstance(value, list | np.ndarray) else None


class IntContainer(Container):
    """A folder of safetensors shards. `rows` has every tensor's rows by GGUF name."""

    def __init__(
        self, folder: Folder, metadata: Metadata, rows: Mapping[str, tuple[Rows, Shape]]
    ) -> None:
        self.folder = folder
        self.rows = {name: r for name, (r, _) in rows.items()}
        tensors = {name: _tensor(name, r, shape) for name, (r, shape) in rows.items()}
        paths = tuple(f.path for f in folder.files)
        super().__init__(folder.path, paths, metadata, tensors, [f.data for f in folder.files])

    def fail(self, name: str, problem: str) -> ModelError:
        """An error about one tensor; it may lie in several shards, so the folder is named."""
        return ModelError(self.path, problem, f"tensor {name!r}")

    def raw(self, t: Tensor) -> Bytes:
        """The bytes of a tensor in its engine format, made where no file holds them so."""
        rows, fmt = self.rows[t.name], BY_TYPE[t.type_id]
        there = mapped(rows, fmt)
        return encode(rows, fmt, 0, rows.rows).reshape(-1) if there is None else there

    def matrix(self, name: str, *shape: int) -> Matrix:
        """A tensor as rows of its last axis; its bytes are packed when they are first needed."""
        t = self.tensor(name, shape)
        return self._matrix(t)

    def _matrix(self, t: Tensor) -> Matrix:
        source, fmt = self.rows[t.name], BY_TYPE[t.type_id]
        there = mapped(source, fmt)
        if there is not None and there.ctypes.data % 4 == 0:
            return Matrix.of(fmt, there, source.cols)
        return RowsMatrix(fmt, source)

    def vector(self, name: str, n: int) -> Floats:
        """A 1-D tensor as float32 (n,)."""
        self.tensor(name, (n,))
        return self.rows[name].values().reshape(-1).copy()


def _tensor(name: str, rows: Rows, shape: Shape) -> Tensor:
    fmt = engine_format(rows)
    return Tensor(name, shape, fmt.type_id, 0, rows.rows * fmt.row_bytes(rows.cols))


# --- opening -----------------------------------------------------------------------------------


def open_folder(path: Path) -> IntContainer:
    """Open a folder of safetensors shards. Missing shards, layers and experts are listed."""
    described = [name for name in (METADATA, "config.json") if (path / name).exists()]
    if not described:
        raise ModelError(path, "holds safetensors, but neither config.json nor metadata.gguf says "
                               "what model they are")  # fmt: skip
    others = [p.name for p in path.glob("*.gguf") if p.name != METADATA and "mmproj" not in p.name]
    if others:
        raise ModelError(path, f"holds safetensors and {', '.join(sorted(others)[:3])}; name the "
                               ".gguf file, or keep the two apart")  # fmt: skip
    folder = read_folder(path)
    if METADATA in described:
        return _with_gguf_names(folder)
    config = read_config(path)
    keys = config_keys(config)
    names = Names(config, keys["general.architecture"])
    _refuse_incomplete(folder, names)
    found = hf_rows(folder, names)
    keys |= _draft_layers(names, found) | tokenizer_keys(path, config)
    return IntContainer(folder, ValueMetadata(keys), gguf_rows(names, found))


def _with_gguf_names(folder: Folder) -> IntContainer:
    if folder.missing:
        raise ModelError(folder.path, "incomplete" + folder.without)
    metadata = read_gguf(folder.path / METADATA).metadata
    rows: dict[str, tuple[Rows, Shape]] = {}
    for name, t in folder.tensors.items():
        if not name.endswith(".qs"):
            shape = folder.shapes.get(name, t.shape)
            rows[name] = rows_of(folder, t, (math.prod(shape[:-1]), shape[-1])), shape
    return IntContainer(folder, metadata, rows)


def hf_rows(folder: Folder, names: Names) -> dict[str, Rows]:
    """Rows of every tensor of a folder by its Hugging Face name; scales belong to theirs."""
    out: dict[str, Rows] = {}
    for name, t in folder.tensors.items():
        if name.endswith((".qs", "_scale_inv")):
            continue
        stamped = folder.shapes.get(name)
        known = names.shape(name)
        if stamped and known and stamped != known:
            raise t.fail(f"is said to have shape {stamped}, config.json gives {known}")
        out[name] = rows_of(folder, t, stamped or known)
    return out


def rows_of(folder: Folder, t: Stored, shape: Shape | None) -> Rows:
    """The rows of a stored tensor whose logical shape is (O, I), as far as anyone knows."""
    scales = folder.tensors.get(t.name + ".qs")
    if t.dtype == "F8_E4M3":
        return _native_fp8(folder, t)
    if scales is None:
        if t.dtype in ("U8", "I8"):
            raise t.fail(f"is packed ({t.dtype}), but {t.name}.qs is missing{folder.without}")
        return Plain(t)
    if shape is None or len(shape) != 2:
        raise t.fail("is packed, but neither config.json nor the metadata say how many rows and "
                     "inputs it has")  # fmt: skip
    stamp = folder.stamps.get(t.name)
    sizes = Sizes(*shape, t.nbytes, scales.elems, scales.dtype, scales.shape)
    try:
        kind = infer(sizes, stamp)
    except FormatProblem as e:
        raise t.fail(str(e)) from None
    if kind.name == "e8-iq3-lattice":
        _check_tag(scales)
    return Packed(t, scales, kind, *shape)


def _native_fp8(folder: Folder, t: Stored) -> Rows:
    """float8 as checkpoints store it: NAME_scale_inv holds a factor per 128 x 128 block."""
    scales = folder.tensors.get(t.name + "_scale_inv") or folder.tensors.get(t.name + ".qs")
    if scales is None:
        raise t.fail(f"is float8, but {t.name}_scale_inv is missing{folder.without}")
    if len(t.shape) != 2:
        raise t.fail(f"expected 2 dimensions, got shape {t.shape}")
    count = up(t.shape[0], FP8_BLOCK) * up(t.shape[1], FP8_BLOCK)
    if scales.elems != count:
        raise t.fail(f"shape {t.shape} has ceil({t.shape[0]}/128)*ceil({t.shape[1]}/128) = {count} "
                     f"blocks, {scales.name} has {scales.elems} scales")  # fmt: skip
    return Packed(t, scales, FP8, *t.shape)


def _check_tag(scales: Stored) -> None:
    tag = np.frombuffer(scales.raw(), np.float32)
    if scales.dtype != "F32" or tag[0] != 6.0:
        raise scales.fail(f"the tag of a lattice tensor is 6.0, found {scales.dtype} {tag[0]:g}")


def _draft_layers(names: Names, found: Mapping[str, Rows]) -> dict[str, Any]:
    """The draft head's layers are part of a GGUF block count where they are there."""
    layers = names.config.integer("num_hidden_layers")
    extra = names.config.integer("num_nextn_predict_layers", 0)
    count = sum(any(n.startswith(f"model.layers.{layers + i}.") for n in found)
                for i in range(extra))  # fmt: skip
    if not count:
        return {}
    arch = names.arch
    return {f"{arch}.block_count": layers + count, f"{arch}.nextn_predict_layers": count}


def _refuse_incomplete(folder: Folder, names: Names) -> None:
    """Missing tensors, in GGUF's words, with the experts and shards that they lie in."""
    missing = [n for n in names.expected() if n not in folder.tensors]
    if not missing:
        if folder.missing:
            raise ModelError(folder.path, "incomplete" + folder.without)
        return
    plain, experts = [], defaultdict(set)
    for name in missing:
        m = EXPERT.fullmatch(name)
        target = names.target(f"{m[1]}.{m[3]}" if m else name) or name
        if m:
            experts[target].add(int(m[2]))
        else:
            plain.append(target)
    count = len(names.expected())
    text = by_layer([*plain, *experts])
    if experts:
        numbers = sorted({e for found in experts.values() for e in found})
        more = ", …" if len(numbers) > MAX_LISTED else ""
        text += f" (of experts {', '.join(map(str, numbers[:MAX_LISTED]))}{more})"
    raise ModelError(folder.path, f"{len(missing)} of the {count} tensors of this model are "
                                  f"missing: {text}{folder.without}")  # fmt: skip
