"""Timestamps and durations: text forms, arithmetic in nanoseconds, and calendar fields by time zone.

Each time zone is read once from the system's database. Nothing here reads the clock. Source: the CEL specification
(langdef.md), "Overflow", "Timezones", "Date/Time Functions" and "Types and Conversions".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache, lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from pdp.cel.values import INT_MAX, INT_MIN, Duration, RuleError, Timestamp

_SECOND: Final = 1_000_000_000
_UNITS: Final = {
    "h": 3600 * _SECOND,
    "m": 60 * _SECOND,
    "s": _SECOND,
    "ms": 1_000_000,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ns": 1,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = -62_135_596_800 * _SECOND
_LAST: Final = 253_402_300_800 * _SECOND - 1
"""Last nanosecond of the year 9999. `_FIRST` is the first of the year 1."""
_RFC3339: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DURATION_PART: Final = re.compile(r"(\d*)(?:\.(\d*))?(h|ms|us|µs|μs|ns|m|s)", re.ASCII)
_OFFSET: Final = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)


def build_timestamp(nanos: int) -> Timestamp:
    """Return an instant from nanoseconds since 1970. Raise RuleError outside the years 1 to 9999."""
    if not _FIRST <= nanos <= _LAST:
        raise RuleError("timestamp out of range")
    return Timestamp(nanos)


def build_duration(nanos: int) -> Duration:
    """Return a duration. Raise RuleError above 64 bits of nanoseconds, about 292 years."""
    if not INT_MIN <= nanos <= INT_MAX:
        raise RuleError("duration out of range")
    return Duration(nanos)


def parse_timestamp(text: str) -> Timestamp:
    """Compute `timestamp(string)` of an RFC 3339 text. Raise RuleError for other texts or out of range."""
    match = _RFC3339.fullmatch(text)
    if not match:
        raise RuleError("invalid timestamp")
    day, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
        since = moment - _EPOCH
    except (ValueError, OverflowError):
        raise RuleError("timestamp out of range") from None
    return build_timestamp(_to_nanos(since) + int((fraction or "0").ljust(9, "0")))


def parse_duration(text: str) -> Duration:
    """Compute `duration(string)` of a text such as `1h30m`, `-1.5s` or `0`. Raise RuleError for other texts."""
    body = text.lstrip("+-")
    if len(text) > 64 or len(text) - len(body) > 1 or not body:
        raise RuleError("invalid duration")
    total, position = 0, 0
    while body != "0" and position < len(body):
        match = _DURATION_PART.match(body, position)
        if not match or not (match[1] or match[2]):
            raise RuleError("invalid duration")
        unit, digits = _UNITS[match[3]], match[2] or ""
        total += int(match[1] or "0") * unit + int(digits or "0") * unit // 10 ** len(digits)
        position = match.end()
    return build_duration(-total if text[0] == "-" else total)


def timestamp_from_seconds(seconds: int) -> Timestamp:
    """Compute `timestamp(int)` from seconds since 1970. Raise RuleError outside the years 1 to 9999."""
    return build_timestamp(seconds * _SECOND)


def seconds_from_timestamp(instant: Timestamp) -> int:
    """Compute `int(timestamp)`, the seconds since 1970, rounded down."""
    return instant.nanos // _SECOND


def format_timestamp(instant: Timestamp) -> str:
    """Compute `string(timestamp)`, an RFC 3339 text in UTC."""
    seconds, nanos = divmod(instant.nanos, _SECOND)
    text = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    return f"{text}{_fraction(nanos)}Z"


def format_duration(span: Duration) -> str:
    """Compute `string(duration)`: seconds, with a fraction if there is one, and `s`."""
    seconds, nanos = divmod(abs(span.nanos), _SECOND)
    return f"{'-' if span.nanos < 0 else ''}{seconds}{_fraction(nanos)}s"


def _fraction(nanos: int) -> str:
    return f".{nanos:09}".rstrip("0") if nanos else ""


def _to_nanos(span: timedelta) -> int:
    return (span.days * 86_400 + span.seconds) * _SECOND + span.microseconds * 1_000


def timestamp_plus_duration(instant: Timestamp, span: Duration) -> Timestamp:
    """Compute `timestamp + duration`. Raise RuleError outside the years 1 to 9999."""
    return build_timestamp(instant.nanos + span.nanos)


def duration_plus_timestamp(span: Duration, instant: Timestamp) -> Timestamp:
    """Compute `duration + timestamp`. Raise RuleError outside the years 1 to 9999."""
    return build_timestamp(instant.nanos + span.nanos)


def add_durations(left: Duration, right: Duration) -> Duration:
    """Compute `duration + duration`. Raise RuleError on overflow."""
    return build_duration(left.nanos + right.nanos)


def subtract_timestamps(left: Timestamp, right: Timestamp) -> Duration:
    """Compute `timestamp - timestamp`. Raise RuleError on overflow."""
    return build_duration(left.nanos - right.nanos)


def timestamp_minus_duration(instant: Timestamp, span: Duration) -> Timestamp:
    """Compute `timestamp - duration`. Raise RuleError outside the years 1 to 9999."""
    return build_timestamp(instant.nanos - span.nanos)


def subtract_durations(left: Duration, right: Duration) -> Duration:
    """Compute `duration - duration`. Raise RuleError on overflow."""
    return build_duration(left.nanos - right.nanos)


@cache
def _zone_names() -> frozenset[str]:
    """Return all zone names of the database, so that an unknown name from outside costs no disk access."""
    return frozenset(available_timezones())


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo:
    """Return the zone of `UTC`, a database name or a fixed offset such as `+02:00`. Raise RuleError for others."""
    match = _OFFSET.fullmatch(name)
    if match and int(match[2]) < 24 and int(match[3]) < 60:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-offset if match[1] == "-" else offset)
    if name == "UTC":
        return UTC
    if name not in _zone_names():
        raise RuleError("unknown time zone")
    return ZoneInfo(name)


def _getter(read: Callable[[datetime], int]) -> Callable[..., int]:
    """Return the function that reads a calendar field of an instant in a time zone."""

    def get(instant: Timestamp, zone: str = "UTC") -> int:
        moment = _EPOCH + timedelta(seconds=instant.nanos // _SECOND)
        try:
            return read(moment.astimezone(_zone(zone)))
        except OverflowError:
            raise RuleError("timestamp out of range in this time zone") from None

    return get


def _milliseconds(instant: Timestamp, zone: str = "UTC") -> int:
    _zone(zone)
    return instant.nanos % _SECOND // 1_000_000


TIMESTAMP_GETTERS: Final[dict[str, Callable[..., int]]] = {
    "getFullYear": _getter(lambda t: t.year),
    "getMonth": _getter(lambda t: t.month - 1),
    "getDate": _getter(lambda t: t.day),
    "getDayOfMonth": _getter(lambda t: t.day - 1),
    "getDayOfWeek": _getter(lambda t: t.isoweekday() % 7),
    "getDayOfYear": _getter(lambda t: t.timetuple().tm_yday - 1),
    "getHours": _getter(lambda t: t.hour),
    "getMinutes": _getter(lambda t: t.minute),
    "getSeconds": _getter(lambda t: t.second),
    "getMilliseconds": _milliseconds,
}
"""Methods of a timestamp, by name. Each takes an optional time zone.

`getMonth`, `getDayOfMonth` and `getDayOfYear` count from 0. `getDayOfWeek` is 0 on Sundays.
"""


def _divide(nanos: int, unit: int) -> int:
    """Divide, rounding towards zero."""
    return -(-nanos // unit) if nanos < 0 else nanos // unit


DURATION_GETTERS: Final[dict[str, Callable[[Duration], int]]] = {
    "getHours": lambda span: _divide(span.nanos, 3600 * _SECOND),
    "getMinutes": lambda span: _divide(span.nanos, 60 * _SECOND),
    "getSeconds": lambda span: _divide(span.nanos, _SECOND),
    "getMilliseconds": lambda span: (
        _divide(span.nanos, 1_000_000) % 1000 if span.nanos >= 0 else -(_divide(-span.nanos, 1_000_000) % 1000)
    ),
}
"""Methods of a duration, by name. `getMilliseconds` is the part below one second, the others are totals."""
