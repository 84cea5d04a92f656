"""Chat templates: the golden ones, the sandbox, errors, and the one-BOS rule."""

from __future__ import annotations

import json
import resource
import signal
import time
from datetime import datetime
from pathlib import Path

import pytest
from helpers import golden
from vocab_source import CONTROL, Source, bpe, spm, token_id

from kompute_llm.engine import sandbox
from kompute_llm.engine.chat import ChatTemplate, chat_template, encode_prompt, without_bos
from kompute_llm.engine.errors import TokenizerError
from kompute_llm.engine.tokenizer import build_tokenizer

GOLDEN = golden()
CASES = sorted((GOLDEN / "chat_templates").glob("*.json")) if GOLDEN else []
HI = [{"role": "user", "content": "hi"}]


@pytest.mark.skipif(not CASES, reason="no ../shared/golden beside the repository")
@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_golden_templates(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.loads(path.read_text())
    now = datetime.fromisoformat(data["strftime_now"])
    monkeypatch.setattr(sandbox, "_strftime_now", now.strftime)
    source = (path.parent / data["template"]).read_text()
    template = ChatTemplate(source, data["bos_token"] or "", data["eos_token"] or "")
    for case in data["cases"]:
        text = template.render(
            case["messages"], case["add_generation_prompt"], tools=case["tools"], **case["extra"]
        )
        assert text == case["expected"], case["name"]


def render(source: str) -> str:
    return ChatTemplate(source, "<s>", "</s>").render(HI, thinking=5)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>hi</s>"),
        (
            "{% for m in messages %}\n  {% if true %}\n{{ m.role }}\n  {% endif %}\n{% endfor %}",
            "user\n",
        ),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("{{ [1, 2] | tojson(indent=1) }}", "[\n 1,\n 2\n]"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "hi"),
        ("{{ add_generation_prompt }} {{ tools is none }} {{ thinking }}", "True True 5"),
        ("{% set ns = namespace(n=1) %}{% set ns.n = ns.n * 3 %}{{ ns.n }}", "3"),
        ("{{ '-' * 3 }}", "---"),
        ("{{ strftime_now('%%') }}", "%"),
    ],
)
def test_what_templates_may_use(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "a\n{% call_me_maybe %}",
            "tokenizer.chat_template: line 2: .*unknown tag 'call_me_maybe'",
        ),
        ("a\n\n{{ raise_exception('roles must alternate') }}", "line 3: roles must alternate"),
        ("\n{{ messages[0].content.nothing.more }}", "line 2: .*no attribute 'nothing'"),
        ("{{ 1 / 0 }}", "line 1: ZeroDivisionError: division by zero"),
        ("{{ ''.__class__.__mro__ }}", "line 1: .*unsafe"),
        ("{{ messages.append(1) }}", "line 1: .*unsafe|not safely callable"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "OverflowError: Range too big"),
        ("{{ 'x' * 10 ** 9 }}", r"a result of '\*' is too large"),
        ("{{ 9 ** 99999999 }}", r"a result of '\*\*' is too large"),
        ("{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}", "the text grows beyond"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too many calls inside"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "compiling it needs too many calls"),
        ("{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}"
         "{% endfor %}", r"a result of '\+' is too large"),
        ("x" * 1100000, "1100000 characters; at most 1048576"),
    ],
)
def test_template_errors_name_the_line(source: str, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        render(source)


def with_template(source: Source, **keys: str) -> Source:
    source.metadata |= {key.replace("__", "."): text for key, text in keys.items()}
    return source


def test_a_broken_template_does_not_stop_the_load() -> None:
    source = with_template(spm(), tokenizer__chat_template="{% nonsense %}")
    template = chat_template(source, build_tokenizer(source))
    assert template is not None
    with pytest.raises(TokenizerError, match=r"^tiny.gguf: tokenizer.chat_template: line 1"):
        template.render(HI)


def test_which_template_is_taken() -> None:
    def text(**keys: str) -> str | None:
        source = with_template(spm(), **keys)
        template = chat_template(source, build_tokenizer(source))
        return None if template is None else template.render(HI)

    assert text() is None
    assert text(tokenizer__chat_template=" \n") is None
    assert text(tokenizer__chat_template="a", tokenizer__chat_template__tool_use="b") == "a"
    assert text(tokenizer__chat_template__default="c", tokenizer__chat_template__rag="d") == "c"
    assert text(tokenizer__chat_template__tool_use="e") == "e"
    assert text(tokenizer__chat_template__x="f", tokenizer__chat_template__y="g") is None
    assert text(tokenizer__chat_template="{{ bos_token }}|{{ eos_token }}") == "<s>|</s>"


def test_no_bos_token_is_no_text() -> None:
    source = with_template(bpe(), tokenizer__chat_template="[{{ bos_token }}]")
    template = chat_template(source, build_tokenizer(source))
    assert template is not None and template.render(HI) == "[]"


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("text", ["hi", "<s>hi", "<s><s>hi"])
def test_one_bos(add_bos: bool, text: str) -> None:
    source = spm(add_bos_token=add_bos, add_eos_token=True)
    ids = encode_prompt(build_tokenizer(source), text)
    bos = [1] if add_bos or "<s>" in text else []
    assert ids == [*bos, token_id(source, "▁hi")]


def test_bos_of_a_message_is_left_out() -> None:
    assert without_bos(build_tokenizer(spm()), "<s><s>hi<s>") == "hi<s>"
    assert without_bos(build_tokenizer(bpe()), "<s>hi") == "<s>hi"


def test_bos_inside_the_text_stays() -> None:
    source = spm(add_bos_token=True)
    hi = token_id(source, "▁hi")
    assert encode_prompt(build_tokenizer(source), "hi<s>hi") == [1, hi, 1, hi]


def test_prompt_of_a_vocabulary_without_bos() -> None:
    source = bpe({"<|im_start|>": CONTROL}, add_bos_token=True)
    ids = encode_prompt(build_tokenizer(source), "<|im_start|>the")
    assert ids == [token_id(source, "<|im_start|>"), token_id(source, "the")]
    assert encode_prompt(build_tokenizer(source), "") == []


ENDLESS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{{ ('<>' * 8000000) | striptags }}",
    "{{ range(99999) | list | select('in', range(99999) | list) | list | length }}",
)


@pytest.mark.parametrize("source", ENDLESS)
def test_endless_templates_are_ended(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.2)
    start = time.monotonic()
    with pytest.raises(TokenizerError, match=r"rendering it takes more than 0.2 s"):
        ChatTemplate(source).render([])
    assert time.monotonic() - start < 3
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert ChatTemplate("a").render([]) == "a"


HUGE = (
    "{{ 'a' | center(1000000000) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ {} | tojson(indent=1000000000) ~ ([1] | tojson(indent=1000000000)) }}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the bound needs Linux")
@pytest.mark.parametrize("source", HUGE)
def test_huge_templates_are_ended(source: str) -> None:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(TokenizerError, match="rendering it takes more than 256 MB"):
        ChatTemplate(source).render([])
    assert resource.getrlimit(resource.RLIMIT_AS) == limits
