"""`inspect`: what a model file holds, what would run it, and how much memory that needs."""

from __future__ import annotations

import fnmatch
import json
import math
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..engine.errors import UsageError
from .inspect_table import show
from .options import Command, cache_options, choose_model, model_option, option
from .output import visible
from .tables import size, table

if TYPE_CHECKING:
    from ..engine.container import Container

EXAMPLES = """\
Examples:
  kompute-llm inspect model.gguf
  kompute-llm inspect model.gguf -c 32768 -ctk f32 -ctv f32
  kompute-llm inspect model.gguf --tensors | grep ffn_down
  kompute-llm inspect model.gguf --metadata tokenizer.chat_template
  kompute-llm inspect model.gguf --metadata 'llama.*' -o json
"""
LISTED = 20  # elements of an array that --metadata lists


@click.command(cls=Command, after_help=lambda: EXAMPLES)
@click.argument("args", nargs=-1, metavar="[MODEL]")
@model_option()
@option("-c", "--ctx", section="Memory", type=click.IntRange(0, (1 << 31) - 1), metavar="N",
        help="Positions of the context; 0: as trained. [4096, at most as trained]")
@cache_options("Memory")
@option("--tensors", section="Output", is_flag=True,
        help="List the tensors: name, shape (rows first), format, bytes.")
@option("--metadata", section="Output", metavar="KEY",
        help="Print the value of a key, or the keys that fit a pattern ('*': all).")
@option("-o", "--output", section="Output", type=click.Choice(["table", "json"]), default="table",
        show_default=True, help="Tables, or everything as JSON.")
@option("-v", "--verbose", section="Output", is_flag=True, help="Tracebacks of errors.")
def inspect(args: tuple[str, ...], **options: Any) -> int:
    """Show what a model file holds, what would run it and how much memory that needs.

    No device is touched and no weight is read, so this works for files that cannot be run as well:
    what stands in the way is said.
    """
    from ..engine.container import open_model

    if options["tensors"] and options["metadata"] is not None:
        raise UsageError("--tensors and --metadata exclude each other")
    as_json = options["output"] == "json"
    with open_model(choose_model(options["model"], args)) as container:
        if options["metadata"] is not None:
            print_metadata(container, options["metadata"], as_json)
        elif options["tensors"]:
            print_tensors(container, as_json)
        else:
            from ..engine.summary import summary

            ctx, types = options["ctx"], (options["cache_type_k"], options["cache_type_v"])
            facts = summary(container, ctx, *types)
            print_json(facts) if as_json else show(facts)
    return 0


def print_tensors(container: Container, as_json: bool) -> None:
    """Every tensor in the order of the file."""
    tensors = list(container.tensors.values())
    if as_json:
        names = [p.name for p in container.paths]
        rows = [
            {"name": t.name, "shape": list(t.shape), "format": t.format_name, "bytes": t.nbytes,
             "file": names[t.shard], "offset": t.offset}
            for t in tensors
        ]  # fmt: skip
        print_json(rows)
        return
    cells = [
        (visible(t.name), " x ".join(map(str, t.shape)), t.format_name, size(t.nbytes))
        for t in tensors
    ]
    table(("tensor", "shape", "format", "size"), cells, right="lrlr")


def print_metadata(container: Container, pattern: str, as_json: bool) -> None:
    """One value as it is, or the keys that a pattern names with short values."""
    meta = container.metadata
    if pattern in meta:
        value = meta[pattern]
        if as_json:
            print_json(value)
        else:
            click.echo(_long(value))
        return
    keys = fnmatch.filter(meta, pattern)
    if not keys:
        raise UsageError(f"no key of {container.path} fits {pattern!r}; --metadata '*' lists them")
    if as_json:
        print_json({key: meta[key] for key in keys})
        return
    from ..engine.contents import short

    rows = [(visible(key), visible(" ".join(str(short(meta[key])).split()))) for key in keys]
    table(("key", "value"), rows)


def _long(value: Any) -> str:
    """A value in full, of an array the first elements."""
    if not isinstance(value, list | np.ndarray):
        return visible(str(value))
    shown = [visible(repr(v) if isinstance(v, str) else str(v)) for v in value[:LISTED]]
    more = len(value) - LISTED
    return "\n".join(shown + ([f"... and {more} more (-o json shows all)"] if more > 0 else []))


def print_json(value: Any) -> None:
    """JSON; numbers that JSON lacks are texts, bytes that are not UTF-8 escaped surrogates."""
    click.echo(json.dumps(_plain(value), indent=2))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
