"""Where Numba keeps compiled kernels: a folder per version of their sources.

Numba checks only the file of a cached function, not the files that it calls into. So the folder
is named after a hash of all sources of the fast kernels: an edit or an update starts a new one.
NUMBA_CACHE_DIR, where set, is respected.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numba

KEEP_SECONDS = 30 * 24 * 3600  # folders of other versions unused for so long are removed


def cache_root() -> Path:
    """The user's cache folder of this program."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kompute-llm"


@cache
def use_cache() -> Path | None:
    """Point Numba's disk cache at the folder of this version; None where the user chose one."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return None
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("fast*.py")):
        digest.update(path.read_bytes())
    try:
        folder = cache_root() / f"numba-{digest.hexdigest()[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        _prune(folder)
    except (OSError, RuntimeError):  # no home, or one that cannot be written: compile each time
        folder = Path(tempfile.mkdtemp(prefix="kompute-llm-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    config: Any = numba.config
    config.CACHE_DIR = str(folder)
    return folder


def _prune(current: Path) -> None:
    for other in current.parent.glob("numba-*"):
        if other != current and time.time() - other.stat().st_mtime > KEEP_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
