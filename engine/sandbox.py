"""The jinja2 environment of chat templates: that of Hugging Face's `apply_chat_template`, boxed in.

Templates come with a model file and are not trusted. The sandbox keeps them from Python's internals
and from changing what they are given; `range` stops at 100,000 numbers, a product or power that
would be huge is refused, and so is a huge result. Loops inside loops can still take for ever; they
run in Python, where Ctrl-C ends them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_TEXT = 1 << 24  # characters of one rendered prompt; bits of one number


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is rendered."""

    tags = {"generation"}  # noqa: RUF012 - the interface of jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Refuses products and powers that would fill the memory."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if _size(operator, left, right) > MAX_TEXT:
            raise TemplateError(f"a result of '{operator}' is too large")
        return super().call_binop(context, operator, left, right)


def _size(operator: str, left: Any, right: Any) -> int:
    """Characters, items or bits that the operation may make."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        return bits * abs(right) if operator == "**" else bits + right.bit_length()
    if operator == "*" and hasattr(left, "__len__") and isinstance(right, int):
        return len(left) * right
    if operator == "*" and hasattr(right, "__len__") and isinstance(left, int):
        return len(right) * left
    return 0


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


def compile_template(source: str) -> Template:
    """A template in a fresh sandbox; raises jinja2's TemplateSyntaxError."""
    env = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
    )
    env.filters["tojson"] = _tojson
    env.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return env.from_string(source)


def run(template: Template, variables: dict[str, Any]) -> str:
    """The rendered text; raises TemplateError where it gets too long."""
    return "".join(_bounded(template.generate(variables)))


def _bounded(pieces: Iterable[str]) -> Iterable[str]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > MAX_TEXT:
            raise TemplateError(f"the text grows beyond {MAX_TEXT} characters")
        yield piece


def explain(error: Exception) -> str:
    """What went wrong while compiling or running a template, with its line if that is known."""
    if isinstance(error, TemplateSyntaxError):
        return f"line {error.lineno}: {error.message}"
    line, trace = "", error.__traceback__
    while trace is not None:  # the innermost frame of the template; jinja2 gives its real lines
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = f"line {trace.tb_lineno}: "
        trace = trace.tb_next
    text = str(error) or type(error).__name__
    return line + (text if isinstance(error, TemplateError) else f"{type(error).__name__}: {text}")
