"""Caches of every kind for tests, and services that use one."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from pdp.config.cache import CacheSettings
from pdp.decision.cache.cache import Cache
from pdp.decision.cache.local import InProcessCache
from pdp.decision.cache.mac_keys import MacKeys
from pdp.decision.cache.redis import RedisCache
from pdp.decision.cache.redis_client import VerdictSeal, open_client
from pdp.decision.cache.writer import CacheMetrics
from pdp.decision.service import Pdp
from pdp.decision.verdict_cache import VerdictCache

KEY = "a key of the tests, which no real service has"
TIMEOUT = 2.0
"""Patience with Redis in tests that are not about patience: machines are shared."""


def redis_cache(
    url: str,
    *,
    key: str = KEY,
    ttl: float = 60,
    timeout: float = TIMEOUT,
    metrics: CacheMetrics | None = None,
    **more: Any,
) -> RedisCache:
    """Return a cache in Redis."""
    settings = CacheSettings(redis=url, **more)
    return RedisCache(open_client(settings), VerdictSeal(MacKeys.parse(key)), metrics or new_metrics(), ttl, timeout)


def new_metrics() -> CacheMetrics:
    return CacheMetrics(CollectorRegistry())


def value_of(metrics: CacheMetrics, name: str, **labels: str) -> float:
    """Return the value of a metric."""
    found = metrics.registry.get_sample_value(name, labels or None)
    return found or 0.0


def with_cache(pdp: Pdp, cache: Cache | None = None, *, timeout: float = TIMEOUT) -> Pdp:
    """Let a service cache the verdicts of all its engines."""
    pdp.cache = VerdictCache(
        InProcessCache(100_000, 3600) if cache is None else cache, new_metrics(), timeout, every_engine=True
    )
    return pdp


async def written(pdp: Pdp) -> None:
    """Wait until all new verdicts are in the cache."""
    assert pdp.cache
    await pdp.cache.flush()
