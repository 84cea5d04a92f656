"""From a conversation to the ids of a prompt, through the model's own chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .errors import TokenizerError
from .tokenizer import Tokenizer
from .vocab import Source

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATE = "tokenizer.chat_template"
_ABSENT = {"tools": None, "documents": None}  # always defined, as in apply_chat_template


class ChatTemplate:
    """One template. It is compiled at the first use, so that a broken one does not stop a load."""

    def __init__(self, source: str, bos: str = "", eos: str = "", where: str = TEMPLATE) -> None:
        self.source, self.bos, self.eos, self.where = source, bos, eos, where

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        **extra: Any,
    ) -> str:
        """The text of a conversation of {"role": …, "content": …}; `extra` are further variables.

        Raises TokenizerError with the template's line, or with the message that it raises itself.
        """
        from . import sandbox  # jinja2 takes a while to import, and raw prompts need none

        variables = {"bos_token": self.bos, "eos_token": self.eos} | _ABSENT | extra
        variables |= {"messages": messages, "add_generation_prompt": add_generation_prompt}
        try:
            return sandbox.run(self._compiled, variables)
        except Exception as error:  # templates run code: any error of Python's may come out
            raise TokenizerError(f"{self.where}: {sandbox.explain(error)}") from error

    @cached_property
    def _compiled(self) -> Template:
        from . import sandbox

        return sandbox.compile_template(self.source)


def chat_template(source: Source, tokenizer: Tokenizer) -> ChatTemplate | None:
    """The default chat template of a model file, or None if it has none.

    A file with named templates alone ("tokenizer.chat_template.NAME") gives the one called
    "default", or the only one.
    """
    named = {
        key[len(TEMPLATE) + 1 :]: source.metadata[key]
        for key in source.metadata
        if key.startswith(TEMPLATE + ".")
    }
    text = source.metadata.get(TEMPLATE) or named.get("default")
    if text is None and len(named) == 1:
        (text,) = named.values()
    if not isinstance(text, str) or not text.strip():
        return None
    bos, eos = (
        "" if token is None else tokenizer.piece(token) for token in (tokenizer.bos, tokenizer.eos)
    )
    return ChatTemplate(text, bos, eos, f"{source.path}: {TEMPLATE}")


def without_bos(tokenizer: Tokenizer, text: str) -> str:
    """A user's message without BOS in front: within a chat it would be a second one."""
    bos = "" if tokenizer.bos is None else tokenizer.piece(tokenizer.bos)
    while bos and text.startswith(bos):
        text = text[len(bos) :]
    return text


def encode_prompt(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a prompt: control tokens spelt in the text count, at most one BOS in front, no EOS.

    BOS is there if the text, raw or from a template, spells it, or if the file says that the
    tokenizer adds it.
    """
    ids = tokenizer.encode(text, add_special=False, parse_special=True)
    bos = tokenizer.bos
    if bos is None:
        return ids
    start = 0
    while start < len(ids) and ids[start] == bos:
        start += 1
    front = [bos] if start or tokenizer.add_bos else []
    return front + ids[start:]
