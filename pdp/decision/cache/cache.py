"""The `Cache` protocol: verdicts of engines, kept by question and resource.

A cache never decides. It returns a verdict that an engine gave to the very same question, or nothing. The contract, for
every implementation:

1. `find` returns only verdicts that `keep` took under the same key and field.
2. No failure of a cache leaves `find` or `keep`: a failure is a miss, or a verdict that is not kept.
3. A verdict ends after the time to live at the latest.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from pdp.config.settings import Settings
from pdp.engines.engine import ABSTAIN, FORBID, PERMIT
from pdp.model.answer import Reason

KEPT_EFFECTS = frozenset((ABSTAIN, PERMIT, FORBID))
"""Effects that may be cached. A failure is no verdict."""
MOST_FIELDS: Final = 2_000
"""Verdicts of one batch that are looked up or written. More would take longer than to decide them."""


class CachedVerdict(NamedTuple):
    """Verdict of one engine on one resource, without errors."""

    effect: int
    by: Reason | None


class Lookup(msgspec.Struct, frozen=True, gc=False):
    """Question about many resources: the digest of the question, and one digest for each resource."""

    key: bytes
    fields: Sequence[bytes]


class NewVerdicts(msgspec.Struct, frozen=True, gc=False):
    """Verdicts on a question that no cache had: by the digest of the resource."""

    key: bytes
    verdicts: Mapping[bytes, CachedVerdict]
    seconds: float | None = None
    """Longest time to keep the verdicts; None for the time to live of the cache."""


FoundVerdicts = Sequence[CachedVerdict | None]
"""Verdicts for the fields of a look-up, in order; None where a cache has none."""


class LivingVerdicts(NamedTuple):
    """Verdicts for the fields of a look-up, and the rest of their life in seconds."""

    verdicts: FoundVerdicts
    seconds: float


class Cache(Protocol):
    """Memory of verdicts."""

    async def find(self, lookups: Sequence[Lookup]) -> Sequence[FoundVerdicts]:
        """Return the verdicts for each look-up. Never raise because of the cache."""
        ...

    async def keep(self, columns: Sequence[NewVerdicts]) -> None:
        """Keep verdicts. Never raise because of the cache."""
        ...

    def keep_near(self, columns: Sequence[NewVerdicts]) -> None:
        """Keep verdicts in this process, at once. They are not yet in the far part."""
        ...

    def far_part(self) -> Cache | None:
        """Return the part of the cache that is outside of this process; None without one."""
        ...

    def state(self) -> str:
        """Return the condition of the cache in one word, for readiness: `ok`, or what is wrong."""
        ...

    async def close(self) -> None:
        """Release all connections."""
        ...


class FarCache(Cache, Protocol):
    """Cache whose verdicts a nearer cache may keep until their end."""

    async def find_living(self, lookups: Sequence[Lookup]) -> Sequence[LivingVerdicts]:
        """Return what `find` returns, with the rest of the life of each column. Never raise because of the cache."""
        ...


class NoCache:
    """Cache that keeps nothing."""

    async def find(self, lookups: Sequence[Lookup]) -> Sequence[FoundVerdicts]:
        """Return no verdicts."""
        return misses(lookups)

    async def keep(self, columns: Sequence[NewVerdicts]) -> None:
        """Drop the verdicts."""

    def keep_near(self, columns: Sequence[NewVerdicts]) -> None:
        """Drop the verdicts."""

    def far_part(self) -> None:
        """Return None."""

    def state(self) -> str:
        """Return `off`."""
        return "off"

    async def close(self) -> None:
        """Do nothing."""


def misses(lookups: Sequence[Lookup]) -> list[FoundVerdicts]:
    """Return what a cache without any of the verdicts returns."""
    return [[None] * len(lookup.fields) for lookup in lookups]


def read_authorities(settings: Settings) -> str | None:
    """Return the path of `cache.tls_ca`, None if not configured; raise ConfigError for a file that cannot be used."""
    name = settings.cache.tls_ca
    if name is None:
        return None
    path = settings.path(name)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (OSError, ValueError) as error:
        cause = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise settings.error(("cache", "tls_ca"), f"`{name}` cannot be used: {cause}") from None
    return str(path)
