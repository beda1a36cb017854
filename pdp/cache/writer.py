"""Writes of new verdicts to a cache outside of this process, after the answers. No request waits for a write."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from pdp.cache.cache import Cache, NewVerdicts
from pdp.cache.metrics import CacheMetrics

_DELAY_SECONDS: Final = 0.002
"""Time from the first verdict that waits to its write. The answer leaves earlier, and writes travel together."""
_MOST_WAITING: Final = 20_000
_MOST_TOGETHER: Final = 1_000
"""Verdicts that may wait, and those of one write."""
_LAST_SECONDS: Final = 0.5


class CacheWriter:
    """Queue of new verdicts before a cache. Verdicts that find the queue full are dropped and counted."""

    def __init__(self, cache: Cache, metrics: CacheMetrics) -> None:
        self._cache = cache
        self._metrics = metrics
        self._waiting: deque[NewVerdicts] = deque()
        self._count = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, column: NewVerdicts) -> None:
        """Add new verdicts. Return at once."""
        if self._count + len(column.verdicts) > _MOST_WAITING:
            self._metrics.dropped.inc(len(column.verdicts))
            return
        self._waiting.append(column)
        self._count += len(column.verdicts)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def flush(self) -> None:
        """Wait until all that waits is written."""
        if self._task is not None and not self._task.done():
            await asyncio.wait((self._task,))

    async def close(self) -> None:
        """Write what waits, for half a second at most."""
        if self._task is not None and not self._task.done():
            await asyncio.wait((self._task,), timeout=_LAST_SECONDS)
            self._task.cancel()

    async def _write(self) -> None:
        await asyncio.sleep(_DELAY_SECONDS)
        while self._waiting:
            columns: list[NewVerdicts] = []
            count = 0
            while self._waiting and (not columns or count + len(self._waiting[0].verdicts) <= _MOST_TOGETHER):
                columns.append(self._waiting.popleft())
                count += len(columns[-1].verdicts)
            self._count -= count
            await self._cache.keep(columns)
