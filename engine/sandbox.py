"""The jinja2 environment of chat templates: that of Hugging Face's `apply_chat_template`, boxed in.

Templates come with a model file and are not trusted. The sandbox keeps them from Python's internals
and from changing what they are given; `range` stops at 100,000 numbers, and operations with a huge
result are refused, as is a huge text. Compiling and rendering are bounded in time and memory
(bounds.py).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .bounds import OutOfTimeError, bounded

MAX_TEXT = 1 << 24  # characters of one rendered prompt, items of one list
MAX_BITS = 1 << 16  # of one number: quotients and digits of larger ones take long
MAX_SOURCE = 1 << 20  # characters of a template; long ones have some 10^4
MAX_SECONDS, MAX_BYTES = 5.0, 1 << 28  # to compile or to render one


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is rendered."""

    tags = {"generation"}  # noqa: RUF012 - the interface of jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Refuses operations whose results would fill the memory."""

    intercepted_binops = frozenset(("*", "**", "+"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if _too_large(operator, left, right):
            raise TemplateError(f"a result of '{operator}' is too large")
        return super().call_binop(context, operator, left, right)


def _too_large(operator: str, left: Any, right: Any) -> bool:
    """Whether the operation may make too many characters, items or bits."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        made = bits * abs(right) if operator == "**" else bits + right.bit_length()
        return made > MAX_BITS
    if hasattr(right, "__len__") and isinstance(left, int):
        left, right = right, left
    if not hasattr(left, "__len__"):
        return False
    if operator == "*" and isinstance(right, int):
        return len(left) * right > MAX_TEXT
    return operator == "+" and hasattr(right, "__len__") and len(left) + len(right) > MAX_TEXT


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
    """A template in a fresh sandbox; raises jinja2's TemplateError."""
    if len(source) > MAX_SOURCE:
        raise TemplateError(f"{len(source)} characters; at most {MAX_SOURCE} are read")
    env = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
        optimized=False,  # nothing of a template runs before it is asked for
    )
    env.filters["tojson"] = _tojson
    env.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    with _limits("compiling"):
        return env.from_string(source)


def run(template: Template, variables: dict[str, Any]) -> str:
    """The rendered text; raises TemplateError where it takes too much."""
    with _limits("rendering"):
        return "".join(_bounded(template.generate(variables)))


@contextlib.contextmanager
def _limits(what: str) -> Iterator[None]:
    try:
        with bounded(MAX_SECONDS, MAX_BYTES):
            yield
    except OutOfTimeError:
        problem = f"{what} it takes more than {MAX_SECONDS:g} s"
    except MemoryError:
        problem = f"{what} it takes more than {MAX_BYTES >> 20} MB"
    except RecursionError:
        problem = f"{what} it needs too many calls inside calls"
    else:
        return
    raise TemplateError(problem)


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
