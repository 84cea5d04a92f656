"""Chat templates: a model's own jinja2 text, rendered in a sandbox, and the ids of a prompt.

The environment is that of Hugging Face's `apply_chat_template`, for which templates are written.
They come with the model file and are not trusted: the sandbox keeps them from Python's internals,
from changing what they are given, from `range` above 100,000 and from huge texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .errors import TokenizerError
from .tokenizer import Tokenizer
from .vocab import Source

TEMPLATE = "tokenizer.chat_template"
_ABSENT = {"tools": None, "documents": None}  # always defined, as in apply_chat_template


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is rendered."""

    tags = {"generation"}  # noqa: RUF012 - the interface of jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    """What templates call to refuse a conversation."""
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    """The local time, for templates that state the date."""
    return datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is: jinja2's own filter escapes HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _environment() -> ImmutableSandboxedEnvironment:
    """A fresh sandbox."""
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
    )
    env.filters["tojson"] = _tojson
    env.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return env


class ChatTemplate:
    """One template. It is compiled at the first use, so a broken one does not stop the load."""

    def __init__(self, source: str, bos: str = "", eos: str = "", where: str = TEMPLATE) -> None:
        self.source, self.bos, self.eos, self.where = source, bos, eos, where

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        **extra: Any,
    ) -> str:
        """The prompt of a conversation; `extra` are further variables (`tools`, …).

        Raises TokenizerError with the template's line or with its own message.
        """
        given = {"bos_token": self.bos, "eos_token": self.eos} | _ABSENT | extra
        try:
            return self._compiled.render(
                messages=messages, add_generation_prompt=add_generation_prompt, **given
            )
        except TemplateSyntaxError as error:
            raise self._fail(f"line {error.lineno}: {error.message}") from error
        except TokenizerError:
            raise
        except Exception as error:  # templates run code: any error of Python's may come out
            raise self._fail(_line(error) + _reason(error)) from error

    @cached_property
    def _compiled(self) -> Template:
        return _environment().from_string(self.source)

    def _fail(self, problem: str) -> TokenizerError:
        return TokenizerError(f"{self.where}: {problem}")


def _line(error: BaseException) -> str:
    """ "line N: " of the innermost template frame, or nothing."""
    found, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            found = f"line {trace.tb_lineno}: "
        trace = trace.tb_next
    return found


def _reason(error: Exception) -> str:
    """The error's text, with its kind where that is no template error."""
    text = str(error) or type(error).__name__
    return text if isinstance(error, TemplateError) else f"{type(error).__name__}: {text}"


def chat_template(source: Source, tokenizer: Tokenizer) -> ChatTemplate | None:
    """The default chat template of a model file, or None if it has none."""
    named = {
        key[len(TEMPLATE) + 1 :]: value
        for key in source.metadata
        if key.startswith(TEMPLATE + ".") and isinstance(value := source.metadata[key], str)
    }
    text = source.metadata.get(TEMPLATE)
    if not isinstance(text, str) or not text.strip():
        # a file may hold named templates alone
        text = named.get("default") or (next(iter(named.values())) if len(named) == 1 else None)
    if not text:
        return None
    bos, eos = (
        "" if token is None else tokenizer.piece(token) for token in (tokenizer.bos, tokenizer.eos)
    )
    return ChatTemplate(text, bos, eos, f"{source.path}: {TEMPLATE}")


def encode_prompt(tokenizer: Tokenizer, text: str, chat_rendered: bool = False) -> list[int]:
    """Ids of a prompt, with control tokens spelt in the text, at most one BOS and no EOS.

    BOS is in front if the text spells it or if the file says that the tokenizer adds it, and never
    twice, whoever wrote it. `chat_rendered` is for symmetry: both kinds of text follow one rule.
    """
    del chat_rendered
    ids = tokenizer.encode(text, add_special=False, parse_special=True)
    bos = tokenizer.bos
    if bos is None:
        return ids
    start = 0
    while start < len(ids) and ids[start] == bos:
        start += 1
    return [bos] * (start > 0 or tokenizer.add_bos) + ids[start:]
