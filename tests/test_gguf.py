"""Reading good GGUF files: values, tensors, versions, alignment, split sets, folders, speed."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import tiny, write_tiny
from gguf import GGUFReader, GGUFWriter
from gguf_bytes import ARRAY, Blob, Typed, gguf_bytes
from helpers import golden

from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.gguf_shards import NAME
from kompute_llm.engine.spec import model_spec

SMALL: dict[str, Any] = {"n_embd": 32, "n_ff": 32, "n_layer": 1}  # a TINY of 60 KB


def put(path: Path, metadata: dict[str, Any]) -> Container:
    path.write_bytes(gguf_bytes(metadata))
    return open_model(path)


def test_every_value_type(tmp_path: Path) -> None:
    values = {
        "u8": Typed(0, 255), "i8": Typed(1, -128), "u16": Typed(2, 65535), "i16": Typed(3, -32768),
        "u32": Typed(4, 1 << 31), "i32": Typed(5, -1), "f32": Typed(6, 0.5), "bool": True,
        "text": "häß", "empty": "", "u64": Typed(10, (1 << 64) - 1), "i64": Typed(11, -(1 << 63)),
        "f64": Typed(12, 1e300),
    }  # fmt: skip
    c = put(tmp_path / "m.gguf", values)
    plain = {k: v.value if isinstance(v, Typed) else v for k, v in values.items()}
    assert dict(c.metadata) == plain
    assert [type(c.metadata[k]) for k in ("u8", "f32", "bool")] == [int, float, bool]


def test_arrays(tmp_path: Path) -> None:
    nested = Typed(ARRAY, [Typed(ARRAY, [1, 2], 4), Typed(ARRAY, [], 4)], ARRAY)
    metadata: dict[str, Any] = {
        "ints": np.array([-1, 7], np.int32), "wide": np.array([1 << 40], np.int64),
        "floats": np.array([0.5, -2], np.float32), "bools": np.array([True, False, True]),
        "texts": ["a", "", "ü"], "none": Typed(ARRAY, [], 8), "no_ints": Typed(ARRAY, [], 5),
        "nested": nested, "after": 7,
    }  # fmt: skip
    c = put(tmp_path / "m.gguf", metadata)
    for key in ("ints", "wide", "floats", "bools"):
        got, want = c.metadata[key], metadata[key]
        assert got.dtype == want.dtype and got.tolist() == want.tolist()
    assert c.metadata["texts"] == ["a", "", "ü"] and c.metadata["none"] == []
    assert len(c.metadata["no_ints"]) == 0 and c.metadata["after"] == 7
    assert [x.tolist() for x in c.metadata["nested"]] == [[1, 2], []]
    assert [c.metadata.count(k) for k in ("texts", "ints", "after", "gone")] == [3, 2, None, None]
    assert c.metadata["texts"] is c.metadata["texts"], "decoded once"


def test_undecodable_text(tmp_path: Path) -> None:
    c = put(tmp_path / "m.gguf", {"name": b"a\xffb", "tokens": [b"\xe2\x82", b"\xff"]})
    assert c.metadata["name"] == "a\\xffb"
    raw = [t.encode("utf-8", "surrogateescape") for t in c.metadata["tokens"]]
    assert raw == [b"\xe2\x82", b"\xff"]


def test_tensors_are_views(tmp_path: Path) -> None:
    m = tiny(**SMALL, quant="F32")
    c = open_model(m.write(tmp_path / "m.gguf"))
    name = "blk.0.attn_q.weight"
    got = c.matrix(name, 32, 32)
    assert np.array_equal(got.dequantize(), m.tensors[name])
    assert not got.raw.flags.owndata and not got.raw.flags.writeable
    norm = c.vector("output_norm.weight", 32)
    assert norm.dtype == np.float32 and norm.flags.owndata and norm.flags.writeable
    assert np.array_equal(norm, m.tensors["output_norm.weight"])
    t = c.tensors[name]
    assert (t.shape, t.cols, t.elems, t.nbytes, t.format_name) == ((32, 32), 32, 1024, 4096, "F32")
    raw = got.raw
    c.close()
    assert np.array_equal(raw.view(np.float32), m.tensors[name]), "a view outlives close()"


@pytest.mark.parametrize("version", [2, 3])
def test_versions(tmp_path: Path, version: int) -> None:
    m = tiny(**SMALL)
    c = open_model(m.write(tmp_path / "m.gguf", version=version))
    assert model_spec(c).n_embd == 32
    assert np.array_equal(c.vector("output_norm.weight", 32), m.tensors["output_norm.weight"])


@pytest.mark.parametrize("alignment", [1, 2, 8, 32, 64, 4096, 1 << 20])
@pytest.mark.parametrize("pad_last", [True, False])
def test_alignments(tmp_path: Path, alignment: int, pad_last: bool) -> None:
    m = tiny(**SMALL, quant="F32")
    path = m.write(tmp_path / "m.gguf", alignment=alignment, pad_last=pad_last)
    c = open_model(path)
    for name, x in m.tensors.items():
        got = c.matrix(name, *x.shape).dequantize() if x.ndim == 2 else c.vector(name, len(x))
        assert np.array_equal(got, x), name


def test_same_as_gguf_py(tmp_path: Path) -> None:
    path = tiny(**SMALL, quant="Q8_0").write(tmp_path / "m.gguf")
    compare(open_model(path), path)


def test_same_as_gguf_py_on_golden_files() -> None:
    folder = golden()
    if folder is None:
        pytest.skip("no golden data beside the repository")
    for name in ("llama.Q4_K", "llama.IQ4_XS", "qwen3moe.Q4_K_M", "gpt-oss.MXFP4"):
        path = folder / "models" / f"{name}.gguf"
        compare(open_model(path), path)


def compare(c: Container, path: Path) -> None:
    """Same keys, values, tensors and bytes as gguf-py's reader gives."""
    reader = GGUFReader(path)
    fields = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert list(c.metadata) == list(fields)
    for key, field in fields.items():
        got = c.metadata[key]
        got = got.tolist() if isinstance(got, np.ndarray) else got
        assert got == field.contents(), key
    assert list(c.tensors) == [t.name for t in reader.tensors]
    for t in reader.tensors:
        mine = c.tensors[t.name]
        assert (mine.offset, mine.type_id, mine.nbytes) == (t.data_offset, t.tensor_type, t.n_bytes)
        assert mine.shape == tuple(int(d) for d in t.shape)[::-1]
        assert np.array_equal(c.raw(mine), t.data.view(np.uint8).reshape(-1))


def gguf_py_split(path: Path, alignment: int) -> list[Path]:
    """Shards as gguf-py writes them: only the first one holds general.alignment."""
    w = GGUFWriter(path, "llama", split_max_tensors=2)
    if alignment != 32:
        w.add_custom_alignment(alignment)
    for i in range(5):
        w.add_tensor(f"t{i}", np.full((3, 5), i, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return sorted(path.parent.glob("*.gguf"))


@pytest.mark.parametrize("alignment", [32, 64, 4096])
def test_split_by_gguf_py(tmp_path: Path, alignment: int) -> None:
    paths = gguf_py_split(tmp_path / "m.gguf", alignment)
    assert len(paths) == 3
    for path in paths:
        c = open_model(path)
        for i in range(5):
            assert (c.matrix(f"t{i}", 3, 5).dequantize() == i).all()


def test_split_from_any_shard_or_folder(tmp_path: Path) -> None:
    m = tiny(**SMALL)
    paths = m.split(tmp_path, per_shard=4)
    whole = open_model(m.write(tmp_path / "whole.bin"))
    givens: list[Path | str] = [*paths, tmp_path, str(tmp_path)]
    for given in givens:
        c = open_model(given)
        assert c.paths == tuple(paths)
        assert {n: t.shape for n, t in c.tensors.items()} == {
            n: t.shape for n, t in whole.tensors.items()
        }
        assert all(np.array_equal(c.raw(t), whole.raw(whole.tensors[n]))
                   for n, t in c.tensors.items())  # fmt: skip
        assert model_spec(c).weight_bytes == model_spec(whole).weight_bytes


def test_one_of_one_is_ordinary(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00001.gguf"
    for keys in ({}, {"split.no": 0, "split.count": 1, "split.tensors.count": 12}):
        c = open_model(write_tiny(path, metadata=keys, **SMALL))
        assert c.paths == (path,)


def test_folder_ignores_what_is_no_model(tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.gguf", **SMALL)
    (tmp_path / "mmproj-m.gguf").write_bytes(b"GGUF")
    (tmp_path / "README.md").write_text("x")
    assert open_model(tmp_path).path.name == "m.gguf"


def test_shard_name_pattern() -> None:
    found = NAME.fullmatch("a-00001-of-00002-00003-of-00004.gguf")
    assert found and (found["stem"], found["no"]) == ("a-00001-of-00002", "00003")
    assert not NAME.fullmatch("a-1-of-2.gguf")


@pytest.fixture
def large_vocabulary(tmp_path: Path) -> Iterator[Path]:
    yield write_tiny(
        tmp_path / "m.gguf",
        vocab=150_000,
        n_embd=32,
        n_ff=32,
        metadata={"tokenizer.ggml.merges": [f"Ġa{i} b{i}" for i in range(280_000)]},
    )


def test_large_vocabulary_opens_fast(large_vocabulary: Path) -> None:
    def seconds() -> float:
        start = time.process_time()
        model_spec(open_model(large_vocabulary))
        return time.process_time() - start

    assert min(seconds() for _ in range(3)) < 0.2
    c = open_model(large_vocabulary)
    start = time.process_time()
    assert len(c.metadata["tokenizer.ggml.tokens"]) == 150_000
    assert time.process_time() - start < 0.6  # 0.1 when the machine is quiet


def test_large_file_is_not_read(tmp_path: Path) -> None:
    """A sparse 1 GB tensor: opening it neither reads nor allocates it."""
    path, n = tmp_path / "m.gguf", 1 << 28
    head = gguf_bytes({"a": 1}, [Blob("x", (1 << 14, n >> 14), 0, b"")])
    path.write_bytes(head)
    os.truncate(path, len(head) + 4 * n)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    c = open_model(path)
    assert c.matrix("x", 1 << 14, n >> 14).raw[-1].sum() == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
