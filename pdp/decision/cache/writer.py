"""Writes of new verdicts to a cache outside of this process, after the answers, and the metrics of the cache.

No request waits for a write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from pdp.decision.cache.cache import Cache, NewVerdicts

_LATENCY: Final = (0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.05)
STATES: Final = {"closed": 0, "half_open": 1, "open": 2}


class CacheMetrics:
    """Counters of one cache."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.verdicts = Counter(
            "pdp_cache_verdicts_total", "Verdicts that were looked up: hit, miss, or refused as forged or expired",
            ["outcome"], registry=registry,
        )  # fmt: skip
        self.hits = self.verdicts.labels("hit")
        self.misses = self.verdicts.labels("miss")
        self.refused = self.verdicts.labels("refused")
        self.joined = Counter(
            "pdp_cache_joined_total", "Verdicts that another request with the same question decided",
            registry=registry,
        )  # fmt: skip
        self.errors = Counter(
            "pdp_cache_errors_total", "Calls of Redis that failed, by call and cause", ["call", "cause"],
            registry=registry,
        )  # fmt: skip
        self.dropped = Counter(
            "pdp_cache_dropped_total", "Verdicts that were not written: too many waited", registry=registry
        )
        self.breaker = Gauge(
            "pdp_cache_breaker", "State of the circuit breaker: 0 closed, 1 half open, 2 open", ["call"],
            registry=registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "pdp_cache_lookup_seconds", "Time of look-ups in Redis", buckets=_LATENCY, registry=registry
        )


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
