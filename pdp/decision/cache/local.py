"""Caches in this process: bounded, in front of another, and with one flight for equal questions.

A flight: of several requests that ask the same at once, one decides and the others wait for its verdicts. The key of a
question has the bundle and the revision, so requests of two revisions never meet. A leader that fails or is cancelled
lands without verdicts: its followers then decide themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from random import uniform
from typing import Final

from pdp.decision.cache.cache import Cache, CachedVerdict, FarCache, FoundVerdicts, Lookup, NewVerdicts
from pdp.model.bounded_cache import BoundedCache

_SHORTEST_LIFE: Final = 0.8
"""Least part of the time to live. Entries end at different times, so that no rush of questions follows."""
_LONGEST_REASON: Final = 512
"""Characters of a reason that is kept, so that few entries cannot hold much memory."""


class InProcessCache:
    """Cache of at most `entries` verdicts. The oldest goes first: those of old revisions are never asked for again."""

    def __init__(self, entries: int, ttl_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._verdicts: BoundedCache[tuple[bytes, bytes], tuple[CachedVerdict, float]] = BoundedCache(
            entries, _LONGEST_REASON
        )
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


class TieredCache:
    """Cache that asks `near`, then `far` for what `near` lacks, and keeps in `near` what `far` had.

    A verdict of `far` stays in `near` until it ends in `far`.
    """

    def __init__(self, near: Cache, far: FarCache) -> None:
        self._near = near
        self._far = far

    async def find(self, lookups: Sequence[Lookup]) -> Sequence[FoundVerdicts]:
        """Return the verdicts of either cache."""
        found = [list(column) for column in await self._near.find(lookups)]
        missing = [[row for row, verdict in enumerate(column) if verdict is None] for column in found]
        asked = [at for at, rows in enumerate(missing) if rows]
        if not asked:
            return found
        rest = [Lookup(lookups[at].key, [lookups[at].fields[row] for row in missing[at]]) for at in asked]
        news: list[NewVerdicts] = []
        for at, lookup, (column, seconds) in zip(asked, rest, await self._far.find_living(rest), strict=True):
            for row, verdict in zip(missing[at], column, strict=True):
                found[at][row] = verdict
            known = {field: one for field, one in zip(lookup.fields, column, strict=True) if one is not None}
            if known:
                news.append(NewVerdicts(lookup.key, known, seconds))
        if news:
            await self._near.keep(news)
        return found

    async def keep(self, columns: Sequence[NewVerdicts]) -> None:
        """Keep verdicts in both caches."""
        await self._near.keep(columns)
        await self._far.keep(columns)

    def keep_near(self, columns: Sequence[NewVerdicts]) -> None:
        """Keep verdicts in the near cache."""
        self._near.keep_near(columns)

    def far_part(self) -> FarCache:
        """Return the far cache."""
        return self._far

    def state(self) -> str:
        """Return the condition of the far cache."""
        return self._far.state()

    async def close(self) -> None:
        """Close both caches."""
        await self._near.close()
        await self._far.close()


class Flight:
    """Question that a request decides right now. `verdicts` has what was decided, by field, after the landing."""

    __slots__ = ("fields", "key", "landed", "verdicts")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.fields: list[bytes] = []
        self.landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.verdicts: Mapping[bytes, CachedVerdict] = {}


class Flights:
    """Flights of all requests of a process."""

    def __init__(self) -> None:
        self._open: dict[tuple[bytes, bytes], Flight] = {}

    def begin(self, key: bytes, fields: Sequence[bytes]) -> tuple[Flight, dict[int, Flight]]:
        """Return a new flight for all fields that no other flight has, and the others' flights by row of `fields`.

        Every flight must end with `land`, whatever happens to the request.
        """
        flight = Flight(key)
        followed: dict[int, Flight] = {}
        for row, field in enumerate(fields):
            other = self._open.setdefault((key, field), flight)
            if other is not flight:
                followed[row] = other
            else:
                flight.fields.append(field)
        return flight, followed

    def land(self, flight: Flight, verdicts: Mapping[bytes, CachedVerdict]) -> None:
        """End a flight. Fields without a verdict are for the followers to decide."""
        if flight.landed.done():
            return
        for field in flight.fields:
            self._open.pop((flight.key, field), None)
        flight.verdicts = verdicts
        flight.landed.set_result(None)

    def count(self) -> int:
        """Return the number of resources that are decided right now."""
        return len(self._open)


async def await_landings(flights: Sequence[Flight], seconds: float) -> None:
    """Wait until flights have landed, for `seconds` at most."""
    waiting = [flight.landed for flight in flights if not flight.landed.done()]
    if waiting and seconds > 0:
        await asyncio.wait(waiting, timeout=seconds)
