"""`validate`: shaders against CPU references, a model against the CPU executor, reports of both."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Any

import click

from ..engine.errors import UsageError
from . import validate_text
from .interrupt import EXIT_CODE, Interrupt
from .model_check import ModelCheck
from .options import (
    Command,
    Decorator,
    choose_model,
    combine,
    device_options,
    model_option,
    option,
    runner_config,
)
from .output import note
from .validate_choice import Chosen, choose, show
from .validate_report import INTERRUPTED, Report, targets, write
from .validate_run import ALL, NONE, SAMPLE, Run

if TYPE_CHECKING:
    from ..engine.device import Device

EXAMPLES = """\
Kernels run their own cases; primitives (a product, an expert group, attention ...) run in
shapes that models have, in every weight format: all of them on a GPU, some drawn by the seed on a
software device, which compiles slowly (--shapes all for the rest). Outputs are poisoned first, so
that NaN and elements never written fail. Errors are NMSE (normalised mean squared error) and the
largest one relative to the largest value. Exit code 1 when anything fails.

Examples:
  kompute-llm validate                            kernels and primitives
  kompute-llm validate --only 'matvec*,experts' --seed 3
  kompute-llm validate --only 'product/*Q4_K*'    cases of a primitive
  kompute-llm validate --bench --only experts     check, then time
  kompute-llm validate -o report.md               for a bug report
  kompute-llm validate model.gguf                 one model: logits against the CPU
  kompute-llm validate --compare-chains -m model.gguf
"""
CHECKS, REPORT = "Checks", "Report"


def check_options() -> Decorator:
    """What to check and how much of it."""
    return combine(
        option("--only", section=CHECKS, metavar="NAMES", multiple=True,
               help="Kernels, primitives and PRIMITIVE/CASEs of this name, else those that contain "
               "it or match a * pattern; commas separate several."),
        option("--list", "list_", section=CHECKS, is_flag=True,
               help="List kernels and primitives (with -v their cases) and stop."),
        option("--shapes", section=CHECKS, type=click.Choice([ALL, SAMPLE, NONE]),
               help="all: every case; sample: of each kernel the cases of a few pipelines, of "
               "each primitive three checks; none: kernels only. [all on a GPU or with --only, "
               "else sample]"),
        option("--quick", section=CHECKS, is_flag=True, help="The same as --shapes none."),
        option("--bench", section=CHECKS, is_flag=True,
               help="Time primitives after their check, per call and on the device alone."),
        option("--compare-chains", section=CHECKS, is_flag=True,
               help="Fused and unfused forms of a model, layer by layer."),
        option("--reference", section=CHECKS, metavar="FILE.npz",
               help="Compare a model's logits with stored ones (docs/validate.md)."),
        option("--save-reference", section=CHECKS, metavar="FILE.npz",
               help="Store a model's logits of random prompts."),
        option("--perplexity", section=CHECKS, metavar="FILE",
               help="Mean negative log-likelihood of a text (- for standard input)."),
        option("-s", "--seed", section=CHECKS, type=click.IntRange(0), metavar="X",
               help="Of the random inputs. [a fresh one, printed]"),
    )  # fmt: skip


def report_options() -> Decorator:
    """Files to write."""
    return combine(
        option("-o", "--output", section=REPORT, metavar="FILE",
               help="Write a report, in Markdown (.md) or JSON (.json) by its name."),
        option("--markdown", section=REPORT, metavar="FILE", help="Write one in Markdown."),
        option("--json", section=REPORT, metavar="FILE", help="Write one in JSON, all cases."),
    )


@click.command(cls=Command, after_help=lambda: EXAMPLES)
@click.argument("args", nargs=-1, metavar="[MODEL]")
@model_option()
@check_options()
@report_options()
@device_options()
@option("-v", "--verbose", section="Checks", is_flag=True,
        help="Every case, not only those that fail; device and model; tracebacks of errors.")
def validate(args: tuple[str, ...], **options: Any) -> int:
    """Check the shaders, or a model, on the chosen device against the CPU.

    MODEL checks that model only; -m checks it after all kernels.
    """
    with Interrupt() as interrupt:
        return Validation(args, options, interrupt).run()


class Validation:
    """One call: its options, then what they ask for in order."""

    def __init__(self, args: tuple[str, ...], options: dict[str, Any], stop: Interrupt) -> None:
        self.options, self.stop = options, stop
        self.text = any(options[name] is not None for name in validate_text.OPTIONS)
        if self.text and options["compare_chains"]:
            raise UsageError("--compare-chains needs a run without other checks of the model")
        given = args or options["model"] or options["compare_chains"] or self.text
        self.path = choose_model(options["model"], args) if given else None
        if options["quick"] and options["shapes"] not in (None, NONE):
            raise UsageError(f"--quick and --shapes {options['shapes']} contradict each other")
        if options["bench"] and (options["quick"] or options["shapes"] == NONE):
            raise UsageError("--bench times primitives: it needs their shapes")
        self.files = targets(options)
        self.seed = secrets.randbits(32) if options["seed"] is None else options["seed"]
        # a model alone, or the forms of one, need no kernels
        self.alone = bool(args or options["compare_chains"] or self.text) and not (
            options["only"] or options["list_"] or options["bench"]
        )
        self.chosen = Chosen([], []) if self.alone else choose(options["only"])
        self.report = Report(self.seed, tuple(sys.argv[2:]))

    def run(self) -> int:
        """Everything; the exit code."""
        options, check = self.options, None
        if options["list_"]:
            show(self.chosen, options["verbose"])
            return 0
        texts = self.texts()
        if self.path and not texts:
            config = runner_config(options)
            check = ModelCheck(self.path, config, self.seed, options["verbose"])
            check.check_file()  # faults of the file before minutes of kernels
        if options["seed"] is None and not (texts and self.alone and not options["save_reference"]):
            note(f"seed: {self.seed}")
        if not self.alone:
            self.kernels()
        if texts and not self.stop.pressed:
            texts.run(self.report, self.stop)
        if check and not self.stop.pressed:
            if options["compare_chains"]:
                from .validate_layers import compare_chains

                compare_chains(check, self.report, self.stop)
            else:
                check.run(self.stop, self.report)
        if self.stop.pressed:
            self.report.notes.append(INTERRUPTED)
        write(self.report, self.files)
        if self.stop.pressed:
            note(INTERRUPTED)
            return EXIT_CODE
        return 1 if self.report.failed else 0

    def texts(self) -> validate_text.TextCheck | None:
        """The checks of a model's logits that need no second executor."""
        if not (self.text and self.path):
            return None
        return validate_text.TextCheck(self.path, runner_config(self.options), self.options)

    def kernels(self) -> None:
        """Kernels, primitives and times, on one device. Ctrl-C keeps what is done."""
        from ..engine.choice import ANY_VULKAN
        from ..engine.device import open_device

        which, bench = self.options["device"], self.options["bench"]
        if (which or "").strip().casefold() == "cpu":
            raise UsageError("validate compares a Vulkan device with the CPU: --device cpu leaves "
                             "nothing to compare")
        with open_device(None if which == ANY_VULKAN else which) as device:
            note(f"device: {device.describe}")
            self.report.device = device.info
            self.stop.raising = False
            run = Run(device, self.seed, self.stop)
            self.stop.on_forced = lambda: self.forced(run)
            try:
                if bench:
                    from .validate_bench import bench as measure

                    measure(run, self.chosen, self.report)
                else:
                    self.checks(run, device)
            finally:
                run.report(self.report, self.options["verbose"])

    def forced(self, run: Run) -> None:
        """What is done, before the process ends in the middle of a long check."""
        run.report(self.report, self.options["verbose"])
        self.report.notes.append(INTERRUPTED)
        write(self.report, self.files)

    def checks(self, run: Run, device: Device) -> None:
        """Kernels and primitives, as many of their cases as asked for. On a software device, which
        compiles slowly, a sample if nothing is asked for."""
        asked = NONE if self.options["quick"] else self.options["shapes"]
        few = device.limits.software and not self.options["only"]
        shapes = asked or (SAMPLE if few else ALL)
        lacking = run.kernels(self.chosen.kernels, SAMPLE if few and shapes == NONE else shapes)
        if shapes != NONE:
            run.primitives(self.chosen, shapes)
        if lacking:
            self.say(f"{device.info.name} lacks what these need: {', '.join(lacking)}")
        if run.left_out and not self.stop.pressed:
            self.say(f"{len(run.results)} of {len(run.results) + run.left_out} cases, drawn by the "
                     "seed: --shapes all runs all of them, --only NAME those of one kernel or "
                     "primitive")  # fmt: skip

    def say(self, text: str) -> None:
        """A note on stderr and in the report."""
        self.report.notes.append(text)
        note(f"note: {text}")
