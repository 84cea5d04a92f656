"""What `bench` refuses before it measures, and what its samples must agree on."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine import choice
from ..engine.errors import FileError, NumericError, UsageError
from .bench_options import Arm
from .bench_synthetic import open_any

if TYPE_CHECKING:
    from ..engine.bench_tests import Test
    from ..engine.measure import Sample


def check_arms(arms: Sequence[Arm], synthetic: Mapping[str, Any]) -> None:
    """Find every device, and open every model behind the first, which comes at once anyway.

    A later one that is not there must not cost the time of those before.
    """
    for device in dict.fromkeys(arm.config.device for arm in arms):
        choice.check_device(device)
    for path in list(dict.fromkeys(arm.path for arm in arms))[1:]:
        with open_any(path, synthetic):
            pass


def drawable(options: dict[str, Any]) -> None:
    """UsageError for names of files that --report and --plot have no format for, FileError for a
    folder that is not there."""
    for name, suffixes in (("report", (".html", ".htm")), ("plot", (".svg", ".png"))):
        if options[name] and Path(options[name]).suffix not in suffixes:
            raise UsageError(f"--{name} {options[name]}: the name must end in "
                             f"{' or '.join(suffixes)}")  # fmt: skip
        if options[name] and not Path(options[name]).expanduser().absolute().parent.is_dir():
            raise FileError(f"--{name} {options[name]}: there is no such folder")
    if str(options["plot"]).endswith(".png") and importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot FILE.png needs matplotlib (pip install matplotlib); .svg needs "
                         "nothing")  # fmt: skip


def check_equal(test: Test, samples: dict[str, list[Sample]]) -> None:
    """Recorded anew or not, the tokens must be the same. Raises NumericError."""
    drawn = {record: found[0].ids for record, found in samples.items()}
    first, *others = drawn.items()
    for other, ids in others:
        if ids != first[1]:
            pairs = zip(ids, first[1], strict=False)
            at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ids), len(first[1])))
            raise NumericError(
                f"{test.name}: token {at} differs between --record {other} and {first[0]}"
            )
