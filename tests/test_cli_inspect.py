"""`inspect`: what it says of good, foreign and broken files, and what it leaves alone."""

from __future__ import annotations

import io
import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import tiny
from gguf_bytes import Blob, Typed, gguf_bytes
from helpers import golden
from vocab_source import byte_chars

from cli import invoke
from kompute_llm.cli import tables
from kompute_llm.engine.contents import format_rows, group_of, short
from kompute_llm.engine.tensor import Tensor

SMALL: dict[str, Any] = {"n_embd": 64, "n_ff": 64, "n_head": 4}


def facts(path: Path, *options: Any) -> dict[str, Any]:
    """What -o json prints."""
    result = invoke("inspect", path, "-o", "json", *options)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(name))
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """TINY with Q4_0 layers and a rope scale."""
    meta = {"llama.rope.scaling.factor": 4.0, "general.file_type": 2}
    return tiny(**SMALL, quant="Q4_0", metadata=meta).write(tmp_path / "m.gguf")


def test_tables(model: Path) -> None:
    result = invoke("inspect", model)
    assert result.exit_code == 0 and result.stderr == ""
    lines: dict[str, str] = {}
    for line in result.stdout.splitlines():
        lines.setdefault(line.split("  ")[0], line)
    for name, words in {
        "file": str(model), "architecture": "llama", "runs": "yes", "layers": "2, 64 wide",
        "attention": "4 heads on 2 key/value heads", "rope": "base 10000, 16 values of a head by 4",
        "context": "131072 positions", "tokenizer": "llama, 288 tokens",
        "special tokens": "bos 1 '<s>', eos 2 '</s>'", "chat template": "none",
        "parameters": "Q4_0", "norms": "F32", "CPU": "f32", "any GPU": "f32",
        "GPU with int8 dot": "int8", "... and matrix cores": "int8, f16 in batches",
    }.items():  # fmt: skip
        assert words in lines[name], name
    assert "Memory for 4096 positions, f16 keys and f16 values" in result.stdout


def test_memory_grows_with_context_and_types(model: Path) -> None:
    def cache(*options: Any) -> list[int]:
        return [d["cache"] for d in facts(model, *options)["demands"]]

    one_token = 2 * 2 * 2 * 16 * 2  # layers, keys and values, heads, head size, bytes
    assert cache("-c", 512) == [0] + [512 * one_token] * 3
    assert cache("-c", 512, "-ctk", "f32", "-ctv", "f32") == [0] + [1024 * one_token] * 3
    assert cache("-c", 0)[1] == 131072 * one_token
    cpu = facts(model, "-c", 512)["demands"][0]
    assert cpu["device"] == 0 and cpu["host"] > cpu["mapped"] > 64 * 288


def test_demand_is_what_the_executors_take(model: Path, vulkan: Any) -> None:
    from kompute_llm.engine.container import open_model
    from kompute_llm.engine.spec import model_spec
    from kompute_llm.engine.vulkan import VulkanRunner

    with open_model(model) as c:
        runner = VulkanRunner(c, model_spec(c), vulkan, 512, math="f32")
        taken = runner.memory()  # not closed: the device is all tests'
    want = facts(model, "-c", 512)["demands"][1]
    assert taken["kv"] == want["cache"]
    assert abs(taken["weights"] - want["weights"]) < 0.05 * want["weights"] + 4096
    assert abs(taken["scratch"] - want["scratch"]) < 0.2 * want["scratch"]


def test_families_and_formats_that_do_not_run(tmp_path: Path) -> None:
    m = tiny(**SMALL, metadata={"general.architecture": "made-up", "made-up.block_count": 2})
    found = facts(m.write(tmp_path / "m.gguf"))
    assert "architecture 'made-up' is not supported" in found["problem"]
    assert found["sizes"] == {"layers": 2} and found["demands"] == []
    m = tiny(**SMALL)
    blobs = [Blob(b.name, b.shape, 99 if "ffn_up" in b.name else b.type_id, b.data)
             for b in m.blobs()]  # fmt: skip
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(m.metadata, blobs))
    result = invoke("inspect", tmp_path / "m.gguf")
    assert result.exit_code == 0
    assert "runs" in result.stdout and "format type 99 is not supported" in result.stdout
    assert "feed-forward  type 99" in result.stdout


def test_vocabulary_alone_and_its_faults(tmp_path: Path) -> None:
    meta = {"general.architecture": "llama", "tokenizer.ggml.model": "rwkv",
            "tokenizer.chat_template": "{% for %}"}  # fmt: skip
    (tmp_path / "v.gguf").write_bytes(gguf_bytes(meta))
    found = facts(tmp_path / "v.gguf")
    assert "holds no tensors" in found["problem"]
    assert "tokenizer kind 'rwkv' is not supported" in found["tokenizer"]["problem"]
    m = tiny(**SMALL, metadata={"tokenizer.ggml.model": "rwkv"})
    assert "only 'bench'" in invoke("inspect", m.write(tmp_path / "m.gguf")).stdout
    m = tiny(**SMALL, metadata={"tokenizer.chat_template": "{% for %}"})
    assert "line 1" in facts(m.write(tmp_path / "m.gguf"))["template"]["problem"]
    assert "cannot be rendered" in invoke("inspect", tmp_path / "m.gguf").stdout


def test_no_model_at_all(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"<!DOCTYPE html>")
    result = invoke("inspect", tmp_path / "m.gguf")
    assert result.exit_code == 1 and "HTML" in result.stderr and result.stdout == ""


def test_tensor_list(model: Path) -> None:
    lines = invoke("inspect", model, "--tensors").stdout.splitlines()
    assert lines[0].split() == ["tensor", "shape", "format", "size"]
    assert lines[1].split() == ["token_embd.weight", "288", "x", "64", "Q4_0", "10.12", "KiB"]
    result = json.loads(invoke("inspect", model, "--tensors", "-o", "json").stdout)
    assert len(result) == len(lines) - 1 == 21
    assert result[0]["shape"] == [288, 64] and result[0]["file"] == "m.gguf"


def test_metadata(model: Path) -> None:
    assert invoke("inspect", model, "--metadata", "general.name").stdout == "tiny\n"
    tokens = invoke("inspect", model, "--metadata", "tokenizer.ggml.tokens").stdout
    assert tokens.startswith("'<unk>'\n'<s>'\n") and "and 268 more" in tokens
    whole = invoke("inspect", model, "--metadata", "tokenizer.ggml.tokens", "-o", "json").stdout
    assert len(json.loads(whole)) == 288
    rows = invoke("inspect", model, "--metadata", "llama.rope.*").stdout.splitlines()
    assert [row.split()[0] for row in rows[1:]] == [
        "llama.rope.freq_base", "llama.rope.dimension_count", "llama.rope.scaling.factor"
    ]  # fmt: skip
    result = invoke("inspect", model, "--metadata", "nope")
    assert result.exit_code == 2 and "'nope'" in result.stderr
    assert invoke("inspect", model, "--metadata", "a", "--tensors").exit_code == 2


def test_names_cannot_drive_the_terminal(tmp_path: Path) -> None:
    m = tiny(**SMALL, metadata={
        "general.name": "\x1b]0;evil\x07", "general.license": Typed(8, b"\xff\xfe"),
        "x.\x1b[2J": float("nan"), "x.strings": [b"\xff", "\x1b[0m"],
    })  # fmt: skip
    path = m.write(tmp_path / "m.gguf")
    for options in ([], ["--metadata", "*"], ["--metadata", "x.strings"], ["-o", "json"]):
        result = invoke("inspect", path, *options)
        assert result.exit_code == 0 and "\x1b" not in result.stdout + result.stderr
    values = invoke("inspect", path, "--metadata", "x.*", "-o", "json").stdout
    assert list(json.loads(values).values()) == ["nan", ["\udcff", "\x1b[0m"]]
    bad = invoke("run", m.write(tmp_path / "\x1b[31m.gguf"), "-p", "x", "--system", "y")
    assert bad.exit_code == 2 and "\x1b" not in bad.stderr


def test_groups_and_short_values() -> None:
    assert [group_of(name) for name in (
        "token_embd.weight", "output.weight", "output_norm.weight", "blk.0.attn_output.weight",
        "blk.0.attn_q_norm.weight", "blk.9.ffn_down_exps.weight", "blk.1.ffn_gate_inp.weight",
        "blk.0.ssm_out.weight", "rope_freqs.weight", "blk.0.ffn_up.bias", "v.patch.weight",
    )] == [
        "embedding", "output", "norms", "attention", "norms", "experts", "experts",
        "state space", "rope factors", "feed-forward", "other",
    ]  # fmt: skip
    rows = format_rows([Tensor(f"blk.{i}.ffn_up.weight", (2, 32), i % 2, 0, 64) for i in range(3)])
    assert [(r.format, r.tensors, r.values, r.bytes) for r in rows] == [
        ("F32", 2, 128, 128), ("F16", 1, 64, 64)
    ]  # fmt: skip
    assert short(np.array([4, 4])) == 4 and short(np.array([2, 8])) == "2 to 8"
    assert short(["a"]) == "1 values" and len(short("x" * 999)) == 200


LOADED = """
import sys
from kompute_llm.cli.entry import main
sys.argv[1:] = ["inspect", *sys.argv[1:]]
try:
    main()
finally:
    print([m for m in ("kp", "numba", "kompute_llm._layer", "rich") if m in sys.modules])
"""


def test_quick_and_without_devices(tmp_path: Path) -> None:
    """150,000 tokens and merges, in a process of its own; nothing of Vulkan is loaded."""
    pairs = [f"{a}{b}" for a in byte_chars()[30:] for b in byte_chars()[30:]]
    words = [*byte_chars(), *pairs, *(f"{w}x" for w in pairs), *(f"{w}yz" for w in pairs)][:150000]
    m = tiny(**SMALL, vocab=len(words), quant="Q4_0")
    m.metadata |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2",
                   "tokenizer.ggml.tokens": words,
                   "tokenizer.ggml.token_type": np.ones(len(words), np.int32),
                   "tokenizer.ggml.merges": [f"{w[0]} {w[1:]}" for w in words[256:]]}  # fmt: skip
    path = m.write(tmp_path / "big.gguf")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", LOADED, path], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert b"150000 tokens" in done.stdout and done.stdout.endswith(b"[]\n")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < 1.5, "processor time; 0.5 s on a 2-core x86-64 machine"


@pytest.mark.skipif(golden() is None, reason="no ../shared/golden beside the repository")
def test_every_golden_model() -> None:
    folder = golden()
    assert folder
    for path in sorted((folder / "models").glob("*.gguf")):
        found = facts(path)
        assert found["tokenizer"]["problem"] is None, path
        assert found["problem"] is None or "not supported" in found["problem"], path
        assert sum(row["bytes"] for row in found["formats"]) == found["model"]["tensor_bytes"]


def test_tables_of_narrow_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers stay whole, gaps give way; long names are folded, not cut."""
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    tables.table(("kind of device", *"abc"), [("any GPU or none", *["196.96 MiB"] * 3)],
                 right="lrrr", stream=stream)  # fmt: skip
    tables.table(("file", "x" * 60), [("name", "y")], stream=stream)
    shown = re.sub("\x1b[^m]*m", "", stream.getvalue())
    assert shown.count("196.96 MiB") == 3
    assert shown.count("x") == 60
    assert max(map(len, shown.splitlines())) <= 40
