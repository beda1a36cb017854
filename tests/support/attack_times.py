"""Times and memory of a service under attack, as ratios of the same run. The machine may be busy with other things."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

MOST_RATIO = 3.0
"""Most times the 99th percentile of a neighbour's answers under attack is that of a quiet service."""
MOST_MEMORY = 1.2
"""Most times the memory after an attack is that before the attack."""
WINDOWS = 5
"""Parts of a measurement. The median of the parts counts: one of them may fall on a pause of the machine."""
ASKS = 100
"""Questions of one window."""
_ROUNDS = 3
"""Measurements under an attack that goes on. The best counts."""
_PATIENCE = 20.0


def waits(processes: Iterable[int]) -> float:
    """Return the seconds in which processes could run and had no CPU."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) for pid in processes) / 1e9


class Times(list[float]):
    """Seconds of answers, without waits for a CPU. `service`: the process that is asked, unless it is this one."""

    def __init__(self, service: int | None = None) -> None:
        super().__init__()
        self._processes = {os.getpid(), service or os.getpid()}

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Add the time of one answer."""
        began, waited = time.perf_counter(), waits(self._processes)
        yield
        self.append(max(0.0, time.perf_counter() - began - (waits(self._processes) - waited)))

    def p99(self) -> float:
        """Return the 99th percentile: the median of those of all windows."""
        size = len(self) // WINDOWS
        return statistics.median(percentile(self[at : at + size], 0.99) for at in range(0, size * WINDOWS, size))


def percentile(times: Sequence[float], part: float) -> float:
    """Return the time of the answer that is slower than this part of all."""
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


async def times_of(ask: Callable[[], Awaitable[object]], service: int | None = None) -> Times:
    """Ask again and again; return the times of the answers."""
    times = Times(service)
    for _ in range(WINDOWS * ASKS):
        with times.measure():
            await ask()
    return times


def blocking_times_of(ask: Callable[[], object], service: int | None = None) -> Times:
    """Ask again and again; return the times of the answers."""
    times = Times(service)
    for _ in range(WINDOWS * ASKS):
        with times.measure():
            ask()
    return times


async def is_quick(ask: Callable[[], Awaitable[object]], quiet: Times, service: int | None = None) -> bool:
    """Tell whether the answers under attack are about as quick as those of the quiet service."""
    for _ in range(_ROUNDS):
        if (await times_of(ask, service)).p99() < MOST_RATIO * quiet.p99():
            return True
    return False


def is_quick_blocking(ask: Callable[[], object], quiet: Times, service: int | None = None) -> bool:
    """Tell whether the answers under attack are about as quick as those of the quiet service."""
    limit = MOST_RATIO * quiet.p99()
    return any(blocking_times_of(ask, service).p99() < limit for _ in range(_ROUNDS))


def comes_back(memory: Callable[[], int], before: int) -> bool:
    """Wait until memory has come back to what it was before an attack; tell whether it has."""
    end = time.monotonic() + _PATIENCE
    while memory() > MOST_MEMORY * before:
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True
