"""Read one GGUF file's header: metadata and tensor table, bounded and lazy, on a memory map.

gguf-py's own reader decodes every token into NumPy objects (3.5 s for 49k tokens), so this is a
reader of its own; formats, sizes and names still come from `gguf`. Layout: magic "GGUF", uint32
version, uint64 tensor count, uint64 key count, the pairs, the tensor table, then the data section
on the next multiple of `general.alignment` (ggml/docs/gguf.md).
"""

from __future__ import annotations

import itertools
import mmap
import stat
from dataclasses import dataclass
from pathlib import Path

from .errors import ModelError
from .gguf_values import Cursor, Entry, Metadata
from .sniff import HEAD, describe, part_hint
from .tensor import Tensor, block_size, type_name

ALIGNMENT = 32  # when general.alignment is absent
MAX_ALIGNMENT = 1 << 20
MAX_DIMS = 4  # GGML_MAX_DIMS
MAX_COUNT = 1 << 18  # tensors or keys; the largest models have some 10^5 tensors
SHOWN = 200  # characters of a name in a message
MIN_PAIR, MIN_INFO = 13, 24  # least bytes of a key-value pair and of a tensor table row


@dataclass(frozen=True)
class GGUFFile:
    """One parsed file. Offsets of tensors count from the start of the file; `end` is where the
    last tensor's bytes end (without padding)."""

    path: Path
    version: int
    data: mmap.mmap
    metadata: Metadata
    tensors: dict[str, Tensor]
    infos: dict[str, int]  # name -> offset of its row in the tensor table
    alignment: int
    end: int


def map_file(path: Path) -> mmap.mmap:
    """Map a regular, non-empty file for reading; a ModelError says why it cannot be."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):  # a pipe or device would block or never end
            raise ModelError(path, "not a regular file")
        if info.st_size == 0:
            raise ModelError(path, describe(b""))
        with open(path, "rb") as f:
            return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelError(path, "no such file") from None
    except (OSError, ValueError) as e:
        raise ModelError(path, f"cannot be opened: {getattr(e, 'strerror', None) or e}") from None


def read_gguf(path: Path, inherited: int = ALIGNMENT) -> GGUFFile:
    """Parse the header of one file. Raises ModelError for everything that is wrong in it.

    `inherited` is the alignment of the first shard, for shards that do not repeat the key.
    """
    data = map_file(path)
    cur = Cursor(path, data)
    version = _version(cur)
    cur.where = "header"
    n_tensors, n_pairs = cur.number("Q"), cur.number("Q")
    for n, least, what in ((n_tensors, MIN_INFO, "tensors"), (n_pairs, MIN_PAIR, "keys")):
        if n * least > cur.size - cur.pos:
            raise cur.fail(
                f"truncated or damaged: {n} {what} announced, the file has {cur.size} bytes"
            )
        if n > MAX_COUNT:
            raise cur.fail(f"{n} {what} announced; at most {MAX_COUNT} are supported")
    metadata = Metadata(_pairs(cur, n_pairs))
    rows = _rows(cur, n_tensors)
    align = _alignment(cur, metadata)
    if "general.alignment" not in metadata and inherited != align:
        align = _shard_alignment(cur, [t for t, _ in rows], inherited)
    start = -(-cur.pos // align) * align
    infos = {t.name: at for t, at in rows}
    tensors = {t.name: _placed(cur, t, start, align) for t, _ in rows}
    end = _check_layout(cur, list(tensors.values()))
    return GGUFFile(path, version, data, metadata, tensors, infos, align, end)


def _version(cur: Cursor) -> int:
    """Check magic and version: 2 and 3 differ in nothing that is read here."""
    head = cur.data[: min(HEAD, cur.size)]
    if head[:4] != b"GGUF":
        raise ModelError(cur.path, describe(head) + part_hint(cur.path.name))
    cur.pos, cur.where = 4, "version"
    version: int = cur.number("I")
    if version and not version & 0xFFFF:  # only the version tells the byte order
        raise cur.fail(
            "the file has the other byte order (big-endian); convert it with "
            "gguf-py's gguf_convert_endian"
        )
    if version == 1:
        raise cur.fail("GGUF version 1 (August 2023) is not supported; convert the model again")
    if version not in (2, 3):
        raise cur.fail(f"GGUF version {version} is not supported; supported: 2 and 3")
    return version


def _pairs(cur: Cursor, n: int) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for i in range(n):
        cur.where = f"key {i + 1} of {n}"
        at = cur.pos
        key = cur.name()
        cur.where = f"key {key!r:.{SHOWN}}"
        type_id = cur.number("I")
        start = cur.pos
        cur.skip(type_id)
        if key in entries:
            raise cur.fail(f"given twice: at offset {entries[key].key_offset} and at offset {at}")
        entries[key] = Entry(cur.path, cur.data, at, type_id, start, cur.pos)
    return entries


def _rows(cur: Cursor, n: int) -> list[tuple[Tensor, int]]:
    """The tensor table: tensors with offsets relative to the data section, and row offsets."""
    rows: list[tuple[Tensor, int]] = []
    seen: dict[str, int] = {}
    for i in range(n):
        cur.where = f"tensor {i + 1} of {n}"
        at = cur.pos
        name = cur.name()
        cur.where = f"tensor {name!r:.{SHOWN}}"
        n_dims = cur.number("I")
        if not 1 <= n_dims <= MAX_DIMS:
            raise cur.fail(f"has {n_dims} dimensions, expected 1 to {MAX_DIMS}")
        shape = tuple(cur.number("Q") for _ in range(n_dims))[::-1]  # the file has cols first
        type_id, offset = cur.number("I"), cur.number("Q")
        if name in seen:
            raise cur.fail(f"given twice: at offset {seen[name]} and at offset {at}")
        seen[name] = at
        rows.append((Tensor(name, shape, type_id, offset, _nbytes(cur, shape, type_id)), at))
    return rows


def _nbytes(cur: Cursor, shape: tuple[int, ...], type_id: int) -> int:
    if min(shape) == 0:
        raise cur.fail(f"shape {shape} has a zero")
    block = block_size(type_id)
    if block is None:
        return 0
    elems, size = block
    if shape[-1] % elems:
        raise cur.fail(
            f"rows of {shape[-1]} values do not divide into {type_name(type_id)} "
            f"blocks of {elems} values"
        )
    nbytes = size * (shape[-1] // elems)
    for d in shape[:-1]:
        nbytes *= d
    return nbytes


def _alignment(cur: Cursor, metadata: Metadata) -> int:
    cur.where = "key 'general.alignment'"
    value = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(value, int) or isinstance(value, bool):
        raise cur.fail(f"expected an integer, got {value!r}")
    if not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise cur.fail(f"is {value}, expected a power of two from 1 to {MAX_ALIGNMENT}")
    return value


def _shard_alignment(cur: Cursor, tensors: list[Tensor], inherited: int) -> int:
    """Alignment of a shard without the key: gguf-py lays it out like the first shard,
    llama-gguf-split by the default. The one that the file's size fits is right."""
    end = max((t.offset + t.nbytes for t in tensors), default=0)
    for align in (ALIGNMENT, inherited):
        start = -(-cur.pos // align) * align
        if cur.size in (start + end, start + -(-end // align) * align):
            return align
    return ALIGNMENT


def _placed(cur: Cursor, t: Tensor, start: int, align: int) -> Tensor:
    """The tensor with its offset counted from the start of the file."""
    if t.offset % align:
        cur.where = f"tensor {t.name!r}"
        raise cur.fail(f"its offset {t.offset} is not a multiple of the alignment {align}")
    return Tensor(t.name, t.shape, t.type_id, start + t.offset, t.nbytes)


def _check_layout(cur: Cursor, tensors: list[Tensor]) -> int:
    """Every tensor inside the file and none over another; returns the end of the last one."""
    ordered = sorted(tensors, key=lambda t: t.offset)
    end = max((t.offset + t.nbytes for t in ordered), default=cur.pos)
    if end > cur.size:
        first = next(t for t in ordered if t.offset + t.nbytes > cur.size)
        cur.where = f"tensor {first.name!r}"
        raise cur.fail(
            f"truncated: the tensors need {end} bytes, the file has {cur.size}; this is the first "
            "tensor beyond the end; download the file again" + part_hint(cur.path.name)
        )
    for a, b in itertools.pairwise(ordered):
        if a.offset + a.nbytes > b.offset or (a.offset == b.offset and a.nbytes == b.nbytes == 0):
            cur.where = f"tensor {b.name!r}"
            raise cur.fail(
                f"overlaps tensor {a.name!r}: starts at byte {b.offset}, "
                f"the other ends at {a.offset + a.nbytes}"
            )
    return end
