"""`bench`: tokens per second, in llama-bench's table or as files with every sample."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import click

from ..engine.errors import UsageError
from .bench_config import load_config, shipped, show_configs
from .bench_options import (
    ARMS,
    FORMATS,
    Words,
    arms,
    chosen_tests,
    models,
    product_options,
    test_options,
)
from .environment import report
from .interrupt import Interrupt
from .options import Command, option

EXAMPLES = """\
Tests are named as in llama-bench: ppN processes a prompt of N tokens, tgN generates N tokens,
ppN+tgN does both, @dN fills the context with N tokens before the clock starts. Lists and ranges:
pp1,2,4  pp1-512*2 (or pp1-512x2)  tg128@d0-16384+4096. Every test is warmed up, then repeated; t/s
is the mean and the sample deviation.

Examples:
  kompute-llm bench
  kompute-llm bench pp512 tg128@d4096 -m model.gguf -r 10 --profile
  kompute-llm bench 'pp1-512*2' --curve
  kompute-llm bench model.gguf -p 64,512 -n 0 --device cpu -o json > result.json
  kompute-llm bench tg64 --record reuse,each
  kompute-llm bench --roof

Subcommands: 'bench compare A.json B.json' shows before, after and difference of result files,
'bench ab' runs two arms in turn and says whether they differ, 'bench tasks' measures a set of real
prompts by category (each has -h).
"""
SUBCOMMANDS = ("compare", "ab", "tasks")
MEASURE, REPORT = "Measurement", "Output"


class BenchCommand(Command):
    """`bench`, or one of its subcommands where the first argument names it."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:  # fmt: skip
        if args and args[0] in SUBCOMMANDS:
            module = importlib.import_module(f".bench_{args[0]}", __package__)
            command: click.Command = getattr(module, args[0])
            return command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=BenchCommand, after_help=lambda: EXAMPLES)
@click.argument("args", nargs=-1, metavar="[MODEL]... [TEST]...")
@test_options()
@product_options()
@option("--config", section=MEASURE, metavar="NAME", is_eager=True, callback=load_config,
        help="Take tests and settings from a TOML file or a shipped one (--list-configs); options "
        "given here come first.")
@option("--list-configs", section=MEASURE, is_flag=True, help="Name the shipped files.")
@option("-r", "--repetitions", section=MEASURE, type=click.IntRange(1, 10000), default=5,
        show_default=True, metavar="N", help="Samples of each test.")
@option("--warmup/--no-warmup", section=MEASURE, default=True, show_default=True,
        help="Run each test once before it is timed.")
@option("--delay", section=MEASURE, type=click.FloatRange(0, 3600), default=0, metavar="SECONDS",
        help="Pause between tests, so that a device can cool down.")
@option("--record", section=MEASURE, type=Words(ARMS), default="reuse", show_default=True,
        metavar="LIST", help="reuse: recorded sequences are replayed; each: recorded anew for "
        "every token; reuse,each: compared, with the CPU's time per token.")
@option("--profile", section=MEASURE, is_flag=True,
        help="One more run of each test, with the time of each phase.")
@option("--roof", section=MEASURE, is_flag=True,
        help="Measure what the device can do at best instead, and keep it for --profile.")
@option("--export", section=MEASURE, metavar="FILE.gguf",
        help="Write the synthetic model of -m to a file instead.")
@option("-o", "--output", section=REPORT, type=click.Choice(FORMATS), default="md",
        show_default=True, help="Format of the results on stdout.")
@option("-oe", "--output-err", section=REPORT, type=click.Choice(FORMATS),
        help="Results once more, on stderr.")
@option("--save", section=REPORT, metavar="FILE",
        help="Results once more, in a file; its name ends in the format: .json, .sql, …")
@option("--report", section=REPORT, metavar="FILE.html",
        help="A page with tables, curves, phases against floors, all repetitions.")
@option("--plot", section=REPORT, metavar="FILE",
        help="A picture of the curve, .svg, or .png where matplotlib is installed.")
@option("--curve", section=REPORT, is_flag=True,
        help="Draw t/s over the length of the prompt, or the depth.")
@option("--env", section=REPORT, is_flag=True,
        help="Print versions, processor, devices and drivers instead: for bug reports.")
@option("-v", "--verbose", section=REPORT, is_flag=True,
        help="Describe model and device; tracebacks of errors.")
def bench(args: tuple[str, ...], **options: Any) -> int:
    """Measure prompt processing (pp) and token generation (tg).

    The result goes to stdout, everything else to stderr. Ctrl-C prints what is finished.
    """
    from ..engine.bench_tests import looks_like_test

    if options["list_configs"]:
        click.echo(show_configs(list(shipped())))
        return 0
    if options["env"]:
        click.echo(json.dumps(report(), indent=2))
        return 0
    if options["roof"]:
        from .bench_roof import roof

        if args or options["model"]:
            raise UsageError("--roof measures the device alone: leave tests and models out")
        return roof(options)
    named = [a for a in args if looks_like_test(a)]
    tests = chosen_tests(named or configured_tests(options), options)
    paths = models([a for a in args if not looks_like_test(a)], options)
    synthetic = (click.get_current_context().default_map or {}).get("synthetic", {})
    if options["export"]:
        from .bench_synthetic import export

        return export(paths, Path(options["export"]).expanduser(), synthetic)
    # the cache holds what the longest test needs, as in llama-bench
    n_ctx = -(-max(test.positions for test in tests) // 256) * 256
    with Interrupt() as interrupt:
        from .bench_run import Bench

        return Bench(arms(paths, options, n_ctx), tests, interrupt, options, synthetic).run()


def configured_tests(options: dict[str, Any]) -> list[str]:
    """The tests of --config, unless options name others."""
    found = click.get_current_context().default_map or {}
    named = any(options[name] for name in ("n_prompt", "n_gen", "prompt_gen"))
    return [] if named else list(found.get("tests", ()))
