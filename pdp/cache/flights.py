"""Single flight: of several requests that ask the same at once, one decides and the others wait for its verdicts.

The key of a question has the bundle and the revision, so requests of two revisions never meet. A leader that fails or
is cancelled lands without verdicts: its followers then decide themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pdp.cache.cache import CachedVerdict


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
