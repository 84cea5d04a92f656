"""Broken and foreign files: each is refused by a ModelError that names what is wrong and where."""

from __future__ import annotations

import os
import re
import shutil
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import Model, tiny
from gguf_bytes import ARRAY, STRING, Blob, Typed, gguf_bytes

from kompute_llm.engine.container import open_model
from kompute_llm.engine.errors import ModelError
from kompute_llm.engine.spec import model_spec

SMALL: dict[str, Any] = {"n_embd": 32, "n_ff": 32, "n_layer": 1}


def small(**how: Any) -> Model:
    return tiny(**(SMALL | how))


def refused(path: Path, *words: str, data: bytes | None = None) -> str:
    """The message of the ModelError that opening gives: it names a file there and all `words`."""
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ModelError) as e:
        model_spec(open_model(path))
    message = str(e.value)
    assert message.startswith(str(path.parent))
    for word in words:
        assert word in message, message
    return message


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 98362432\n"
FOREIGN = {
    "lfs": (LFS, ("Git LFS", "b'version http'")),
    "html": (b"<!DOCTYPE html><html>", ("HTML",)),
    "html2": (b"\n  <html lang=en>", ("HTML",)),
    "zeros": (bytes(4096), ("zeros", "x00")),
    "one zero": (b"\0", ("zeros",)),
    "ggjt": (b"tjgg" + bytes(60), ("ggjt", "b'tjgg")),
    "ggml": (b"lmgg" + bytes(60), ("ggml",)),
    "ggmf": (b"fmgg" + bytes(60), ("ggmf",)),
    "empty": (b"", ("empty",)),
    "safetensors": (struct.pack("<Q", 64) + b'{"a":{"dtype":"F16"}}', ("safetensors",)),
    "pytorch": (b"PK\x03\x04archive/data.pkl", ("zip", "PyTorch")),
    "pickle": (b"\x80\x02}q\x00", ("pickle",)),
    "gzip": (b"\x1f\x8b\x08abc", ("compressed",)),
    "json": (b'{"error":"Invalid credentials"}', ("JSON",)),
    "other": (b"hello, world", ("first bytes b'hello, world'",)),
    "short": (b"GG", ("first bytes b'GG'",)),
    "magic only": (b"GGUF", ("truncated", "version")),
    "swapped magic": (b"FUGG" + bytes(20), ("byte order",)),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_first_bytes(tmp_path: Path, kind: str) -> None:
    data, words = FOREIGN[kind]
    refused(tmp_path / "m.gguf", *words, data=data)


def test_not_a_file(tmp_path: Path) -> None:
    refused(tmp_path / "gone.gguf", "no such file")
    refused(tmp_path, "no .gguf file")
    os.mkfifo(tmp_path / "pipe.gguf")
    refused(tmp_path / "pipe.gguf", "not a regular file")
    refused(Path("/dev/zero"), "not a regular file")
    refused(tmp_path / ("x" * 300), "cannot be opened")
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    refused(tmp_path / "loop.gguf", "cannot be opened")
    with pytest.raises(ModelError):
        open_model("a\0b")


def test_folder_of_several_models(tmp_path: Path) -> None:
    small().split(tmp_path, per_shard=6)
    small().write(tmp_path / "other.gguf")
    refused(tmp_path, "2 models", "other.gguf", "tiny-00001-of-00002.gguf")


@pytest.mark.parametrize(
    ("version", "word"),
    [(0, "version 0"), (1, "version 1"), (4, "version 4"), (0xFFFF, "version 65535")],
)
def test_version_field(tmp_path: Path, version: int, word: str) -> None:
    refused(tmp_path / "m.gguf", word, data=gguf_bytes({"a": 1}, version=version))


def test_other_byte_order(tmp_path: Path) -> None:
    for version in (2, 3):
        path = small().write(tmp_path / "m.gguf", order=">", version=version)
        message = refused(path, "byte order")
        assert "50331648" not in message


def test_key_given_twice(tmp_path: Path) -> None:
    pairs = [("general.architecture", "llama"), ("x.a", 1), ("x.a", 1)]
    message = refused(tmp_path / "m.gguf", "'x.a'", "twice", data=gguf_bytes(pairs))
    data = (tmp_path / "m.gguf").read_bytes()
    first, second = (int(n) for n in re.findall(r"offset (\d+)", message))
    assert first < second and all(data[at + 8 : at + 11] == b"x.a" for at in (first, second))


def test_tensor_given_twice(tmp_path: Path) -> None:
    data = gguf_bytes({}, [Blob("t", (8,), 0, bytes(32)), Blob("t", (8,), 0, bytes(32))])
    message = refused(tmp_path / "m.gguf", "tensor 't'", "twice", data=data)
    assert len(set(re.findall(r"offset (\d+)", message))) == 2


SPLIT = {"split.no": 1, "split.count": 2, "split.tensors.count": 12}


def test_tensor_in_two_shards(tmp_path: Path) -> None:
    m = small()
    paths, blobs = m.split(tmp_path, per_shard=6), m.blobs()
    paths[1].write_bytes(gguf_bytes(SPLIT, [*blobs[6:11], blobs[0]]))
    for given in paths:
        message = refused(given, f"tensor {blobs[0].name!r}", paths[0].name, paths[1].name)
        assert len(re.findall(r"offset \d+", message)) == 2


def test_key_in_two_shards(tmp_path: Path) -> None:
    paths = small().split(tmp_path, per_shard=6)
    m = small()
    for value, bad in ((32, False), (64, True)):
        keys = {**SPLIT, "llama.embedding_length": value}
        paths[1].write_bytes(gguf_bytes(keys, m.blobs()[6:]))
        if bad:
            refused(paths[1], "'llama.embedding_length'", "different values", paths[0].name)
        else:
            model_spec(open_model(paths[1]))


@pytest.mark.parametrize("value", [0, 3, 1 << 30, (1 << 32) - 1, -32, 32.0, "32", True])
def test_alignment(tmp_path: Path, value: object) -> None:
    path = small(metadata={"general.alignment": value}).write(tmp_path / "m.gguf")
    refused(path, "'general.alignment'", str(value))


def test_offset_off_alignment(tmp_path: Path) -> None:
    blobs = [Blob("a", (8,), 0, bytes(32)), Blob("b", (8,), 0, bytes(32), offset=36)]
    refused(tmp_path / "m.gguf", "tensor 'b'", "36", "32", data=gguf_bytes({}, blobs))


def test_overlapping_tensors(tmp_path: Path) -> None:
    blobs = [Blob("a", (16,), 0, bytes(64)), Blob("b", (8,), 0, bytes(32), offset=32)]
    refused(tmp_path / "m.gguf", "tensor 'b'", "overlaps", "'a'", data=gguf_bytes({}, blobs))


def test_truncated_names_first_tensor(tmp_path: Path) -> None:
    path = small(quant="F32").write(tmp_path / "m.gguf")
    whole = path.stat().st_size
    c = open_model(path)
    t = c.tensors["blk.0.ffn_gate.weight"]
    os.truncate(path, t.offset + 10)
    message = refused(path, "truncated", t.name, str(t.offset + 10))
    assert str(whole) in message, "expected size"
    path.rename(path.with_suffix(".gguf.part"))
    refused(path.with_suffix(".gguf.part"), "unfinished download")


def test_offset_beyond_everything(tmp_path: Path) -> None:
    blobs = [Blob("a", (8,), 0, bytes(32), offset=1 << 63)]
    refused(tmp_path / "m.gguf", "tensor 'a'", str(1 << 63)[:6], data=gguf_bytes({}, blobs))


@pytest.mark.parametrize(
    ("shape", "type_id", "words"),
    [
        ((2, 172), 8, ("172", "Q8_0", "32")),
        ((2, 896 + 32), 12, ("928", "Q4_K", "256")),
        ((2, 0), 0, ("zero",)),
        ((1, 1, 1, 1, 1), 0, ("5 dimensions",)),
        ((), 0, ("0 dimensions",)),
        ((1 << 62, 1 << 62), 0, ("truncated",)),
        ((1 << 63, 1 << 63, 1 << 63, 1 << 63), 1, ("truncated",)),
    ],
)
def test_tensor_shapes(
    tmp_path: Path, shape: tuple[int, ...], type_id: int, words: tuple[str, ...]
) -> None:
    data = gguf_bytes({}, [Blob("odd", shape, type_id, bytes(64))])
    refused(tmp_path / "m.gguf", "tensor 'odd'", *words, data=data)


def test_absurd_counts_and_lengths(tmp_path: Path) -> None:
    path, big = tmp_path / "m.gguf", (1 << 64) - 1
    head = b"GGUF" + struct.pack("<I", 3)
    refused(path, "tensors", data=head + struct.pack("<QQ", big, 1) + bytes(64))
    refused(path, "keys", data=head + struct.pack("<QQ", 0, 1 << 40) + bytes(64))
    key = struct.pack("<QQQ", 0, 1, 1) + b"k"
    for n in (big, 1 << 40, 1 << 63):
        refused(path, "key 1", data=head + struct.pack("<QQQ", 0, 1, n) + bytes(64))
        refused(path, "'k'", data=head + key + struct.pack("<IQ", STRING, n) + bytes(64))
        for elem in (0, 6, 8, 9, 12):
            array = struct.pack("<IIQ", ARRAY, elem, n)
            refused(path, "'k'", data=head + key + array + bytes(64))
    strings = struct.pack("<IIQQQ", ARRAY, STRING, 2, 1 << 63, 1 << 63)
    refused(path, "'k'", data=head + key + strings + bytes(64))
    refused(path, "value type 13", data=head + key + struct.pack("<I", 13) + bytes(64))
    unknown = struct.pack("<IIQ", ARRAY, 99, 1)
    refused(path, "element type 99", data=head + key + unknown + bytes(64))


def test_long_names_and_texts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    refused(path, "key 1", "70000 bytes", data=gguf_bytes({"k" * 70000: 1}))
    blob = Blob("t" * 70000, (8,), 0, bytes(32))
    refused(path, "tensor 1", "70000 bytes", data=gguf_bytes({}, [blob]))
    refused(path, "'k'", "16777217 bytes", data=gguf_bytes({"k": b"x" * ((1 << 24) + 1)}))
    message = refused(path, "value type 13", data=gguf_bytes({"k" * 60000: 1}).replace(
        struct.pack("<II", 4, 1), struct.pack("<II", 13, 1)))  # fmt: skip
    assert len(message) < 500


def test_slow_headers_are_bounded(tmp_path: Path) -> None:
    """Counts that fit a large file but would take long: empty strings, arrays, tensors, keys."""
    path, size = tmp_path / "m.gguf", 200 << 20
    head = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", ARRAY)
    start = time.process_time()
    for elem, each in ((STRING, 8), (ARRAY, 12)):
        path.write_bytes(head + struct.pack("<IQ", elem, (size - 64) // each))
        os.truncate(path, size)  # zeros: a sparse file
        refused(path, "'k'", "more than")
    for counts in ((1 << 20, 0), (0, 1 << 20)):
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, *counts))
        os.truncate(path, size)
        refused(path, "at most")
    assert time.process_time() - start < 1


def test_nested_arrays_are_bounded(tmp_path: Path) -> None:
    deep = Typed(ARRAY, [1], 4)
    for _ in range(5):
        deep = Typed(ARRAY, [deep], ARRAY)
    refused(tmp_path / "m.gguf", "nested", data=gguf_bytes({"k": deep}))
    body = struct.pack("<IQ", ARRAY, 1) * 200_000  # far deeper than Python's stack
    head = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", ARRAY)
    refused(tmp_path / "m.gguf", "nested", data=head + body)


def test_unknown_formats_are_refused_when_used(tmp_path: Path) -> None:
    m = small()
    for type_id, name in ((31, "Q4_0_4_4"), (4, "Q4_2"), (24, "I8"), (99, "type 99")):
        blobs = [
            Blob(b.name, b.shape, type_id, b.data) if b.name == "blk.0.attn_k.weight" else b
            for b in m.blobs()
        ]
        path = tmp_path / "m.gguf"
        path.write_bytes(gguf_bytes(m.metadata, blobs))
        c = open_model(path)
        assert c.tensors["blk.0.attn_k.weight"].format_name == name
        with pytest.raises(ModelError, match=f"format {name} is not supported; supported: F32"):
            c.matrix("blk.0.attn_k.weight", 16, 32)
        refused(path, name, "blk.0.attn_k.weight")


def test_matrix_and_vector_requests(tmp_path: Path) -> None:
    c = open_model(small().write(tmp_path / "m.gguf"))
    with pytest.raises(ModelError, match=r"'nope'.*missing.*\(3, 4\)"):
        c.matrix("nope", 3, 4)
    with pytest.raises(ModelError, match=r"expected shape \(32, 16\), got \(16, 32\)"):
        c.matrix("blk.0.attn_k.weight", 32, 16)
    with pytest.raises(ModelError, match=r"expected shape \(16,\), got \(32,\)"):
        c.vector("output_norm.weight", 16)


def test_split_set_faults(tmp_path: Path) -> None:
    paths = small().split(tmp_path, per_shard=4)
    names = [p.name for p in paths]
    assert len(paths) == 3
    paths[2].rename(tmp_path / "away")
    for given in paths[:2]:
        refused(given, "1 of 3 shards", names[2])
    (tmp_path / "away").rename(paths[2])
    for old, new in ((1, "x"), (2, names[1])):
        paths[old].rename(tmp_path / new)
    (tmp_path / "x").rename(paths[2])
    for given in paths:
        refused(given, "swapped", "split.no")


def test_joined_shards(tmp_path: Path) -> None:
    paths = small().split(tmp_path, per_shard=4)
    data = b"".join(p.read_bytes() for p in paths)
    refused(tmp_path / "all.gguf", "joined", "llama-gguf-split --merge", data=data)
    refused(paths[0], "joined", "llama-gguf-split --merge", data=data)
    plain = small().write(tmp_path / "m.gguf").read_bytes()
    refused(tmp_path / "m.gguf", "second GGUF file", data=plain + plain)


def test_shard_names_and_counts(tmp_path: Path) -> None:
    paths = small().split(tmp_path, per_shard=4)
    lonely = tmp_path / "renamed.gguf"
    shutil.copy(paths[1], lonely)
    refused(lonely, "shard 2 of 3", "-00002-of-00003.gguf")
    wrong = tmp_path / "tiny-00001-of-00002.gguf"
    shutil.copy(paths[0], wrong)
    refused(wrong, "split.count", "2 shards", "expected 3")
    small().write(paths[2])  # an ordinary file in the place of a shard
    refused(paths[0], paths[2].name, "not a shard")


def test_shards_of_different_models(tmp_path: Path) -> None:
    paths, m = small().split(tmp_path, per_shard=6), small()
    m.tensors.popitem()
    shutil.copy(m.split(tmp_path, "other", per_shard=6)[1], paths[1])
    refused(paths[0], "split.tensors.count", "12", "11")


def fuzz_one(path: Path, data: bytes) -> bool:
    """Whether the bytes open; everything that a loader touches is touched."""
    path.write_bytes(data)
    try:
        c = open_model(path)
        for key in c.metadata:
            c.metadata[key]
        s = model_spec(c)
        for name, t in c.tensors.items():
            if len(t.shape) == 2:
                c.matrix(name, *t.shape)
        c.vector("output_norm.weight", s.n_embd)
    except ModelError:
        return False
    return True


def test_flipped_and_cut_files(tmp_path: Path) -> None:
    """Random damage either opens or raises ModelError, quickly."""
    data, path = bytearray(small().write(tmp_path / "m.gguf").read_bytes()), tmp_path / "f.gguf"
    header = open_model(tmp_path / "m.gguf").tensors["token_embd.weight"].offset
    rng = np.random.default_rng(1)
    start, opened = time.process_time(), 0
    for i in range(600):
        bad = bytearray(data)
        for at in rng.integers(0, header if i % 4 else len(data), 1 + i % 3):
            bad[at] = rng.integers(256) if i % 2 else bad[at] ^ 1 << rng.integers(8)
        if i % 5 == 4:
            del bad[rng.integers(len(bad)) :]
        opened += fuzz_one(path, bytes(bad))
    assert 0 < opened < 600
    for n in (*range(0, 200), *range(header - 40, header + 40)):
        assert not fuzz_one(path, bytes(data[:n]))
    assert time.process_time() - start < 10
