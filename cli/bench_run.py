"""Runs the tests of `bench` on every combination of settings and hands the results out."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.effect import oddities
from ..engine.errors import UsageError
from .bench_check import check_arms, check_equal, drawable
from .bench_options import FORMATS, Arm, distinction
from .bench_output import Output, make_output
from .bench_synthetic import open_any
from .environment import environment
from .interrupt import EXIT_CODE, Interrupt
from .loading import Model, describe, load
from .output import StatusLine, note, warn
from .profile_table import Phases, phase_table
from .results import Result, Setup, record
from .saved import SavedFile

if TYPE_CHECKING:
    from ..engine.bench_tests import Test
    from ..engine.measure import Sample

PREFIX = "synthetic:"
SHARED = ("the weights of a synthetic model are the same memory again and again, so that the CPU "
          "finds them in its caches; --export FILE.gguf, and measure the file")  # fmt: skip
SUFFIXES = {f".{name}": name for name in FORMATS}


class Bench:
    """Tests times settings; everything that is finished is written, whatever comes after."""

    def __init__(
        self, arms: Sequence[Arm], tests: Sequence[Test], interrupt: Interrupt,
        options: dict[str, Any], synthetic: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.arms, self.tests, self.interrupt = arms, tests, interrupt
        self.repetitions: int = options["repetitions"]
        self.records: Sequence[str] = options["record"]
        self.options, self.synthetic = options, synthetic
        drawable(options)
        self.done: list[Result] = []
        self.status = StatusLine()
        self.outputs = [make_output(options["output"], write, arms, self.records)]
        self.files: list[SavedFile] = []
        if options["output_err"]:
            self.outputs.append(make_output(options["output_err"], note, arms, self.records))
        if options["save"]:
            self.outputs.append(self.saved(Path(options["save"]).expanduser()))

    def saved(self, path: Path) -> Output:
        """A file in the format that its name asks for. UsageError when it cannot be written."""
        if path.suffix not in SUFFIXES:
            raise UsageError(f"--save {path}: the name must end in {', '.join(SUFFIXES)}")
        self.files.append(SavedFile(path))
        return make_output(SUFFIXES[path.suffix], self.files[-1].write, self.arms, self.records)

    # --- running -------------------------------------------------------------------------------

    def run(self) -> int:
        """All tests in order. A test that Ctrl-C or an error cuts short has no row."""
        from ..engine.measure import Stop

        try:
            check_arms(self.arms, self.synthetic)
            for path, arms in groupby(self.arms, key=lambda a: a.path):
                with open_any(path, self.synthetic) as model:
                    self.warn_context(model)
                    for arm in arms:
                        config = replace(arm.config, batch=min(arm.config.batch, arm.ubatch))
                        with load(model, config, self.interrupt) as opened:
                            if self.options["verbose"]:
                                note("\n".join(describe(model, opened)))
                            if opened.backend == "CPU" and str(path).startswith(PREFIX):
                                warn(SHARED)
                            self.interrupt.raising = False
                            self.run_tests(Setup(model, opened, arm, self.options["warmup"]))
                            self.interrupt.raising = True
                        self.interrupt.check()
        except (Stop, KeyboardInterrupt):
            self.status.show("")
            note("interrupted")
            return EXIT_CODE
        finally:
            self.status.show("")
            self.finish()
        return 0

    def warn_context(self, model: Model) -> None:
        """Say which tests go beyond what the model was trained for: they are only timed."""
        trained = model.spec.n_ctx_train
        if beyond := [test.name for test in self.tests if test.positions > trained]:
            warn(f"beyond the {trained} positions of training: {', '.join(beyond)}")

    def run_tests(self, setup: Setup) -> None:
        """Every test on one executor."""
        setup.clocks()  # the first answer of a driver may take longer than later ones
        for test in self.tests:
            if self.done and self.options["delay"]:
                self.wait(self.options["delay"])
            for result in self.measure(setup, test):
                self.done.append(result)
                self.show(result)

    def wait(self, seconds: float) -> None:
        """Pause between tests, so that a device can cool down."""
        from ..engine.measure import Stop

        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.interrupt.pressed:
                raise Stop
            self.status.show(f"waiting {left:.0f} s")
            time.sleep(min(left, 0.1))

    def measure(self, setup: Setup, test: Test) -> list[Result]:
        """Warm up, then take the samples of all forms of recording in turn.

        The profile comes apart, for time stamps cost time.
        """
        samples: dict[str, list[Sample]] = {r: [] for r in self.records}
        if setup.warmup:
            for record in self.records:
                self.time(setup, test, record, "warm-up", warm=True)
        n = self.repetitions
        for i in range(n):
            order = self.records if i % 2 == 0 else self.records[::-1]  # so that drift cancels
            for record in order:
                samples[record].append(self.time(setup, test, record, f"{i + 1}/{n}"))
        clocks = setup.clocks()  # before they fall
        check_equal(test, samples)
        return [
            Result(setup, test, samples[r], self.profiled(setup, test, r), r, clocks)
            for r in self.records
        ]  # fmt: skip

    def profiled(self, setup: Setup, test: Test, record: str) -> Phases | None:
        """Phases of one more run, if they are asked for; none after Ctrl-C, which leaves the
        samples as they are and ends the next test."""
        from ..engine.measure import Stop

        if not self.options["profile"]:
            return None
        runner = setup.opened.runner
        runner.profile(True)  # what this records first is not the test's time
        try:
            self.time(setup, test, record, "profile, warm-up", warm=True)
            sample = self.time(setup, test, record, "profile", profile=True)
        except Stop:
            return None
        phases = Phases.of(runner, sample.seconds)
        runner.profile(False)
        return phases

    def time(self, setup: Setup, test: Test, record: str, step: str, **how: bool) -> Sample:
        """One repetition."""
        from ..engine.measure import run_once

        form = f" ({record})" if len(self.records) > 1 else ""
        self.status.show(f"{test.name}{form}: {step}")
        runner = setup.opened.runner
        if self.records != ("reuse",):
            runner.replay(record == "reuse")
        return run_once(runner, test, lambda: self.interrupt.pressed, **how)

    # --- results -------------------------------------------------------------------------------

    def show(self, result: Result) -> None:
        """The row, at once."""
        self.status.show("")
        for output in self.outputs:
            output.add(result)

    def draw(self) -> None:
        """--report and --plot, of what is finished."""
        options = self.options
        if not self.done or not (options["report"] or options["plot"]):
            return
        from .bench_report import page, plot, write_text

        rows = [record(r) | {"environment": environment()} for r in self.done]
        if options["report"]:
            write_text(Path(options["report"]).expanduser(), page(rows), "--report")
        if options["plot"]:
            plot(Path(options["plot"]).expanduser(), rows)

    def finish(self) -> None:
        """Complete the outputs; then what the table has no column for."""
        for output in self.outputs:
            output.end()
        for file in self.files:
            file.close()
        names = {id(r): distinction(r.setup.arm, self.arms) for r in self.done}
        for result in self.done:
            comment(result, names[id(result)])
        self.draw()
        if self.options["output"] != "md":
            return
        for result in self.done:
            if result.phases:
                n, which = result.test.tokens, names[id(result)]
                write(f"\n{result.name}{f' ({which})' if which else ''}: time of each phase, "
                      f"{n} token{'s' if n > 1 else ''}")  # fmt: skip
                phase_table(result.phases, sys.stdout)
        if self.done and len(self.records) > 1:
            from .bench_record import record_tables

            write("\n" + record_tables(self.done, self.arms))
        if self.done and self.options["curve"]:
            from .bench_curve import curve

            write("\n" + curve(self.done, self.arms))


def comment(result: Result, settings: str) -> None:
    """Median and range on stderr, and a warning where the mean says little.

    `settings` tells the executors of one test apart, "" where there is one.
    """
    s, name = result.summary, f"{result.name} ({settings})" if settings else result.name
    note(f"{name}: median {s.median:.2f}, min {s.min:.2f}, max {s.max:.2f} t/s")
    for text in oddities(result.rates):
        note(f"{name}: {text}")
    if s.unsteady:
        warn(f"{name}: the deviation is {100 * s.sd / s.mean:.0f} % of the mean; something "
             "else may use the machine, or it warms up still: raise -r")


def write(text: str) -> None:
    """Results go to stdout, flushed."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
