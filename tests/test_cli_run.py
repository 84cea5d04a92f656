"""`run` over a scripted runner: text, prompts, options, what goes to which stream."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_runner import Script
from fixtures import BOS, CONTROLS, Model, token_ids, write_tiny

from cli import invoke
from kompute_llm.cli.output import TextOut
from kompute_llm.engine import choice
from kompute_llm.engine.sampler import Sampling

CHAT = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model without a chat template."""
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", n_embd=256, n_head=2)


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a template."""
    def edit(m: Model) -> None:
        m.metadata["tokenizer.chat_template"] = CHAT

    return write_tiny(
        tmp_path_factory.mktemp("chat") / "chat.gguf", n_embd=256, n_head=2, edit=edit
    )


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """What the runner of this test draws: "hi" and an end token, unless changed."""
    made = Script(ids=token_ids(["h", "i", CONTROLS[0]]))
    monkeypatch.setattr(choice, "open_runner", made.open)
    return made


def prompt_ids(stderr: str) -> list[int]:
    """The ids that --verbose prints."""
    found = re.search(r"^prompt: (\d+) tokens: ([\d ]+)$", stderr, re.M)
    assert found
    ids = [int(x) for x in found[2].split()]
    assert len(ids) == int(found[1])
    return ids


def test_text_alone_on_stdout(script: Script, tiny: Path) -> None:
    r = invoke("run", tiny, "-p", "h", "--seed", 1)
    assert (r.exit_code, r.stdout) == (0, "hi\n")
    assert re.fullmatch(r"\[ Prompt: [\d.]+ t/s \| Generation: [\d.]+ t/s \]\n", r.stderr)
    assert script.calls[-1] == "close"


def test_n_1_has_no_decode_rate(script: Script, tiny: Path) -> None:
    r = invoke("run", "-m", tiny, "-p", "h", "-n", 1)
    assert r.stdout == "h\n"
    assert re.search(r"\[ Prompt: [\d.]+ t/s \| Generation: n/a \]\n$", r.stderr)


def test_utf8_split_over_tokens(script: Script, tiny: Path) -> None:
    script.ids = token_ids(["€é", b"\xff", "h", CONTROLS[0]])
    assert invoke("run", tiny, "-p", "h").stdout == "€é\ufffdh\n"
    script.ids = token_ids([b"\xe2\x82", CONTROLS[0]])  # ends inside a character
    assert invoke("run", tiny, "-p", "h").stdout == "\ufffd\n"


def test_verbose_names_the_stop_token(script: Script, tiny: Path) -> None:
    r = invoke("run", tiny, "-p", "h", "-v")
    end = token_ids([CONTROLS[0]])[0]
    assert f"stopped: end token {end} '<|eot_id|>'" in r.stderr
    assert "fake (cpu" in r.stderr
    assert prompt_ids(r.stderr) == [BOS, *token_ids("h")]
    assert "2 prompt tokens (0 cached, 2 processed)" in r.stderr


def test_ignore_eos(script: Script, tiny: Path) -> None:
    assert invoke("run", tiny, "-p", "h", "-n", 5, "--ignore-eos").stdout == "hihi\n"


def test_context_end_is_said(script: Script, tiny: Path) -> None:
    script.ids = token_ids(["h"])
    r = invoke("run", tiny, "-p", "h", "-c", 8)
    assert (r.exit_code, r.stdout) == (0, "h" * 7 + "\n")
    assert "the context of 8 tokens is full" in r.stderr


def test_default_context(script: Script, tiny: Path) -> None:
    for args, expected in (
        ((), 4096), (("-c", 0), 131072), (("-c", 77), 77), (("-n", 5000), 5120)
    ):  # fmt: skip
        assert invoke("run", tiny, "-p", "h", *args).exit_code == 0
        assert script.configs[-1].n_ctx == expected


def test_context_beyond_training_is_allowed_with_a_warning(script: Script, tiny: Path) -> None:
    r = invoke("run", tiny, "-p", "h", "-c", 200000)
    assert r.exit_code == 0
    assert "exceeds the 131072 positions of training" in r.stderr


def test_prompt_longer_than_the_context(script: Script, tiny: Path) -> None:
    r = invoke("run", tiny, "-p", "h" * 100, "-c", 32)
    assert (r.exit_code, r.stdout) == (1, "")
    assert re.search(r"error: the prompt has \d+ tokens but the context holds 32", r.stderr)
    assert script.calls == []


# --- prompts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [("-f", "FILE"), ("-",), ("-f", "-"), ("-p", "-"), ()])
def test_prompt_sources(script: Script, tiny: Path, tmp_path: Path, args: tuple[str, ...]) -> None:
    file = tmp_path / "prompt"
    file.write_text("hi\n")
    r = invoke("run", "-v", "-m", tiny, *(file if a == "FILE" else a for a in args), stdin="hi\n")
    assert r.exit_code == 0
    assert prompt_ids(r.stderr) == [BOS, *token_ids("hi")]


def test_model_and_dash_as_arguments(script: Script, tiny: Path) -> None:
    r = invoke("run", tiny, "-", "-v", stdin="hi")
    assert prompt_ids(r.stderr) == [BOS, *token_ids("hi")]


def test_utf16_and_byte_order_marks(script: Script, tiny: Path, tmp_path: Path) -> None:
    for data in ("hi".encode("utf-16"), b"\xef\xbb\xbfhi"):
        r = invoke("run", tiny, "-v", stdin=data)
        assert prompt_ids(r.stderr) == [BOS, *token_ids("hi")]


def test_invalid_bytes_are_replaced_and_said(script: Script, tiny: Path) -> None:
    r = invoke("run", tiny, "-v", stdin=b"h\xff\xfei")
    assert r.exit_code == 0
    assert "warning: standard input is not valid UTF-8 (byte 1)" in r.stderr
    assert prompt_ids(r.stderr) == [BOS, *token_ids(["h", "\ufffd", "\ufffd", "i"])]
    r = invoke("run", tiny, "-p", "h\udcff", "-v")
    assert "warning: -p is not valid UTF-8" in r.stderr


def test_empty_prompt_starts_from_bos(script: Script, tiny: Path, tmp_path: Path) -> None:
    assert prompt_ids(invoke("run", tiny, "-p", "", "-v").stderr) == [BOS]
    without = write_tiny(
        tmp_path / "m.gguf", n_embd=256, n_head=2, metadata={"tokenizer.ggml.bos_token_id": None}
    )
    r = invoke("run", without, "-p", "")
    assert r.exit_code == 2
    assert "no token to begin with" in r.stderr


def test_chat_template_is_used_if_there_is_one(script: Script, chatty: Path) -> None:
    r = invoke("run", chatty, "-p", "hi", "--system", "he", "-v")
    ids = prompt_ids(r.stderr)
    assert ids.count(BOS) == 1  # template and tokenizer both want one
    assert ids[0] == BOS
    raw = prompt_ids(invoke("run", chatty, "-p", "hi", "--no-chat", "-v").stderr)
    assert raw == [BOS, *token_ids("hi")]
    assert len(ids) > len(raw)


def test_chat_wants_a_template(script: Script, tiny: Path) -> None:
    for args in (("--chat",), ("--system", "x")):
        r = invoke("run", tiny, "-p", "h", *args)
        assert r.exit_code == 2
        assert "no chat template" in r.stderr


def test_synthetic_models_make_no_text() -> None:
    r = invoke("run", "-m", "synthetic:tiny-q4_k", "-p", "hi")
    assert r.exit_code == 2
    assert "synthetic models are for 'bench'" in r.stderr


def test_bos_in_a_chat_message(script: Script, tmp_path: Path) -> None:
    """One BOS, whether the template, the tokenizer or the user writes it."""
    for template, adds in (("{{ bos_token }}|", True), ("{{ bos_token }}|", False), ("|", True)):
        keys = {"tokenizer.chat_template": template + "{{ messages[0].content }}",
                "tokenizer.ggml.add_bos_token": adds}  # fmt: skip
        path = write_tiny(tmp_path / "m.gguf", n_embd=256, n_head=2, metadata=keys)
        r = invoke("run", path, "-p", "<s>hi", "-v")
        ids = r.stderr.split("tokens: ")[1].splitlines()[0].split()
        assert ids.count("1") == 1 and ids[0] == "1"


def test_a_broken_template_names_the_way_out(script: Script, tmp_path: Path) -> None:
    broken = {"tokenizer.chat_template": "{% made_up %}"}
    path = write_tiny(tmp_path / "m.gguf", n_embd=256, n_head=2, metadata=broken)
    r = invoke("run", path, "-p", "h")
    assert r.exit_code == 1
    assert "made_up" in r.stderr
    assert "--no-chat" in r.stderr
    assert invoke("run", path, "-p", "h", "--no-chat").stdout == "hi\n"


# --- sampling and faults ---------------------------------------------------------------------


def test_defaults_are_those_of_sampling(script: Script, tiny: Path) -> None:
    invoke("run", tiny, "-p", "h", "--seed", 3)
    assert script.samplings[-1] == Sampling(seed=3)


def test_fresh_seed_is_printed_and_differs(script: Script, tiny: Path) -> None:
    seeds = set()
    for _ in range(3):
        r = invoke("run", tiny, "-p", "h")
        shown = re.search(r"^seed: (\d+)$", r.stderr, re.M)
        assert shown
        assert script.samplings[-1].seed == int(shown[1])
        seeds.add(shown[1])
    assert len(seeds) == 3
    assert "seed" not in invoke("run", tiny, "-p", "h", "--seed", 0).stderr
    assert "seed" not in invoke("run", tiny, "-p", "h", "--temp", 0).stderr


@pytest.mark.parametrize(("given", "used"), [(0, 0), (2**32, 2**32), (2**64 - 1, 2**64 - 1)])
def test_seeds(script: Script, tiny: Path, given: int, used: int) -> None:
    assert invoke("run", tiny, "-p", "h", "--seed", given).exit_code == 0
    assert script.samplings[-1].seed == used


def test_bad_logits_warn_once(script: Script, tiny: Path) -> None:
    script.bad = [0, 2, 1]
    r = invoke("run", tiny, "-p", "h")
    assert (r.exit_code, r.stdout) == (0, "hi\n")
    assert r.stderr.count("warning") == 1
    assert "logits were NaN or infinite 3 times" in r.stderr


def test_no_finite_logit_is_an_error(script: Script, tiny: Path) -> None:
    script.not_finite_at = 1
    r = invoke("run", tiny, "-p", "h")
    assert (r.exit_code, r.stdout) == (1, "h\n")
    assert "error: every logit is NaN or infinite" in r.stderr
    assert "the text is incomplete" in r.stderr
    assert "t/s" not in r.stderr


@pytest.mark.parametrize("fault", ["lose_prefill", "lose_decode"])
def test_device_lost(script: Script, tiny: Path, fault: str) -> None:
    setattr(script, fault, 0)
    r = invoke("run", tiny, "-p", "h")
    assert r.exit_code == 1
    assert "error: device lost" in r.stderr
    assert "t/s" not in r.stderr
    assert script.calls[-1] == "close"


def test_notes_and_device_options_arrive(script: Script, tiny: Path) -> None:
    script.notes = ("no GPU found: using the CPU",)
    options: dict[str, Any] = {"--device": "2", "--cache-type-k": "f32", "-ctv": "f32",
                               "--math": "int8", "--threads": 3}  # fmt: skip
    r = invoke("run", tiny, "-p", "h", *(x for pair in options.items() for x in pair))
    assert "note: no GPU found: using the CPU" in r.stderr
    c = script.configs[-1]
    assert (c.device, c.cache_k, c.cache_v, c.math, c.threads) == ("2", "f32", "f32", "int8", 3)


def test_profile(script: Script, tiny: Path) -> None:
    r = invoke("run", tiny, "-p", "h", "--profile")
    assert re.search(r"^phase +ms +% +GB/s", r.stderr, re.M)
    assert re.search(r"^total +[\d.]+ +100.0", r.stderr, re.M)
    assert r.stdout == "hi\n"


def test_control_characters_cannot_drive_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", stdout)
    for tty, expected in (
        (False, b"a\x1b[31m\x07\tb\n"), (True, b"a^[[31m^G\tb\n")
    ):  # fmt: skip
        monkeypatch.setattr(stdout, "isatty", lambda tty=tty: tty, raising=False)
        stdout.buffer.truncate(0)
        stdout.buffer.seek(0)
        out = TextOut()
        out.write("a\x1b[31m\x07\tb")
        out.end()
        assert stdout.buffer.getvalue() == expected
