"""Number of CPUs that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")


def usable_cpus(root: Path = _ROOT) -> int:
    """Return the whole CPUs of the process: the least of its affinity and of the quotas of its cgroup; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min((float(allowed), *_quotas(root)))))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quotas of the cgroup and of every cgroup around it, in CPUs."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        if not controllers:  # version 2
            for folder in _upwards(root / "sys/fs/cgroup", name):
                yield from _quota(*_read(folder / "cpu.max").split())
        elif "cpu" in controllers.split(","):
            for folder in _upwards(root / "sys/fs/cgroup" / controllers, name):
                yield from _quota(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _upwards(top: Path, name: str) -> Iterator[Path]:
    folder = top / name.strip("/")
    while True:
        yield folder
        if folder == top:
            return
        folder = folder.parent


def _quota(limit: str = "", period: str = "") -> Iterator[float]:
    limit, period = limit.strip(), period.strip()
    if limit.isdigit() and period.isdigit() and int(period):
        yield int(limit) / int(period)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""
