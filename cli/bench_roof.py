"""`bench --roof`: what the device can do at best, measured and kept for `--profile`."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from ..engine.cpu_cores import available_cores
from ..engine.errors import UsageError
from .bench_options import flat
from .output import StatusLine, note, warn
from .tables import table

if TYPE_CHECKING:
    from pathlib import Path

    from ..engine.roof import Probe
    from ..engine.roof_store import Roof


def roof(options: dict[str, Any]) -> int:
    """Measure each device of --device (or the one that `run` would take)."""
    if options["output"] not in ("md", "json"):
        raise UsageError("--roof has the outputs md and json")
    found = []
    for device in flat(options, "device", None):
        status = StatusLine()
        try:
            result, probes, path = measure(device, flat(options, "threads", None)[0], status)
        finally:
            status.show("")
        found.append(dataclasses.asdict(result) | {"probes": rates(probes)})
        if options["output"] == "md":
            show(result, probes)
        from ..engine.roof_store import save_roof

        if save_roof(path, result):
            note(f"kept in {path}")
        else:
            warn(f"{path} cannot be written, --profile will not know of it")
    if options["output"] == "json":
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0


def measure(
    device: str | None, threads: int | None, status: StatusLine
) -> tuple[Roof, list[Probe], Path]:
    """The roof of a device by its name, as --device takes it."""
    from ..engine import roof as vulkan
    from ..engine.choice import ANY_VULKAN, find_gpu
    from ..engine.device_info import choose
    from ..engine.roof_store import cpu_roof_file, roof_file

    which = (device or "").strip().casefold()
    info = None
    if which and which != "cpu":
        info = choose(None if which == ANY_VULKAN else which)
    elif not which:
        info, why = find_gpu()
        if info is None:
            note(f"note: {why}: measuring the CPU")
    if info is None:
        from ..engine.roof_cpu import measure_cpu

        count = threads or available_cores()
        return *measure_cpu(count, status.show), cpu_roof_file(count)
    from ..engine.device import Device

    with Device.open(info) as opened:
        return *vulkan.measure(opened, status.show), roof_file(info)


def rates(probes: list[Probe]) -> dict[str, float]:
    """Best rate per second of each probe."""
    best: dict[str, float] = {}
    for p in probes:
        best[p.name] = max(p.rate, best.get(p.name, 0.0))
    return best


def show(found: Roof, probes: list[Probe]) -> None:
    """The roof as a table."""
    sys.stdout.write(f"{found.device} ({found.driver})\n")
    rows = []
    for name, rate in rates(probes).items():
        kind = name.split()[0]
        if kind in ("read", "copy"):
            rows.append((name, f"{rate / 1e9:.1f} GB/s", ""))
    for label, value, what in (
        ("fma", found.fma, "float32 multiply-adds"),
        ("dot", found.dot, "packed 8-bit dot products"),
        ("matrix", found.matrix, "matrix cores, f16 factors"),
    ):
        rows.append((label, ops(value), what))
    rows.append(("launch", f"{found.launch * 1e6:.2f} us" if found.launch else "n/a",
                 "one more dispatch that waits for the last"))  # fmt: skip
    table(("probe", "best", "what"), rows, right="lrl")


def ops(rate: float) -> str:
    """Operations per second, two per multiplication and addition."""
    if not rate:
        return "none"
    return f"{rate / 1e12:.2f} TOP/s" if rate >= 1e12 else f"{rate / 1e9:.1f} GOP/s"
