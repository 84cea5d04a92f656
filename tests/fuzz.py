"""Damage tiny model files at random and see that each either runs or is refused in one sentence.

    python tests/fuzz.py [-n 2000] [--seed 1] [--only CASE] [--device cpu] [--model FILE]

Not allowed: an unexpected exception, a death by signal, more than 10 seconds, more than 1 GB on top
of what a sound file needs, a warning of Python's. The number of a case repeats it.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz_cases import bases, make_case

PATIENCE = 10.0  # seconds for one file
START = 120.0  # seconds for the first, sound file: kernels may have to be compiled
SCRIPT = Path(__file__).with_name("fuzz_worker.py")
LATE = f"no answer in {PATIENCE:g} s"
FRESH = 400  # cases that one process opens before a new one takes over


@dataclass
class Report:
    """Outcomes counted, faults as (case, text)."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str]] = field(default_factory=list)


class Worker:
    """A process that opens files; started again when it died or was killed."""

    def __init__(self, sound: Path, device: str = "cpu") -> None:
        self.sound, self.device, self.cases = sound, device, 0
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, path: Path) -> dict[str, Any]:
        """The verdict on one file. Damage may ask for kernels that were never compiled: a second
        attempt has the time for that, and says so."""
        answer = self._answer(path, PATIENCE)
        if answer["text"] == LATE:
            again = self._answer(path, START)
            answer = again if "compiling kernels" in again["text"] else answer
        return answer

    def _answer(self, path: Path, patience: float) -> dict[str, Any]:
        """The verdict of a process that has not opened many files before."""
        if self.process is None or self.cases >= FRESH:
            self.close()
            self.cases = 0
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), self.device],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
            )  # fmt: skip
            answer = self._ask(self.sound, START)
            if answer["outcome"] != "ran":
                raise SystemExit(f"the sound file did not run: {answer}")
        self.cases += 1
        return self._ask(path, patience)

    def _ask(self, path: Path, patience: float) -> dict[str, Any]:
        process = self.process
        assert process and process.stdin and process.stdout
        process.stdin.write(f"{path}\n".encode())
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], patience)
        line = process.stdout.readline() if ready else b""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.close(kill=not ready)
        return {"outcome": "fault", "text": f"died with {process.returncode}" if ready else LATE}

    def close(self, kill: bool = False) -> None:
        """End the process."""
        if self.process is None:
            return
        if kill:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
        self.process.wait()
        self.process = None


def fuzz(
    cases: range, seed: int, folder: Path, device: str = "cpu", model: Path | None = None,
    show: bool = False,
) -> Report:  # fmt: skip
    """Run `cases` on the three models or on another one; files are written below `folder`."""
    report, made = Report(), bases(folder, model)
    worker = Worker(folder / made[0].given, device)
    work = folder / "damaged"
    work.mkdir()
    try:
        for n in cases:
            answer = worker.ask(make_case(made, seed, n, work))
            report.counts[answer["outcome"]] += 1
            if answer["outcome"] == "fault":
                report.faults.append((n, answer["text"]))
            if show:
                print(f"{n}: {answer['outcome']}: {answer.get('text', '').strip()}", flush=True)
    finally:
        worker.close()
    return report


def main() -> int:
    """Print what was found; exit code 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=2000, help="cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="as of 'kompute-llm run'")
    parser.add_argument("--model", type=Path, help="a small file to damage instead")
    parser.add_argument("--only", type=int, help="the number of one case, shown in full")
    args = parser.parse_args()
    cases = range(args.n) if args.only is None else range(args.only, args.only + 1)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = fuzz(cases, args.seed, Path(folder), args.device, args.model,
                      show=args.only is not None)  # fmt: skip
    for n, text in report.faults:
        print(f"case {n} of seed {args.seed}: {text}")
    found = ", ".join(f"{k} {v}" for k, v in sorted(report.counts.items()))
    print(f"{len(cases)} cases in {time.monotonic() - start:.0f} s: {found}")
    return bool(report.faults)


if __name__ == "__main__":
    sys.exit(main())
