"""What a file is that should be a model but is not: the likely cause, from its first bytes."""

from __future__ import annotations

import re
import struct

HEAD = 512  # bytes that a diagnosis looks at

_OLD = "an old {} model of llama.cpp before August 2023; convert the original model again"
# Pattern at the very start -> what it is. Order matters: the first match wins.
_KINDS: tuple[tuple[bytes, str], ...] = (
    (rb"version https://git-lfs", "a Git LFS pointer: the model itself was not fetched; "
                                  "run `git lfs pull` or download the file"),
    (rb"\s*(?i:<!doctype|<html|<\?xml|<head|<body)", "an HTML or XML page: the download saved a "
                                                     "web page instead of the model"),
    (rb"(?s)\0{16}", "zeros: the download reserved the space but did not finish"),
    (rb"tjgg|ggjt", _OLD.format("ggjt")),
    (rb"fmgg|ggmf", _OLD.format("ggmf")),
    (rb"lmgg|ggml", _OLD.format("ggml")),
    (rb"algg|ggla", "an old ggla LoRA adapter, not a model"),
    (rb"FUGG", "one of the other byte order (big-endian); convert it for this machine"),
    (rb"PK\x03\x04", "a zip archive, perhaps a PyTorch checkpoint; convert it to GGUF"),
    (rb"\x80[\x02-\x05]", "a Python pickle, perhaps a PyTorch checkpoint; convert it to GGUF"),
    (rb"\x1f\x8b|\x28\xb5\x2f\xfd|\xfd7zXZ|7z\xbc\xaf|BZh|Rar!", "a compressed file: unpack it"),
    (rb"\x89HDF", "an HDF5 file; convert it to GGUF"),
    (rb"\x93NUMPY", "a NumPy array"),
    (rb"\x7fELF|MZ", "a program"),
    (rb"\s*[\[{]", "JSON text: perhaps a server's error message or a model's configuration"),
)  # fmt: skip


# Names of files that are not whole: pattern at the end -> what to do.
_PARTS: tuple[tuple[str, str], ...] = (
    (r"\.part\d+of\d+|[-.]split-[a-z]+|\.gguf\.\d{2,3}", "the name is that of one part of a file "
     "that was split by bytes: join all parts with `cat` in their order"),
    (r"\.part|\.incomplete|\.crdownload|\.aria2|\.download|\.tmp", "the name is that of an "
     "unfinished download"),
)  # fmt: skip


def part_hint(name: str) -> str:
    """Advice to append when a file's name says that it is not a whole file, or ""."""
    for pattern, advice in _PARTS:
        if re.search(rf"(?:{pattern})$", name, re.I):
            return f"; {advice}"
    return ""


def is_safetensors(head: bytes) -> bool:
    """Whether the bytes start like a safetensors file: uint64 header length, then JSON."""
    return len(head) > 9 and head[8:9] == b"{" and 2 <= struct.unpack("<Q", head[:8])[0] < 1 << 30


def describe(head: bytes) -> str:
    """One sentence for a file that starts with `head` (may be empty) and is no GGUF file."""
    if not head:
        return "not a GGUF file: it is empty; download it again"
    shown = f"first bytes {head[:12]!r}"
    if is_safetensors(head):
        return (f"not a GGUF file but safetensors ({shown}); give the folder that holds it, "
                "with its config.json, or convert it to GGUF")
    if not head.strip(b"\0"):
        return f"not a GGUF file but {_KINDS[2][1]} ({shown})"
    for pattern, kind in _KINDS:
        if re.match(pattern, head):
            return f"not a GGUF file but {kind} ({shown})"
    return f"not a GGUF file ({shown}; a GGUF file starts with b'GGUF')"
