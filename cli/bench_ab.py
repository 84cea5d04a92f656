"""`bench ab`: two arms in turn, each in fresh processes, and whether they differ."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from ..engine.effect import NO_DIFFERENCE, Effect, interleaved, oddities
from ..engine.errors import KomputeLLMError, UsageError
from ..engine.stats import summarize
from .bench_compare import effect_json, write_table
from .bench_files import Row, differences, labels, matched, name_of, rates
from .interrupt import EXIT_CODE
from .options import Command, option
from .output import StatusLine, note, warn

EXAMPLES = """\
Options of an arm are those of 'bench'; NAME=VALUE before them sets a variable of its
environment. Everything else on the command line goes to both arms. A round is one process of each
arm, a first in the first round, b first in the second; a process counts as the median of its -r
samples. The interval is the crossover design's (docs/benchmarking.md).

Examples:
  kompute-llm bench ab --a "--math f32" --b "--math int8" tg64 -m model.gguf
  kompute-llm bench ab --a "" --b "" --rounds 20 pp512      (an A/A run: no difference shown)
  kompute-llm bench ab --a "" --b "" --program-b /other/bin/kompute-llm tg128
"""
SELF = (sys.executable, "-c", "from kompute_llm.cli.entry import main; main()")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
REFUSED = (
    "--output", "--save", "--output-err", "--roof", "--record", "--profile", "--report", "--plot",
    "--curve", "--export", "--env", "--list-configs", "-h", "--help",
)  # fmt: skip
HEADER = ("test", "a t/s", "b t/s", "b against a", "95 % interval", "verdict")


@dataclass
class Arm:
    """One side: what is run, and the results of its processes, oldest first."""

    name: str
    program: Sequence[str]
    options: list[str]
    env: dict[str, str]
    runs: list[list[Row]] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        """Its option's text again."""
        return [*(f"{k}={v}" for k, v in self.env.items()), *self.options]

    def run(self, common: Sequence[str]) -> list[Row]:
        """One fresh process. Raises KomputeLLMError with what it said when it fails."""
        command = [*self.program, "bench", *common, *self.options, "-o", "json"]
        env = os.environ | {"PYTHONSAFEPATH": "1"} | self.env
        answer = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if answer.returncode == EXIT_CODE:
            raise KeyboardInterrupt
        if answer.returncode:
            raise KomputeLLMError(
                f"arm {self.name} failed ({answer.returncode}): {reason(answer.stderr)}"
            )
        try:
            rows: list[Row] = json.loads(answer.stdout)
        except ValueError as e:
            raise KomputeLLMError(f"arm {self.name} did not write JSON: {e}") from e
        return rows


def reason(text: str) -> str:
    """What a process that failed said: its error, else its last line."""
    lines = text.strip().splitlines()
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or ["it said nothing"])[-1]


def make_arm(name: str, text: str, program: str | None) -> Arm:
    """An arm of its option's text. Raises UsageError."""
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise UsageError(f"--{name} {text!r}: {e}") from e
    env = {}
    while words and (match := ASSIGNMENT.fullmatch(words[0])):
        env[match[1]] = match[2]
        words.pop(0)
    refuse(words, f"--{name}")
    return Arm(name, [os.path.expanduser(program)] if program else SELF, words, env)


def refuse(words: Sequence[str], where: str) -> None:
    """UsageError for options that would change what the arms write."""
    for word in words:
        if word.split("=")[0] in REFUSED or re.match(r"-o(?!-)", word):  # -ojson, -oe as well
            raise UsageError(f"{where}: {word} has no place in a comparison")


@click.command(
    "bench ab", cls=Command, after_help=lambda: EXAMPLES,
    context_settings={"ignore_unknown_options": True},
)  # fmt: skip
@click.argument("common", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION OF BENCH]...")
@option("--a", "a", section="Arms", required=True, metavar="OPTIONS", help="The first arm.")
@option("--b", "b", section="Arms", required=True, metavar="OPTIONS", help="The second arm.")
@option("--program-a", section="Arms", metavar="PATH", help="Another kompute-llm for arm a.")
@option("--program-b", section="Arms", metavar="PATH", help="Another kompute-llm for arm b.")
@option("--rounds", section="Measurement", type=click.IntRange(4, 1000), default=10,
        show_default=True, metavar="N", help="Processes of each arm.")
@option("--anyway", section="Measurement", is_flag=True,
        help="Compare although model or device differ.")
@option("--json", "as_json", section="Measurement", is_flag=True,
        help="JSON with the results of every process instead of the table.")
def ab(
    common: tuple[str, ...], a: str, b: str, program_a: str | None, program_b: str | None,
    rounds: int, anyway: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run two arms in turn, in fresh processes, and say whether they differ."""
    refuse(common, "bench ab")
    arms = make_arm("a", a, program_a), make_arm("b", b, program_b)
    words = list(common)
    if not any(re.match(r"-r|--repetitions", w) for w in words):  # -r5, --repetitions=5 too
        words += ["-r", "3"]
    trial = Trial(arms, words, anyway)
    stopped = False
    try:
        trial.run(rounds)
    except KeyboardInterrupt:
        stopped = True
        note("interrupted")
    trial.report(as_json)
    return EXIT_CODE if stopped else 0


def advise(name: str, effect: Effect, n: int) -> None:
    """How many rounds would show 1 %."""
    if effect.needed:
        few = effect.needed > n and effect.verdict == NO_DIFFERENCE
        more = "; raise --rounds" if few else ""
        note(f"{name}: a difference of 1 % takes about {effect.needed} rounds to show (4 times "
             f"in 5); {n} were run{more}")  # fmt: skip


class Trial:
    """Rounds of two arms."""

    def __init__(self, arms: tuple[Arm, Arm], common: Sequence[str], anyway: bool) -> None:
        self.arms, self.common, self.anyway = arms, common, anyway
        self.status = StatusLine()

    def run(self, rounds: int) -> None:
        """A warm-up of each arm, which shows whether they can be compared; then the rounds."""
        a, b = self.arms
        try:
            first = [self.step(arm, "warm-up") for arm in (a, b)]
            pairs = matched(first[0], first[1], self.anyway)
            for text in differences(pairs):
                note(f"differs: {text}")
            for arm in self.arms:
                if arm.words:
                    note(f"arm {arm.name}: {shlex.join(arm.words)}")
            for i in range(rounds):
                order = (a, b) if i % 2 == 0 else (b, a)
                found = {arm.name: self.step(arm, f"round {i + 1}/{rounds}") for arm in order}
                for arm in self.arms:  # both or none, so that rounds stay pairs
                    arm.runs.append(found[arm.name])
        finally:
            self.status.show("")

    def step(self, arm: Arm, what: str) -> list[Row]:
        """One process."""
        self.status.show(f"{what}: arm {arm.name}")
        return arm.run(self.common)

    def speeds(self, arm: Arm, index: int) -> list[float]:
        """Median t/s of a test in every round."""
        return [summarize(rates(run[index])).median for run in arm.runs]

    def report(self, as_json: bool) -> None:
        """The table or JSON of the rounds that are complete."""
        a, b = self.arms
        n = len(a.runs)
        if n < 4:
            note(f"{n} complete rounds: at least 4 are needed to say anything")
            return
        pairs = matched(a.runs[0], b.runs[0], self.anyway)
        rows, objects = [], []
        for name, (x, y) in zip(labels([x for x, _ in pairs]), pairs, strict=True):
            one = self.speeds(a, a.runs[0].index(x))
            two = self.speeds(b, b.runs[0].index(y))
            effect = interleaved(one, two)
            s, t = summarize(one), summarize(two)
            rows.append((name, f"{s.mean:.2f} ± {s.sd:.2f}", f"{t.mean:.2f} ± {t.sd:.2f}",
                         effect.percent, effect.interval, effect.verdict))  # fmt: skip
            objects.append({"test": name_of(x), "label": name, "a_ts": one, "b_ts": two,
                            **effect_json(effect)})  # fmt: skip
            self.remark(name, one, two)
            advise(name, effect, n)
        if as_json:
            result: dict[str, Any] = {
                "a": a.words, "b": b.words, "common": list(self.common), "rounds": n,
                "differences": differences(pairs), "tests": objects,
                "results": {arm.name: arm.runs for arm in self.arms},
            }  # fmt: skip
            sys.stdout.write(json.dumps(result, indent=2) + "\n")
        else:
            write_table(rows, HEADER)

    def remark(self, name: str, one: Sequence[float], two: Sequence[float]) -> None:
        """Drift and outliers of each arm."""
        for arm, speeds in (("a", one), ("b", two)):
            for text in oddities(speeds):
                warn(f"{name}, arm {arm}: {text}")
