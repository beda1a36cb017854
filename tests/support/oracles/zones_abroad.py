"""Moments at which clocks of zones may differ between engines, with the clocks of the system that the service reads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from pdp.engines.row_access.portable_times import old_zone_names, zone_names

YEARS: Final = range(1970, 2038)
"""Years in which all zones have the same clocks in all engines."""
_OLD: Final = range(1600, 2100, 7)
"""Years of the zones with data of their own."""
_STEP: Final = 14 * 86_400
_NEAR: Final = (-86_400, -3_600, -1, 0, 1_800, 3_600, 86_400)
"""Seconds beside a change of clocks: another rule changes them an hour or a day apart."""


class Sample(NamedTuple):
    """Zone, moment in seconds since 1970, and the seconds that clocks are ahead of UTC."""

    zone: str
    moment: int
    offset: int


def samples() -> Iterator[Sample]:
    """Yield samples of all zones: some in each season, and around each change of clocks."""
    for name in sorted(zone_names()):
        zone = ZoneInfo(name)
        regular = [
            (moment, _offset(zone, moment)) for moment in range(_seconds(YEARS.start), _seconds(YEARS.stop), _STEP)
        ]
        yield from (Sample(name, *one) for one in regular[::7])
        changes = [_change(zone, one[0], other[0]) for one, other in pairwise(regular) if one[1] != other[1]]
        further = {change + near for change in changes for near in _NEAR}
        if name in old_zone_names():
            further |= {_seconds(year) + 86_400 * day for year in _OLD for day in (40, 220)}
        yield from (Sample(name, moment, _offset(zone, moment)) for moment in sorted(further))


def _seconds(year: int) -> int:
    return int(dt.datetime(year, 1, 1, tzinfo=dt.UTC).timestamp())


def _offset(zone: ZoneInfo, moment: int) -> int:
    offset = dt.datetime.fromtimestamp(moment, zone).utcoffset() or dt.timedelta()
    return offset.days * 86_400 + offset.seconds


def _change(zone: ZoneInfo, low: int, high: int) -> int:
    """Return the first moment of another offset between two moments."""
    before = _offset(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
    return high
