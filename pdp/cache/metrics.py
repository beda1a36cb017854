"""Metrics of the cache. Labels come from closed sets."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

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
