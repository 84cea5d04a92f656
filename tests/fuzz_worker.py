"""The process that opens damaged files: one path a line on stdin, one JSON verdict a line out.

It may grow by GROWTH bytes of address space from where it stood after a whole file had run; a
crash ends it, and whoever feeds it sees which file did that.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from cli import invoke

GROWTH = 1 << 30
RUN = ("-p", "hi the", "-n", 2, "--temp", 0, "-c", 32, "-t", 1)


def verdict(path: Path, device: str = "cpu") -> dict[str, Any]:
    """What `run` and `inspect` make of a file: "ran", "refused" or what is wrong with them."""
    outcome: dict[str, Any] = {"outcome": "refused"}
    for command, options in (("run", (*RUN, "--device", device)), ("inspect", ())):
        try:
            result = invoke(command, path, *options)
        except BaseException as e:
            return {"outcome": "fault", "text": f"{command}: {type(e).__name__}: {e}"}
        problem = _problem(result.exit_code, result.stderr)
        if problem:
            return {"outcome": "fault", "text": f"{command}: {problem}: {result.stderr[-600:]}"}
        if command == "run":
            outcome = {"outcome": "refused" if result.exit_code else "ran", "text": result.stderr}
    return outcome


def _problem(code: int, stderr: str) -> str:
    """What a user should never see, or ""."""
    errors = [line for line in stderr.splitlines() if line.startswith("error: ")]
    if code not in (0, 1):
        return f"exit code {code}"
    if len(errors) != code:
        return f"exit code {code} with {len(errors)} messages"
    for sign in ("internal error", "out of memory", "Traceback", "Warning: "):
        if sign in stderr:
            return sign
    return ""


def address_space() -> int:
    """Bytes of this process's address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """The first path is a sound file, which loads everything that is loaded once. The argument
    names the device."""
    first = True
    for line in sys.stdin:
        answer = verdict(Path(line.rstrip("\n")), *sys.argv[1:])
        if first:
            with contextlib.suppress(ValueError):
                resource.setrlimit(resource.RLIMIT_AS, (address_space() + GROWTH,) * 2)
            first = False
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
