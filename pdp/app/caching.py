"""The cache of verdicts from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from pdp.config.settings import Settings
from pdp.decision.active_policies import ActivePolicies
from pdp.decision.cache.cache import Cache, read_authorities
from pdp.decision.cache.local import InProcessCache, TieredCache
from pdp.decision.cache.mac_keys import MacKeys, machine_keys, random_keys
from pdp.decision.cache.writer import CacheMetrics
from pdp.decision.verdict_cache import VerdictCache, served_engines
from pdp.telemetry import Telemetry

if TYPE_CHECKING:
    from pdp.decision.cache.redis import RedisCache

_PATIENT_SHARE: Final = 0.5
"""Part of a request's time to wait for another request's verdicts of a costly engine. The rest is left to decide."""
log = structlog.get_logger()


def build_cache(settings: Settings, telemetry: Telemetry, bundle: ActivePolicies) -> VerdictCache | None:
    """Return the cache of settings; None if no verdict of the bundle's engines is to be kept. Nothing is connected yet.

    Raise ConfigError if `cache.tls_ca` cannot be used.
    """
    chosen = settings.cache
    uses_redis = chosen.redis is not None and chosen.redis_for != "none"
    every_engine = uses_redis and chosen.redis_for == "all"
    if not uses_redis and not chosen.local_entries:
        return None
    if not served_engines(bundle, every_engine=every_engine):
        if uses_redis:
            read_authorities(settings)  # a wrong file is an error, whether Redis is asked or not
        return None
    metrics = CacheMetrics(telemetry.registry)
    cache: Cache | None = None
    if chosen.local_entries:
        cache = InProcessCache(chosen.local_entries, chosen.ttl_seconds)
    if uses_redis:
        far = _redis_cache(settings, metrics)
        cache = far if cache is None else TieredCache(cache, far)
    assert cache is not None
    patience = settings.limits.request_timeout_seconds * _PATIENT_SHARE
    return VerdictCache(cache, metrics, chosen.timeout_ms / 1000, every_engine=every_engine, patience=patience)


def seal_keys(settings: Settings) -> MacKeys:
    """Return the keys of the seal.

    Without a configured key, services of one user on one machine share a key that other users cannot read.
    """
    if settings.cache.mac_key is not None:
        return MacKeys.parse(settings.cache.mac_key)
    keys = machine_keys()
    if keys is None:
        log.warning("cache", warning="no place for a shared key: other services cannot use what this one caches")
    return keys or random_keys()


def _redis_cache(settings: Settings, metrics: CacheMetrics) -> RedisCache:
    from pdp.decision.cache.redis import RedisCache  # noqa: PLC0415  the client takes 10 MB
    from pdp.decision.cache.redis_client import VerdictSeal, open_client  # noqa: PLC0415

    chosen = settings.cache
    seal = VerdictSeal(seal_keys(settings))
    client = open_client(chosen.model_copy(update={"tls_ca": read_authorities(settings)}))
    return RedisCache(client, seal, metrics, chosen.ttl_seconds, chosen.timeout_ms / 1000)
