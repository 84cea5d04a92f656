"""`convert`: round trips in every format, parts, resumed runs, and what is never overwritten."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import tiny
from hf_folder import arrays, hf_tensors, llama_config, write_folder

from cli import invoke
from kompute_llm.engine import int_codec
from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.convert import Conversion
from kompute_llm.engine.convert_formats import Choice, IntTarget, target
from kompute_llm.engine.convert_manifest import ConvertError
from kompute_llm.engine.int_container import IntContainer
from kompute_llm.engine.int_formats import NAMES
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.tokenizer import build_tokenizer

SMALL: dict[str, Any] = {"n_embd": 128, "n_head": 4, "n_head_kv": 2, "n_ff": 192, "n_ctx": 512}
FORMATS = ("int8", "int4", "int4-g32", "int4-g64", "int4-g128", "int3-g64", "f16", "bf16", "f32")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A llama of 2 layers in F16."""
    return tiny(**SMALL).write(tmp_path / "small.gguf")


def run(src: Path, dst: Path, *args: Any) -> Any:
    """`convert`, which must succeed."""
    result = invoke("convert", src, dst, *args)
    assert result.exit_code == 0, result.stderr
    return result


def decoded(c: Container, name: str) -> Any:
    """A matrix as float32."""
    t = c.tensors[name]
    return c.matrix(name, *t.shape).dequantize()


@pytest.mark.parametrize("name", FORMATS)
def test_containers_hold_the_model(source: Path, tmp_path: Path, name: str) -> None:
    result = run(source, tmp_path / "out", "--format", name)
    assert f"attention  {name}" in result.stdout
    c, gguf = open_model(tmp_path / "out"), open_model(source)
    assert isinstance(c, IntContainer)
    assert {k: str(c.metadata[k]) for k in c.metadata} == {
        k: str(gguf.metadata[k]) for k in gguf.metadata if k != "general.file_type"
    }
    made = target(name, gguf=False)
    for key in ("blk.0.attn_q.weight", "blk.1.ffn_down.weight", "output.weight"):
        x = decoded(gguf, key)
        expected = made.decode(made.encode(x), x.shape[1])
        assert np.array_equal(c.rows[key].values(), expected), key
    norm = "blk.1.ffn_norm.weight"
    assert np.array_equal(c.vector(norm, 128), gguf.vector(norm, 128))
    assert model_spec(c).n_layer == 2
    assert build_tokenizer(c).n_vocab == 288


def test_parts_take_their_own_formats(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out", "--format", "int4-g64", "--attention", "int8", "--head", "f16")
    c = open_model(tmp_path / "out")
    assert isinstance(c, IntContainer)
    kinds = {n.split(".")[-2]: c.rows[n].kinds for n in c.tensors}
    assert kinds["attn_q"] == kinds["attn_output"] == ("int8-row",)
    assert kinds["ffn_up"] == ("int4-grouped",) and kinds["token_embd"] == ("F16",)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])
def test_gguf_formats(source: Path, tmp_path: Path, kind: str) -> None:
    run(source, tmp_path / "out", "--to-gguf", kind)
    c = open_model(tmp_path / "out")
    assert c.path.name == "model.gguf"
    assert c.tensors["blk.0.attn_q.weight"].format_name == kind.upper()
    assert c.tensors["blk.0.attn_norm.weight"].format_name == "F32"
    x = decoded(open_model(source), "blk.0.ffn_up.weight")
    error = np.square(decoded(c, "blk.0.ffn_up.weight") - x).sum() / np.square(x).sum()
    limit = {"f32": 0.0, "f16": 0.0, "bf16": 1e-5, "q8_0": 1e-4}.get(kind, 1e-2)
    assert error <= limit
    model_spec(c)


def test_split_gguf_and_back_from_a_container(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "int8", "--format", "int8")
    choice = Choice(target("q8_0", True), {}, True)
    job = Conversion(tmp_path / "int8", tmp_path / "gguf", choice, 100_000)
    report = job.run(lambda done, total: None)
    assert report.written == len(job.names) > 2
    c = open_model(tmp_path / "gguf")
    assert len(c.paths) == report.written
    a, b = decoded(c, "output.weight"), decoded(open_model(source), "output.weight")
    assert np.square(a - b).sum() / np.square(b).sum() < 2e-4


def test_hugging_face_sources(source: Path, tmp_path: Path) -> None:
    gguf = open_model(source)
    tensors: dict[str, Any] = dict(hf_tensors(arrays(gguf), heads=(4, 2)))
    for name, x in tensors.items():
        if name.endswith("v_proj.weight"):
            tensors[name] = ("BF16", int_codec.to_bf16(x.astype(np.float32)))
    down = "model.layers.0.mlp.down_proj.weight"
    codes = np.random.default_rng(0).integers(0, 0x7F, (128, 192), dtype=np.uint8)
    tensors[down] = ("F8_E4M3", codes)
    tensors[down + "_scale_inv"] = np.array([[0.01, 0.02]], np.float32)
    hf = write_folder(tmp_path / "hf", tensors, llama_config(gguf), 2)
    run(hf, tmp_path / "out", "--format", "int8")
    c, plain = open_model(tmp_path / "out"), open_model(hf)
    for name in ("blk.0.attn_q.weight", "blk.1.attn_v.weight", "blk.0.ffn_down.weight"):
        a, b = decoded(c, name), decoded(plain, name)
        assert np.square(a - b).sum() / np.square(b).sum() < 2e-4, name
    assert c.metadata["llama.attention.head_count_kv"] == 2
    assert (tmp_path / "out" / "config.json").read_text() == (hf / "config.json").read_text()


# --- stopped and resumed ---------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from kompute_llm.engine import convert, convert_shard
from kompute_llm.engine.convert_formats import Choice, target
src, dst, shard = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
job = convert.Conversion(src, dst, Choice(target("int4-g64", False), {}, False), 40_000)
plain = convert_shard._write
left = sum(len(s) for s in job.shards[:shard]) + 1
def write(*args):
    global left
    plain(*args)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
convert_shard._write = write
job.run(lambda done, total: None)
"""


def hashes(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Inode and content of every finished shard."""
    return {p.name: (p.stat().st_ino, p.read_bytes()) for p in folder.glob("*.safetensors")
            if not p.name.startswith(".")}  # fmt: skip


def test_a_killed_run_goes_on(source: Path, tmp_path: Path) -> None:
    dst = tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(source), str(dst), "2"]
    killed = subprocess.run(command, env=os.environ | {"PYTHONSAFEPATH": "1"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    before = hashes(dst)
    assert len(before) == 2 and list(dst.glob(".*.part"))
    choice = Choice(target("int4-g64", False), {}, False)
    with pytest.raises(Exception, match=r"incomplete; shards missing in the folder: model-00003"):
        open_model(dst)
    job = Conversion(source, dst, choice, 40_000)
    report = job.run(lambda done, total: None)
    assert (report.kept, report.written) == (2, len(job.names) - 2)
    after = hashes(dst)
    assert {n: after[n] for n in before} == before  # not written again
    assert not list(dst.glob("*.part")) and not list(dst.glob(".*.part"))
    Conversion(source, tmp_path / "whole", choice, 40_000).run(lambda done, total: None)
    whole = hashes(tmp_path / "whole")
    assert {n: data for n, (_, data) in after.items()} == {n: d for n, (_, d) in whole.items()}
    manifest = json.loads((dst / "convert.json").read_text())
    assert set(manifest["done"]) == set(whole)


def test_a_damaged_shard_is_written_again(source: Path, tmp_path: Path) -> None:
    dst = tmp_path / "out"
    run(source, dst)
    (shard,) = hashes(dst)
    with open(dst / shard, "ab") as f:
        f.write(b"x")
    assert "1 shard written" in run(source, dst).stderr
    assert "0 shards written and verified, 1 were" in run(source, dst).stderr


def test_ctrl_c_keeps_finished_shards(source: Path, tmp_path: Path) -> None:
    choice = Choice(target("int8", False), {}, False)
    job = Conversion(source, tmp_path / "out", choice, 40_000)

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.run(stop)
    kept = len(hashes(tmp_path / "out"))
    assert 0 < kept < len(job.names)
    assert job.run(lambda done, total: None).kept == kept


# --- refusals --------------------------------------------------------------------------------


def refused(*args: Any) -> str:
    """The message of a run that must fail without a traceback."""
    result = invoke("convert", *args)
    assert result.exit_code in (1, 2) and result.stdout == ""
    return result.stderr


def test_other_options_or_another_source_do_not_go_on(source: Path, tmp_path: Path) -> None:
    dst = tmp_path / "out"
    run(source, dst)
    assert "began with other options" in refused(source, dst, "--format", "int4")
    assert "began with other options" in refused(source, dst, "--head", "f16")
    other = tiny(**SMALL, seed=8).write(tmp_path / "small2.gguf")
    other.rename(source)
    assert "began with other source" in refused(source, dst)


def test_nothing_is_overwritten(source: Path, tmp_path: Path) -> None:
    dst = tmp_path / "out"
    dst.mkdir()
    (dst / "notes.txt").write_text("mine")
    assert "not empty" in refused(source, dst)
    assert sorted(p.name for p in dst.iterdir()) == ["notes.txt"]
    assert "holds the source" in refused(source, tmp_path)
    assert "is a file" in refused(source, source)
    (dst / "convert.json").write_text("{}")
    assert "was not written by this version" in refused(source, dst)


def test_wrong_options(source: Path, tmp_path: Path) -> None:
    dst = tmp_path / "out"
    assert "format 'int5' is not known; known: int8" in refused(source, dst, "--format", "int5")
    assert "exclude each other" in refused(source, dst, "--format", "int8", "--to-gguf", "f16")
    assert "cannot be written to GGUF" in refused(source, dst, "--to-gguf", "q2_k")
    assert "no such file" in refused(tmp_path / "none.gguf", dst)
    assert not dst.exists()


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    model = tiny(**SMALL)
    model.tensors["blk.1.ffn_up.weight"][3, 5] = np.nan
    path = model.write(tmp_path / "nan.gguf")
    message = refused(path, tmp_path / "out")
    assert "'blk.1.ffn_up.weight'" in message and "not finite" in message


def test_two_runs_do_not_share_a_folder(source: Path, tmp_path: Path) -> None:
    choice = Choice(target("int8", False), {}, False)
    first = Conversion(source, tmp_path / "out", choice)
    second = Conversion(source, tmp_path / "out", choice)

    def meanwhile(done: int, total: int) -> None:
        with pytest.raises(ConvertError, match="another conversion is at work"):
            second.run(lambda done, total: None)

    first.run(meanwhile)


class Broken(IntTarget):
    """Writes one byte that is not what it encoded."""

    def encode(self, x: Any) -> Any:
        """The streams with the last byte changed."""
        out = super().encode(x)
        out[0] = out[0].copy()
        out[0][-1, -1] ^= 0x80
        return out


def test_sources_that_cannot_run_are_named(tmp_path: Path) -> None:
    """They are converted all the same: another program may know the architecture."""
    m = tiny(n_embd=64, n_ff=64)
    del m.tensors["blk.1.ffn_up.weight"]
    result = invoke("convert", m.write(tmp_path / "m.gguf"), tmp_path / "out")
    assert result.exit_code == 0
    assert "layer 1: ffn_up.weight; the converted model will not run either" in result.stderr
    assert "1 shard written" in result.stderr


def test_what_does_not_read_back_is_not_kept(source: Path, tmp_path: Path) -> None:
    choice = Choice(Broken(NAMES["int8-row"]), {}, False)
    with pytest.raises(ConvertError, match="does not read back as written"):
        Conversion(source, tmp_path / "out", choice).run(lambda done, total: None)
    assert not list((tmp_path / "out").glob("model*"))
