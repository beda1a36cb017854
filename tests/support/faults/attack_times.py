"""Times and memory of a service under attack, as ratios of the same run. The machine may be busy with other things."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

MOST_RATIO = 3.0
"""Most times the 99th percentile of a neighbour's answers under attack is that of a quiet service at the same time."""
MOST_MEMORY = 1.2
"""Most times the memory after an attack is that before the attack."""
WINDOWS = 5
"""Parts of a measurement. The median of the parts counts: one of them may fall on a pause of the machine."""
ASKS = 80
"""Questions of one window."""
_ROUNDS = 5
"""Measurements under an attack that goes on. The best counts."""
_PATIENCE = 20.0


def waits(processes: Iterable[int]) -> float:
    """Return the seconds in which processes could run and had no CPU."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) for pid in processes) / 1e9


class Times(list[float]):
    """Seconds of answers, without waits of this process and the processes `pids` for a CPU."""

    def __init__(self, *pids: int) -> None:
        super().__init__()
        self._processes = {os.getpid(), *pids}

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
    """Return the smallest time within which this part of all answers came (nearest rank)."""
    return sorted(times)[max(0, math.ceil(len(times) * part) - 1)]


async def is_quick(
    attacked: Callable[[], Awaitable[object]], quiet: Callable[[], Awaitable[object]], *pids: int
) -> bool:
    """Tell whether an attacked service answers about as quickly as a quiet one. Ask both in turns.

    `pids`: the processes of the services. Both run at the same time, so that a busy machine slows both.
    """
    for _ in range(_ROUNDS):
        times, usual = Times(*pids), Times(*pids)
        for _ in range(WINDOWS * ASKS):
            with times.measure():
                await attacked()
            with usual.measure():
                await quiet()
        if times.p99() < MOST_RATIO * usual.p99():
            return True
    return False


def is_quick_blocking(attacked: Callable[[], object], quiet: Callable[[], object], *pids: int) -> bool:
    """Tell whether an attacked service answers about as quickly as a quiet one, as `is_quick` does."""
    for _ in range(_ROUNDS):
        times, usual = Times(*pids), Times(*pids)
        for _ in range(WINDOWS * ASKS):
            with times.measure():
                attacked()
            with usual.measure():
                quiet()
        if times.p99() < MOST_RATIO * usual.p99():
            return True
    return False


def comes_back(memory: Callable[[], int], before: int) -> bool:
    """Wait until memory has come back to what it was before an attack; tell whether it has."""
    end = time.monotonic() + _PATIENCE
    while memory() > MOST_MEMORY * before:
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True
