"""How many threads pay: physical cores that this process may use, within its container's quota."""

from __future__ import annotations

import math
import os
from pathlib import Path

SYS = Path("/sys")


def _affinity() -> set[int]:
    try:
        return set(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return set(range(os.cpu_count() or 1))


def physical(cpus: set[int], sys: Path = SYS) -> int:
    """Cores among logical `cpus`: two threads of one core share its arithmetic units."""
    cores = set()
    for cpu in cpus:
        path = sys / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            cores.add(path.read_text().strip())
        except OSError:
            cores.add(str(cpu))
    return len(cores)


def quota(sys: Path = SYS) -> float:
    """Cores' worth of time that the control group grants (cgroup v2, then v1); inf: no limit."""
    try:
        limit, period = (sys / "fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (sys / "fs/cgroup/cpu/cpu.cfs_quota_us").read_text()
            period = (sys / "fs/cgroup/cpu/cpu.cfs_period_us").read_text()
        except OSError:
            return math.inf
    try:
        cores = int(limit) / int(period)
    except (ValueError, ZeroDivisionError):  # "max"
        return math.inf
    return cores if cores > 0 else math.inf


def available_cores() -> int:
    """Threads to use when nothing is asked for; at least 1."""
    cores = physical(_affinity())
    return max(1, min(cores, math.ceil(quota()) if quota() < cores else cores))
