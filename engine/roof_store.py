"""The speed limits of a device, as `bench --roof` measured them, in one JSON file per device.

The file lies beside the compiled pipelines in the user's cache folder and is named like them, by
device, driver and driver build, so that a new driver is measured anew.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import tempfile
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .layer import PipelineCache
from .work import DOT, FMA, MATRIX, Work

if TYPE_CHECKING:
    from .device_info import DeviceInfo

VERSION = 1  # of what is measured; other versions are not read


@dataclass(frozen=True)
class Roof:
    """Bytes, operations and dispatches per second at best; 0 for a unit that is not there."""

    device: str
    driver: str
    read: float  # bytes per second
    copy: float  # bytes read and bytes written, together, per second
    fma: float  # float32 operations per second, two per multiply-add
    dot: float  # operations on packed bytes
    matrix: float  # float16 factors on matrix cores
    launch: float  # seconds that one more dispatch takes in a recorded sequence
    measured: str = ""  # when
    version: int = VERSION

    def rate(self, unit: str) -> float:
        """Operations per second of a unit of work.py; the float32 rate where it is not there."""
        return {FMA: self.fma, DOT: self.dot, MATRIX: self.matrix}[unit] or self.fma

    def floor(self, work: Work) -> float:
        """Least seconds for some work: the memory or the arithmetic, and the dispatches."""
        arithmetic = sum(ops / self.rate(unit) for unit, ops in work.ops.items())
        return max(work.bytes / self.read, arithmetic) + work.dispatches * self.launch


def roof_file(info: DeviceInfo) -> Path:
    """The file of a Vulkan device."""
    pipelines = PipelineCache(info.ids, info.driver, info.cache_uuid).path
    return pipelines.with_name(pipelines.name.replace("pipelines-", "roof-")).with_suffix(".json")


def cpu_name() -> str:
    """The processor as it calls itself."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        names = [line.split(":", 1)[1].strip() for line in text.splitlines()
                 if line.startswith("model name")]  # fmt: skip
    except (OSError, IndexError):
        names = []
    return names[0] if names else platform.processor() or platform.machine() or "CPU"


def cpu_roof_file(threads: int) -> Path:
    """The file of this processor with a number of threads."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = f"roof-cpu-{zlib.crc32(cpu_name().encode()):08x}-{threads}t.json"
    return Path(root, "kompute-llm", name)


def load_roof(path: Path) -> Roof | None:
    """What was measured, or None: no file, an old one, or one that makes no sense."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        roof = Roof(**{f.name: found[f.name] for f in fields(Roof)})
        numbers = (roof.read, roof.copy, roof.fma, roof.dot, roof.matrix, roof.launch)
        good = all(math.isfinite(x) and x >= 0 for x in numbers) and roof.read > 0 < roof.fma
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return roof if good and roof.version == VERSION else None


def save_roof(path: Path, roof: Roof) -> bool:
    """Replace the file in one step; False where it cannot be written."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as f:
            json.dump(asdict(roof), f, indent=2)
        os.replace(f.name, path)
        return True
    return False
