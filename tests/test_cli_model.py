"""The command line on the CPU executor: field cases on CYCLE and TINY, from options to text."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import CONTROLS, Model, token_ids, write_cycle, write_tiny

from cli import invoke, process

SMALL: Any = {"n_embd": 512, "n_head": 4, "n_ff": 256}
CPU = ("--device", "cpu", "--threads", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """cycle.gguf (h, i, l, o for ever), flat.gguf (every token alike) and tiny.gguf."""
    path = tmp_path_factory.mktemp("models")
    write_cycle(path / "cycle.gguf", "hilo", **SMALL)
    write_cycle(path / "flat.gguf", "hilo", scale=0.0, **SMALL)
    write_tiny(path / "tiny.gguf", **SMALL)
    return path


def text(model: Path, *args: object) -> str:
    """What `run` writes for the prompt "h"."""
    r = invoke("run", model, "-p", "h", *CPU, *args)
    assert r.exit_code == 0, r.stderr
    return str(r.stdout).removesuffix("\n")


@pytest.mark.parametrize("end", CONTROLS)
def test_every_known_end_token_stops(tmp_path: Path, end: str) -> None:
    path = write_cycle(tmp_path / "m.gguf", ["h", "i", end, "x"], eos="y", **SMALL)
    r = invoke("run", path, "-p", "h", "-n", 50, "-v", *CPU)
    assert (r.exit_code, r.stdout) == (0, "i\n")
    assert f"stopped: end token {token_ids([end])[0]} '{end}'" in r.stderr
    assert text(path, "-n", 3, "--ignore-eos") == "ix"


@pytest.mark.parametrize("quant", ["F16", "Q8_0"])
@pytest.mark.parametrize("temp", [0, 0.8, 2])
def test_cycle_at_any_temperature(tmp_path: Path, quant: str, temp: float) -> None:
    path = write_cycle(tmp_path / "m.gguf", ["h", "€", "i"], quant=quant, **SMALL)
    assert text(path, "-n", 10, "--temp", temp) == "€ih€ih"


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("batch", [1, 3, 512])
def test_exact_lengths_and_batches(folder: Path, n: int, batch: int) -> None:
    r = invoke("run", folder / "cycle.gguf", "-p", "hilo", "-n", n, "-b", batch, *CPU)
    assert r.stdout == ("hilo" * 3)[:n] + "\n"


def test_context_is_used_to_the_last_position(folder: Path) -> None:
    r = invoke("run", folder / "cycle.gguf", "-p", "h", "-c", 16, *CPU)
    assert r.stdout == ("ilohilohilohiloh")[: 16 - 2 + 1] + "\n"
    assert "the context of 16 tokens is full" in r.stderr
    r = invoke("run", folder / "cycle.gguf", "-p", "h" * 15, "-c", 16, *CPU)
    assert r.stdout == "i\n"
    assert invoke("run", folder / "cycle.gguf", "-p", "h" * 16, "-c", 16, *CPU).exit_code == 1


def test_greedy_ignores_other_samplers(folder: Path) -> None:
    first = text(folder / "tiny.gguf", "-n", 12, "--temp", 0)
    for args in ((), ("--top-k", 5, "--top-p", 0.5), ("--seed", 9), ("--min-p", 0.5)):
        assert text(folder / "tiny.gguf", "-n", 12, "--temp", 0, *args) == first


def test_a_seed_repeats_and_a_fresh_one_is_replayable(folder: Path) -> None:
    tiny = folder / "tiny.gguf"
    assert text(tiny, "-n", 12, "--temp", 1, "--seed", 7) == text(
        tiny, "-n", 12, "--temp", 1, "--seed", 7
    )
    seen = set()
    for _ in range(2):
        r = invoke("run", tiny, "-p", "h", "-n", 20, "--temp", 1, *CPU)
        seed = re.search(r"^seed: (\d+)$", r.stderr, re.M)
        assert seed
        assert text(tiny, "-n", 20, "--temp", 1, "--seed", seed[1]) == r.stdout[:-1]
        seen.add(r.stdout)
    assert len(seen) == 2


def test_special_values(folder: Path) -> None:
    """200 draws from a flat distribution: top-k 0 and 10^9 are off, 1 is greedy."""
    flat = folder / "flat.gguf"
    base = ("-n", 200, "--ignore-eos", "--temp", 1, "--min-p", 0, "--top-p", 1, "--seed", 1)
    many = text(flat, *base, "--top-k", 0)
    assert len(set(many)) > 30
    assert text(flat, *base, "--top-k", 10**9) == many
    assert len(set(text(flat, *base, "--top-k", 1))) <= 1
    whole = (*base, "--top-k", 0, "--repeat-penalty", 1.5)
    assert text(flat, *whole, "--repeat-last-n", -1) == text(flat, *whole, "--repeat-last-n", 999)


def broken(row: int | None, value: float) -> Callable[[Model], None]:
    """An edit that puts `value` into one output row, or into all."""

    def edit(m: Model) -> None:
        m.tensors["output.weight"][slice(None) if row is None else row] = value

    return edit


def test_logits_that_are_not_finite(tmp_path: Path) -> None:
    for name, row in (("one", 100), ("all", None)):
        path = write_cycle(
            tmp_path / f"{name}.gguf", "hilo", quant="F32", edit=broken(row, np.nan), **SMALL
        )
        r = invoke("run", path, "-p", "h", "-n", 6, *CPU)
        if row is None:
            assert (r.exit_code, r.stdout) == (1, "")
            assert "error: every logit is NaN or infinite" in r.stderr
        else:
            assert (r.exit_code, r.stdout) == (0, "ilohil\n")
            assert "logits were NaN or infinite 6 times" in r.stderr


@pytest.mark.parametrize("prompt", ["h", "h" * 100000])
def test_ctrl_c(folder: Path, prompt: str, tmp_path: Path) -> None:
    """While text comes, and within a long prompt."""
    file = tmp_path / "prompt"
    file.write_text(prompt)
    args = ("run", folder / "cycle.gguf", "-f", file, "-n", 100000, "-c", 131072, "-v", *CPU)
    with process(*args) as p:
        assert p.stdout and p.stderr
        while not p.stderr.readline().startswith(b"prompt: "):
            pass  # the model is being loaded
        if len(prompt) == 1:
            p.stdout.read(4)
        else:
            time.sleep(0.3)
        p.send_signal(signal.SIGINT)
        began = time.monotonic()
        out, err = p.communicate(timeout=10)
    assert p.returncode == 130
    assert time.monotonic() - began < 2
    assert b"Traceback" not in err
    assert re.search(rb"\[ Prompt: .* \| Generation: .* \]\n", err)
    assert set(out) <= set(b"hilo\n")


def test_reader_that_leaves(folder: Path) -> None:
    with process("run", folder / "cycle.gguf", "-p", "h", *CPU, "--seed", 1) as p:
        assert p.stdout
        assert p.stdout.read(20) == b"ilohilohilohilohiloh"
        p.stdout.close()
        assert p.wait(timeout=10) == 141
        assert p.stderr
        assert p.stderr.read() == b""


def test_bench_of_a_real_model(folder: Path) -> None:
    r = invoke("bench", folder / "tiny.gguf", "pp16,tg4", "-r", 2, *CPU, "--profile")
    assert r.exit_code == 0
    assert r.stdout.count("| CPU ") == 2
    for phase in ("embed", "qkv", "attention", "output projection", "ffn", "head", "sampling"):
        assert r.stdout.count(f"\n{phase} ") == 2
