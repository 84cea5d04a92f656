"""Folders of safetensors: every shard's tensors, stamps and shapes; which shards are missing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import ModelError
from .int_formats import SHAPES, STAMP
from .json_file import read_json
from .safetensors import SafetensorsFile, Stored, read_safetensors

NUMBERED = re.compile(r"(?P<stem>.*?)-?(?P<no>\d{5})(?:-of-(?P<count>\d{5}))?\.safetensors")
INDEX = "model.safetensors.index.json"
MAX_LISTED = 20


@dataclass
class Folder:
    """What lies in a folder, before anyone asks what model it is."""

    path: Path
    files: list[SafetensorsFile]
    tensors: dict[str, Stored] = field(default_factory=dict)
    stamps: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)  # names of shards that should be there

    @property
    def without(self) -> str:
        """What to add to a message about missing tensors: "; shards missing: …"."""
        if not self.missing:
            return ""
        more = f" and {len(self.missing) - MAX_LISTED} more" * (len(self.missing) > MAX_LISTED)
        return f"; shards missing in the folder: {', '.join(self.missing[:MAX_LISTED])}{more}"


def read_folder(path: Path) -> Folder:
    """All shards of a folder. Raises ModelError for damaged files and contradictions."""
    try:
        names = sorted(p.name for p in path.iterdir() if p.name.endswith(".safetensors"))
    except OSError as e:
        raise ModelError(path, f"cannot be listed: {e.strerror}") from None
    if not names:
        raise ModelError(path, "the folder holds no .safetensors file")
    folder = Folder(path, [read_safetensors(path / name) for name in names])
    for f in folder.files:
        for name, t in f.tensors.items():
            if name in folder.tensors:
                other = folder.tensors[name]
                raise ModelError(
                    f.path, f"given twice: at offset {other.offset} of {other.path.name} and at "
                    f"offset {t.offset} of {f.path.name}", f"tensor {name!r}",
                )  # fmt: skip
            folder.tensors[name] = t
        _add_stamps(folder, f)
        _add_shapes(folder, f)
    folder.missing = _missing(path, names, folder)
    return folder


def _object(f: SafetensorsFile, key: str) -> dict[str, Any]:
    if key not in f.metadata:
        return {}
    try:
        found = json.loads(f.metadata[key])
    except (ValueError, RecursionError) as e:
        raise ModelError(f.path, f"is not JSON: {e}", f"metadata {key!r}") from None
    if not isinstance(found, dict):
        raise ModelError(f.path, "is not a JSON object", f"metadata {key!r}")
    return found


def _add_stamps(folder: Folder, f: SafetensorsFile) -> None:
    for name, stamp in _object(f, STAMP).items():
        if not isinstance(stamp, str):
            raise ModelError(f.path, f"the stamp of {name!r} is no name: {stamp!r:.40}",
                             f"metadata {STAMP!r}")  # fmt: skip
        known = folder.stamps.setdefault(name, stamp)
        if known != stamp:
            raise ModelError(f.path, f"tensor {name!r} is stamped both {known!r} and {stamp!r}",
                             f"metadata {STAMP!r}")  # fmt: skip


def _add_shapes(folder: Folder, f: SafetensorsFile) -> None:
    for name, shape in _object(f, SHAPES).items():
        good = isinstance(shape, list) and all(
            isinstance(n, int) and not isinstance(n, bool) and 0 < n < 1 << 40 for n in shape
        )
        if not good or not shape:
            raise ModelError(f.path, f"{shape!r:.60} is no shape of tensor {name!r}",
                             f"metadata {SHAPES!r}")  # fmt: skip
        folder.shapes[name] = tuple(shape)


def _missing(path: Path, names: list[str], folder: Folder) -> list[str]:
    """Shards that the index or the numbers of the others say should be there."""
    gone: list[str] = []
    if (path / INDEX).exists():
        table = read_json(path / INDEX).get("weight_map")
        if isinstance(table, dict):
            wanted = {str(v) for v in table.values()}
            gone += sorted(wanted - set(names))
    series: dict[tuple[str, str], set[int]] = {}
    for m in filter(None, map(NUMBERED.fullmatch, names)):
        series.setdefault((m["stem"], m["count"] or ""), set()).add(int(m["no"]))
    for (stem, count), numbers in series.items():
        first = 1 if count else 0  # "of" counts from 1; without it, the first one found is 0
        last = int(count) if count else max(numbers)
        dash = "-" if stem else ""
        tail = f"-of-{count}" if count else ""
        for no in range(first, last + 1):
            name = f"{stem}{dash}{no:05d}{tail}.safetensors"
            if no not in numbers and name not in gone:
                gone.append(name)
    return gone
