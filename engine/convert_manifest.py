"""The record of a conversion in its folder: what it was asked for and which shards are finished.

Every change is written to a temporary name, synced and renamed, so that a kill at any time leaves
the old record or the new one. A folder is locked while a conversion works in it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import KomputeLLMError
from .json_file import read_json

NAME = "convert.json"
MADE_BY = "kompute-llm convert"
VERSION = 1
PART = ".part"  # suffix of what is not finished


class ConvertError(KomputeLLMError):
    """A conversion cannot begin, go on, or be trusted."""


@dataclass
class Manifest:
    """`plan` is what must not change between runs; `done` maps finished shards to what was
    written and measured."""

    folder: Path
    plan: dict[str, Any]
    done: dict[str, dict[str, Any]] = field(default_factory=dict)

    def finish(self, shard: str, facts: Mapping[str, Any]) -> None:
        """Note a shard as written and verified."""
        self.done[shard] = dict(facts)
        self.save()

    def save(self) -> None:
        """Write the record."""
        value = {"made_by": MADE_BY, "version": VERSION, "plan": self.plan, "done": self.done}
        write_file(self.folder / NAME, json.dumps(value, indent=1).encode())


def open_manifest(folder: Path, plan: Mapping[str, Any]) -> Manifest:
    """Begin in an empty or new folder, or go on where the same conversion stopped.

    Raises ConvertError where the folder holds anything else: nothing is ever overwritten.
    """
    path, fixed = folder / NAME, json.loads(json.dumps(plan))
    if not path.exists():
        others = sorted(p.name for p in folder.iterdir() if p.name != NAME + PART)
        if others:
            shown = ", ".join(others[:5]) + (", …" if len(others) > 5 else "")
            raise ConvertError(f"{folder}: not empty, and nothing there says that this command "
                               f"made it ({shown}); choose a new folder")  # fmt: skip
        manifest = Manifest(folder, fixed)
        manifest.save()
        return manifest
    value = read_json(path)
    if value.get("made_by") != MADE_BY or value.get("version") != VERSION:
        raise ConvertError(f"{path}: was not written by this version of '{MADE_BY}'")
    known, done = value.get("plan"), value.get("done")
    if not isinstance(known, dict) or not isinstance(done, dict):
        raise ConvertError(f"{path}: is damaged; choose a new folder")
    _refuse_changes(path, known, fixed)
    return Manifest(folder, fixed, {n: f for n, f in done.items() if _is_whole(folder, n, f)})


def _refuse_changes(path: Path, known: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for key in now:
        if known.get(key) != now[key]:
            raise ConvertError(
                f"{path}: began with other {key}: {_short(known.get(key))}, now "
                f"{_short(now[key])}; give the same options and source to go on, or choose a new "
                "folder"
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "…"


def _is_whole(folder: Path, name: str, facts: Any) -> bool:
    try:
        return bool((folder / name).stat().st_size == facts["bytes"])
    except (OSError, KeyError, TypeError):
        return False


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a second conversion out of the folder; ends with the process at the latest."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConvertError(f"{folder}: another conversion is at work there") from None
        yield
    finally:
        os.close(fd)


def write_file(path: Path, data: bytes) -> None:
    """Write a small file so that it is whole or absent."""
    part = path.with_name(path.name + PART)
    with open(part, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    rename(part, path)


def rename(part: Path, path: Path) -> None:
    """Give a synced file its final name, and sync the folder."""
    os.replace(part, path)
    fd = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
