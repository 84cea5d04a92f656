"""Split GGUF models: from any shard, the whole set; what is missing, swapped or joined by hand.

The names follow NAME-00002-of-00005.gguf and each shard carries split.no (from 0), split.count
and split.tensors.count (llama.cpp, tools/gguf-split).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from .errors import ModelError
from .gguf import GGUFFile, read_gguf

NAME = re.compile(r"(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf", re.S)
MAX_LISTED = 20


def read_set(path: Path) -> list[GGUFFile]:
    """The file, or all shards of the set it belongs to, in order."""
    given = read_gguf(path)
    _refuse_joined(given)
    count = _integer(given, "split.count", 1)
    if count <= 1:  # also what a single "-00001-of-00001" file says, with or without the key
        return [given]
    number = _integer(given, "split.no", 0)
    paths = shard_paths(path, count, number)
    _refuse_missing(path, paths)
    first = given if paths[0] == path else read_gguf(paths[0])
    files = [first] + [read_gguf(p, first.alignment) for p in paths[1:]]
    for i, f in enumerate(files):
        _refuse_joined(f)
        _check_member(f, i, count)
    _check_tensor_count(files)
    return files


def shard_paths(path: Path, count: int, number: int) -> list[Path]:
    """Names of all shards beside `path`, whose header says shard `number` of `count`."""
    name = NAME.fullmatch(path.name)
    if not name:
        raise ModelError(
            path,
            f"this is shard {number + 1} of {count} of a split model, but the name does not end in "
            f"-{number + 1:05d}-of-{count:05d}.gguf, so the other shards cannot be found; give all "
            "shards their original names",
        )
    if int(name["count"]) != count:
        raise ModelError(
            path,
            f"the name says {int(name['count'])} shards, expected {count}",
            "key 'split.count'",
        )
    return [path.with_name(f"{name['stem']}-{i + 1:05d}-of-{count:05d}.gguf") for i in range(count)]


def _integer(f: GGUFFile, key: str, default: int) -> int:
    value = f.metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ModelError(f.path, f"expected a count, got {value!r}", f"key {key!r}")
    return value


def _refuse_missing(path: Path, paths: Sequence[Path]) -> None:
    missing = [p.name for p in paths if not os.path.exists(p)]
    if missing:
        more = f" and {len(missing) - MAX_LISTED} more" if len(missing) > MAX_LISTED else ""
        raise ModelError(
            path,
            f"{len(missing)} of {len(paths)} shards of this split model are missing in "
            f"{path.parent}: {', '.join(missing[:MAX_LISTED])}{more}",
        )


def _refuse_joined(f: GGUFFile) -> None:
    """Shards joined with cat: another header follows the data (padded or not) of the first."""
    at = f.data.find(b"GGUF", f.end, f.end + f.alignment + 4)
    if at < 0:
        return
    if _integer(f, "split.count", 1) > 1:
        raise ModelError(
            f.path,
            f"several shards of a split model were joined byte by byte (the next one starts at "
            f"offset {at}); keep the shards apart, or join them with "
            "`llama-gguf-split --merge FIRST-SHARD OUT.gguf`",
        )
    raise ModelError(f.path, f"a second GGUF file follows at offset {at}; separate the two")


def _check_member(f: GGUFFile, i: int, count: int) -> None:
    own_count, number = _integer(f, "split.count", 0), _integer(f, "split.no", 0)
    if own_count != count:
        raise ModelError(
            f.path,
            f"is {own_count or 'absent'}, expected {count}: the file is not a shard of this model",
            "key 'split.count'",
        )
    if number != i:
        raise ModelError(
            f.path,
            f"the name says shard {i + 1} of {count}, the content is shard {number + 1}: files of "
            "the set were renamed or swapped",
            "key 'split.no'",
        )


def _check_tensor_count(files: Sequence[GGUFFile]) -> None:
    found = sum(len(f.tensors) for f in files)
    for f in files:
        expected = _integer(f, "split.tensors.count", found)
        if expected != found:
            raise ModelError(
                f.path,
                f"expected {expected} tensors in the {len(files)} shards, found {found}: shards of "
                "different models or versions are mixed",
                "key 'split.tensors.count'",
            )
