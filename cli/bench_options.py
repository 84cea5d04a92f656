"""Options of `bench`: lists whose product is measured, tests, outputs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..engine.errors import UsageError
from .options import CACHE_TYPES, Decorator, choose_model, combine, option

if TYPE_CHECKING:
    from ..engine.bench_tests import Test
    from ..engine.runner import RunnerConfig

DEFAULT_TESTS = ("pp512", "tg128")
MATH = ("auto", "f32", "f16", "int8")
FORMATS = ("md", "csv", "json", "jsonl", "sql")
ARMS = ("reuse", "each")
MOST_BATCH = 512  # tokens that one submit can take


if TYPE_CHECKING:
    ListType = click.ParamType[Any]
else:
    ListType = click.ParamType  # not generic before click 8.4


class Words(ListType):
    """A comma list of words, of `allowed` ones if given; the option may be repeated."""

    name = "list"

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        self.allowed = allowed

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        words = tuple(w.strip() for w in str(value).split(","))
        for word in words:
            if self.allowed and word not in self.allowed:
                self.fail(f"{word!r} is not one of {', '.join(self.allowed)}", param, ctx)
            if not word:
                self.fail("an empty item in the list", param, ctx)
        return words


class Numbers(ListType):
    """A comma list of numbers and ranges between `least` and `most`."""

    name = "list"

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        from ..engine.bench_tests import parse_numbers

        try:
            numbers = parse_numbers(str(value), "the list")
        except UsageError as e:
            self.fail(str(e), param, ctx)
        for number in numbers:
            if not self.least <= number <= self.most:
                self.fail(f"{number} is not from {self.least} to {self.most}", param, ctx)
        return tuple(numbers)


def listed(*names: str, section: str, kind: ListType, text: str, **how: Any) -> Decorator:
    """An option that takes a list and may be repeated."""
    return option(*names, section=section, type=kind, multiple=True, help=text,
                  metavar=how.pop("metavar", "LIST"), **how)  # fmt: skip


def test_options() -> Decorator:
    """What is timed, as llama-bench's options say it."""
    tokens = Numbers(0, 1 << 24)
    return combine(
        listed("-p", "--n-prompt", section="Tests", kind=tokens,
               text="Prompt lengths; 0: none. [512 without tests]"),
        listed("-n", "--n-gen", section="Tests", kind=tokens,
               text="Tokens to generate; 0: none. [128 without tests]"),
        option("-pg", "--prompt-gen", section="Tests", multiple=True, metavar="PP,TG",
               help="A prompt and generation timed together, as ppN+tgN."),
        listed("-d", "--n-depth", section="Tests", kind=tokens,
               text="Tokens in the cache before the clock starts, for tests without @dN. [0]"),
    )  # fmt: skip


def product_options() -> Decorator:
    """Settings; of several values every combination is measured."""
    section = "Settings (lists: every combination is measured)"
    return combine(
        option("-m", "--model", section=section, multiple=True, metavar="PATH",
               help="GGUF file, a shard, a folder with one model, or synthetic:NAME (random "
               "weights); repeat it for more. [the demo model]"),
        listed("--device", section=section, kind=Words(), text="As for run: 'cpu', an index, "
               "part of a name, 'vulkan'. [a GPU if there is one, else the CPU]"),
        listed("--math", section=section, kind=Words(MATH),
               text="Factors of products: auto, f32, int8, f16. [auto]"),
        listed("-ctk", "--cache-type-k", section=section, kind=Words(CACHE_TYPES),
               text="Types of the keys in the KV cache. [f16]"),
        listed("-ctv", "--cache-type-v", section=section, kind=Words(CACHE_TYPES),
               text="Types of the values in the KV cache. [f16]"),
        listed("-b", "--batch", section=section, kind=Numbers(1, 1 << 20),
               text="Most prompt tokens per submit; more than -ub have no effect. [512]"),
        listed("-ub", "--ubatch", section=section, kind=Numbers(1, MOST_BATCH),
               text="The same under llama-bench's other name; the smaller one counts. [512]"),
        listed("-t", "--threads", section=section, kind=Numbers(1, 512),
               text="Threads of the CPU executor. [one per physical core]"),
    )  # fmt: skip


@dataclass(frozen=True)
class Arm:
    """One combination: a model and the settings of its executor."""

    path: Path
    config: RunnerConfig
    ubatch: int


def distinction(arm: Arm, arms: Sequence[Arm]) -> str:
    """The settings that tell one of `arms` from the others, "" where nothing varies."""
    def facts(a: Arm) -> tuple[tuple[str, object], ...]:
        c = a.config
        return (("", a.path.name), ("", c.device or "auto"), ("math", c.math),
                ("k", c.cache_k), ("v", c.cache_v), ("batch", c.batch), ("ubatch", a.ubatch),
                ("threads", c.threads or "auto"))  # fmt: skip

    every = [facts(a) for a in arms]
    varies = [len({f[i] for f in every}) > 1 for i in range(len(every[0]))]
    return ", ".join(
        f"{name} {value}".strip() for (name, value), v in zip(facts(arm), varies, strict=True) if v
    )


def flat(options: dict[str, Any], name: str, default: Any) -> list[Any]:
    """The values of a list option, those of repeated ones together."""
    return list(itertools.chain.from_iterable(options[name])) or [default]


def chosen_tests(args: Iterable[str], options: dict[str, Any]) -> list[Test]:
    """Tests of the arguments and of -p, -n, -pg; those of llama-bench without any."""
    from ..engine.bench_tests import parse_tests

    names = list(args)
    pairs = [pair.split(",") for pair in options["prompt_gen"]]
    for pair in pairs:
        if len(pair) != 2 or not all(n.isdecimal() for n in pair):
            raise UsageError(f"-pg {','.join(pair)}: expected PP,TG, such as 512,128")
    for option_name, prefix, default in (("n_prompt", "pp", 512), ("n_gen", "tg", 128)):
        if options[option_name] or not names:
            given = options[option_name] or options["n_prompt"] or options["n_gen"]
            fallback = 0 if pairs and not given else default
            names += [f"{prefix}{n}" for n in flat(options, option_name, fallback) if n]
    names += [f"pp{p}+tg{g}" for p, g in pairs]
    if not names:
        raise UsageError("no test: -p 0 and -n 0 leave nothing to measure")
    return parse_tests(names, flat(options, "n_depth", 0))


def models(args: Iterable[str], options: dict[str, Any]) -> list[Path]:
    """The models of -m and of arguments that are no tests, or the demo model. UsageError for a word
    that is neither a test nor a file, nor looks like the path of one."""
    paths = list(args)
    for path in paths:
        spelt = path.startswith("synthetic:") or path.endswith(".gguf") or os.sep in path
        if not spelt and not os.path.exists(os.path.expanduser(path)):
            raise UsageError(f"{path!r} is neither a test (pp512, tg128) nor a model file")
    return [choose_model(p) for p in [*options["model"], *paths]] or [choose_model(None)]


def arms(paths: Sequence[Path], options: dict[str, Any], n_ctx: int) -> list[Arm]:
    """Every combination, models outermost."""
    from ..engine.runner import RunnerConfig

    out = []
    for path, device, math, k, v, batch, ubatch, threads in itertools.product(
        paths, flat(options, "device", None), flat(options, "math", "auto"),
        flat(options, "cache_type_k", "f16"), flat(options, "cache_type_v", "f16"),
        flat(options, "batch", MOST_BATCH), flat(options, "ubatch", MOST_BATCH),
        flat(options, "threads", None),
    ):  # fmt: skip
        config = RunnerConfig(n_ctx, device, k, v, math, batch, threads)
        out.append(Arm(path, config, min(batch, ubatch)))
    return out
