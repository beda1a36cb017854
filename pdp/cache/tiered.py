"""Two caches as one: a near one that is asked first, and a far one for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from pdp.cache.cache import Cache, FarCache, FoundVerdicts, Lookup, NewVerdicts


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
