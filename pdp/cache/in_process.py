"""In-process cache: bounded, without I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import uniform
from typing import Final

from pdp.cache.cache import CachedVerdict, FoundVerdicts, Lookup, NewVerdicts
from pdp.model.memo import Memo

_SHORTEST_LIFE: Final = 0.8
"""Least part of the time to live. Entries end at different times, so that no rush of questions follows."""
_LONGEST_REASON: Final = 512
"""Characters of a reason that is kept, so that few entries cannot hold much memory."""


class InProcessCache:
    """Cache of at most `entries` verdicts. The oldest goes first: those of old revisions are never asked for again."""

    def __init__(self, entries: int, ttl_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._verdicts: Memo[tuple[bytes, bytes], tuple[CachedVerdict, float]] = Memo(entries, _LONGEST_REASON)
        self._ttl = ttl_seconds
        self._clock = clock

    async def find(self, lookups: Sequence[Lookup]) -> Sequence[FoundVerdicts]:
        """Return the verdicts that are kept and have not ended."""
        now = self._clock()
        return [[self._at(lookup.key, field, now) for field in lookup.fields] for lookup in lookups]

    async def keep(self, columns: Sequence[NewVerdicts]) -> None:
        """Keep verdicts as `keep_near` does."""
        self.keep_near(columns)

    def keep_near(self, columns: Sequence[NewVerdicts]) -> None:
        """Keep verdicts, each for the time to live or up to a fifth less, or to the end of its column's life."""
        now = self._clock()
        for column in columns:
            life = self._ttl * uniform(_SHORTEST_LIFE, 1)  # noqa: S311  no secret
            end = now + (life if column.seconds is None else min(life, column.seconds))
            for field, verdict in column.verdicts.items():
                self._verdicts.keep((column.key, field), (verdict, end), len(verdict.by or ""))

    def far_part(self) -> None:
        """Return None."""

    def state(self) -> str:
        """Return `ok`: memory does not fail."""
        return "ok"

    async def close(self) -> None:
        """Forget everything."""
        self._verdicts.clear()

    def count(self) -> int:
        """Return the number of verdicts that are kept."""
        return len(self._verdicts)

    def _at(self, key: bytes, field: bytes, now: float) -> CachedVerdict | None:
        found = self._verdicts.get((key, field))
        return found[0] if found is not None and now < found[1] else None
