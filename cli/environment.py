"""What a result needs to be repeated: version, revision, machine."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..engine.clocks import Reading

VARIABLES = ("KOMPUTE_LLM_", "VK_", "MESA_", "LP_", "NUMBA_", "XDG_CACHE_HOME")
PACKAGES = ("kp", "numpy", "numba", "gguf")


@cache
def version() -> str:
    """The installed version."""
    try:
        return metadata.version("kompute-llm")
    except metadata.PackageNotFoundError:
        return "unknown"


def _git(*args: str) -> str:
    """An answer of git about the folder of these sources; "" where there is none."""
    folder = Path(__file__).resolve().parent.parent
    if not (folder / ".git").exists():
        return ""
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()


@cache
def build_commit() -> str:
    """The git revision in 8 digits, or the version of an installed package."""
    return _git("rev-parse", "--short=8", "HEAD")[:8] or version()


@cache
def build_number() -> int:
    """Commits up to the revision; 0 without git."""
    number = _git("rev-list", "--count", "HEAD")
    return int(number) if number.isdecimal() else 0


@cache
def drivers() -> dict[str, str]:
    """Driver of every Vulkan device by its name; empty without Vulkan."""
    from ..engine.device_info import list_devices
    from ..engine.errors import DeviceError

    try:
        return {d.name: d.driver for d in list_devices()}
    except DeviceError:
        return {}


def begin_clocks() -> dict[str, Reading]:
    """Readings of the clocks of every GPU by its name, which take a moment; {} without Vulkan."""
    from ..engine.clocks import Reading
    from ..engine.device_info import list_devices
    from ..engine.errors import DeviceError

    try:
        return {d.name: Reading(d) for d in list_devices() if d.type != "cpu"}
    except DeviceError:
        return {}


def report() -> dict[str, Any]:
    """What a bug report needs: versions, processor, devices and their clocks in MHz, variables
    that change anything."""
    from ..engine.cpu_cores import available_cores
    from ..engine.roof_store import cpu_name

    clocks = begin_clocks()
    seen = {k: v for k, v in sorted(os.environ.items()) if k.startswith(VARIABLES)}
    return environment() | {
        "cpu": cpu_name(), "cores": available_cores(), "devices": drivers(),
        "clocks": {name: reading.result() or "n/a" for name, reading in clocks.items()},
        "variables": seen,
    }  # fmt: skip


@cache
def environment() -> dict[str, Any]:
    """Versions and machine, for result files and bug reports."""
    found: dict[str, Any] = {
        "version": version(), "commit": build_commit(), "python": platform.python_version(),
        "system": platform.platform(),
    }  # fmt: skip
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
