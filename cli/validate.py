"""`validate`: every shader against its CPU reference, a model against the CPU executor."""

from __future__ import annotations

import fnmatch
import secrets
import sys
from typing import TYPE_CHECKING, Any

import click

from ..engine.errors import UsageError
from .interrupt import EXIT_CODE, Interrupt
from .model_check import ModelCheck
from .options import Command, choose_model, device_options, model_option, option, runner_config
from .output import StatusLine, note
from .tables import table

if TYPE_CHECKING:
    from ..engine.harness import CaseResult
    from ..kernels.kernel import Kernel

EXAMPLES = """\
Errors are normalised mean squared errors (NMSE) against arithmetic on the CPU. Outputs are
poisoned first, so that NaN and elements never written fail. Exit code 1 when anything fails.

Examples:
  kompute-llm validate                           every kernel, every case
  kompute-llm validate --only 'matvec*' --seed 3
  kompute-llm validate model.gguf                one model: logits against the CPU
  kompute-llm validate -m model.gguf             both
"""
COLUMNS = ("kernel", "case", "build", "NMSE", "max rel", "limit", "verdict", "note")
RIGHT = "lllrrrll"


@click.command(cls=Command, after_help=lambda: EXAMPLES)
@click.argument("args", nargs=-1, metavar="[MODEL]")
@model_option()
@option("--only", section="Checks", metavar="NAME", multiple=True,
        help="Kernels whose name contains NAME (or matches a * pattern); may be repeated.")
@option("--list", "list_", section="Checks", is_flag=True, help="List the kernels and stop.")
@option("-s", "--seed", section="Checks", type=click.IntRange(0), metavar="X",
        help="Of the random inputs. [a fresh one, printed]")
@device_options()
@option("-v", "--verbose", section="Checks", is_flag=True,
        help="Describe device and model; tracebacks of errors.")
def validate(args: tuple[str, ...], **options: Any) -> int:
    """Check the shaders, or a model, on the chosen device against the CPU.

    MODEL checks that model only; -m checks it after all kernels.
    """
    with Interrupt() as interrupt:
        path = choose_model(options["model"], args) if args or options["model"] else None
        seed = secrets.randbits(32) if options["seed"] is None else options["seed"]
        config, verbose = runner_config(options), options["verbose"]
        check = ModelCheck(path, config, seed, verbose) if path else None
        if args and not (options["only"] or options["list_"]):
            kernels = []
        else:
            kernels = all_kernels(options["only"])
        if options["list_"]:
            return list_kernels(kernels)
        if check:
            check.check_file()  # faults of the file before minutes of kernels
        if options["seed"] is None:
            note(f"seed: {seed}")
        good = not kernels or check_kernels(kernels, options["device"], seed, interrupt)
        if check and not interrupt.pressed:
            good = check.run(interrupt) and good
        if interrupt.pressed:
            note("interrupted")
            return EXIT_CODE
        return 0 if good else 1


def all_kernels(only: tuple[str, ...]) -> list[Kernel]:
    """Every kernel, or those that --only names."""
    from ..engine.harness import all_kernels as find

    return select(find(), only)


def select(kernels: list[Kernel], only: tuple[str, ...]) -> list[Kernel]:
    """Kernels that `--only` names; UsageError when a name fits none."""
    chosen = []
    for name in only:
        found = [k for k in kernels if name in k.name or fnmatch.fnmatchcase(k.name, name)]
        if not found:
            raise UsageError(f"--only {name}: no such kernel; 'validate --list' names them")
        chosen += found
    return [k for k in kernels if k in chosen] if only else kernels


def list_kernels(kernels: list[Kernel]) -> int:
    """Names, builds and the number of cases."""
    import numpy as np

    rows = []
    for k in kernels:
        cases = sum(1 for _ in k.cases(np.random.default_rng(0)))
        rows.append((k.name, str(cases), str(len(k.interface.builds))))
    table(("kernel", "cases", "builds"), rows, right="lrr")
    return 0


def check_kernels(kernels: list[Kernel], which: str | None, seed: int, stop: Interrupt) -> bool:
    """Every case of `kernels` on the device; prints the table. Ctrl-C keeps what is done."""
    import numpy as np

    from ..engine.choice import ANY_VULKAN
    from ..engine.device import open_device
    from ..engine.harness import can_run, run_case

    results: list[CaseResult] = []
    status = StatusLine()
    with open_device(None if which == ANY_VULKAN else which) as device:
        note(f"device: {device.describe}")
        stop.raising = False
        for kernel in kernels:
            if not can_run(device, kernel):
                note(f"{kernel.name}: not run, {device.info.name} lacks what it needs")
                continue
            for case in kernel.cases(np.random.default_rng(seed)):
                if stop.pressed:
                    break
                status.show(f"{len(results) + 1}: {kernel.name}: {case.name}")
                results.append(run_case(device, kernel, case))
    status.show("")
    table(COLUMNS, [row(r) for r in results], right=RIGHT)
    failed = sum(not r.ok for r in results)
    sys.stdout.write(f"{len(results)} cases, {failed} failed\n")
    sys.stdout.flush()
    return failed == 0


def row(r: CaseResult) -> tuple[str, ...]:
    """One case as table cells."""
    verdict = "ok" if r.ok else "FAIL"
    errors = (f"{r.nmse:.1e}", f"{r.max_rel:.1e}", f"{r.limit:.0e}")
    return (r.kernel, r.case, r.build, *errors, verdict, r.note)
