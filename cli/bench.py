"""`bench`: tokens per second, in llama-bench's table or as JSON with every sample."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ..engine.errors import UsageError
from .interrupt import EXIT_CODE, Interrupt
from .loading import describe, load, open_file
from .options import Command, choose_model, device_options, model_option, option, runner_config
from .output import StatusLine, note, warn
from .results import MarkdownTable, Result, Setup, as_json
from .tables import phase_table

if TYPE_CHECKING:
    from ..engine.measure import Test

DEFAULT_TESTS = ("pp512", "tg128")
EXAMPLES = """\
Tests are named as in llama-bench: ppN processes a prompt of N tokens, tgN generates N tokens.
Every test is warmed up, then repeated; t/s is the mean and the sample deviation.

Examples:
  kompute-llm bench
  kompute-llm bench pp512 tg128 -m model.gguf -r 10
  kompute-llm bench model.gguf pp64,pp512,pp2048 --device cpu -o json > result.json
"""


@click.command(cls=Command, after_help=lambda: EXAMPLES)
@click.argument("args", nargs=-1, metavar="[MODEL] [TEST]...")
@model_option()
@option("-r", "--repetitions", section="Measurement", type=click.IntRange(1, 10000), default=5,
        show_default=True, metavar="N", help="Samples of each test.")
@option("--warmup/--no-warmup", section="Measurement", default=True, show_default=True,
        help="Run each test once before it is timed.")
@option("-o", "--output", section="Measurement", type=click.Choice(["md", "json"]), default="md",
        show_default=True, help="Markdown table, or JSON with all samples.")
@option("--profile", section="Measurement", is_flag=True,
        help="One more run of each test, with the time of each phase.")
@device_options()
@option("-v", "--verbose", section="Measurement", is_flag=True,
        help="Describe model and device; tracebacks of errors.")
def bench(args: tuple[str, ...], **options: Any) -> int:
    """Measure prompt processing (pp) and token generation (tg).

    The result goes to stdout, everything else to stderr. Ctrl-C prints what is finished.
    """
    from ..engine.measure import looks_like_test, parse_tests

    tests = parse_tests([a for a in args if looks_like_test(a)] or DEFAULT_TESTS)
    path = choose_model(options["model"], check_paths(a for a in args if not looks_like_test(a)))
    with Interrupt() as interrupt, open_file(path) as model:
        # the cache holds what the longest test needs, as in llama-bench
        longest = max(test.positions for test in tests)
        config = replace(runner_config(options), n_ctx=-(-longest // 256) * 256)
        with load(model, config, interrupt) as opened:
            if options["verbose"]:
                note("\n".join(describe(model, opened)))
            setup = Setup(model, opened, config, options["warmup"])
            return Bench(setup, interrupt, options).run(tests)


def check_paths(args: Iterable[str]) -> list[str]:
    """Arguments that are not tests must be a model."""
    paths = list(args)
    for path in paths:
        if not os.path.exists(os.path.expanduser(path)):
            raise UsageError(f"{path!r} is neither a test (pp512, tg128) nor a model file")
    return paths


class Bench:
    """Runs tests on an open model and writes their results."""

    def __init__(self, setup: Setup, interrupt: Interrupt, options: dict[str, Any]) -> None:
        self.setup, self.interrupt = setup, interrupt
        self.runner = setup.opened.runner
        self.repetitions: int = options["repetitions"]
        self.profile: bool = options["profile"]
        self.json: bool = options["output"] == "json"
        self.table = MarkdownTable(setup)
        self.status = StatusLine()

    def run(self, tests: list[Test]) -> int:
        """All tests in order. A test that Ctrl-C or an error cuts short has no row."""
        from ..engine.measure import Stop

        self.interrupt.raising = False
        done: list[Result] = []
        try:
            for test in tests:
                done.append(self.measure(test))
                self.show(done[-1])
        except Stop:
            self.status.show("")
            note("interrupted")
            return EXIT_CODE
        finally:
            self.status.show("")
            if self.json and done:
                write(json.dumps([as_json(self.setup, r) for r in done], indent=2))
            for result in done:
                self.comment(result)
        return 0

    def measure(self, test: Test) -> Result:
        """Warm up, then take the samples; profile apart, for time stamps cost time."""
        if self.setup.warmup:
            self.time(test, "warm-up", warm=True)
        n = self.repetitions
        seconds = [self.time(test, f"{i + 1}/{n}") for i in range(n)]
        if not self.profile:
            return Result(test, seconds)
        self.runner.profile(True)  # what this records first is not the test's time
        self.time(test, "profile, warm-up", warm=True)
        profiled = self.time(test, "profile", profile=True)
        phases = self.runner.phases()
        self.runner.profile(False)
        return Result(test, seconds, phases, profiled)

    def time(self, test: Test, step: str, **how: bool) -> float:
        """Seconds of one repetition."""
        from ..engine.measure import run_once

        self.status.show(f"{test.name}: {step}")
        return run_once(self.runner, test, lambda: self.interrupt.pressed, **how)

    def show(self, result: Result) -> None:
        """The row, at once."""
        self.status.show("")
        if not self.json:
            write("\n".join(self.table.lines(result)))

    def comment(self, result: Result) -> None:
        """What the table has no column for, after it; all but phases goes to stderr."""
        s, name = result.summary, result.test.name
        note(f"{name}: median {s.median:.2f}, min {s.min:.2f}, max {s.max:.2f} t/s")
        if s.unsteady:
            warn(f"{name}: the deviation is {100 * s.sd / s.mean:.0f} % of the mean; something "
                 "else may use the machine, or it warms up still: raise -r")
        if result.phases and not self.json:
            write(f"\n{name}: time of each phase")
            phase_table(result.phases, result.profiled_seconds, sys.stdout)


def write(text: str) -> None:
    """Results go to stdout, flushed."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
