"""Timestamps and durations: RFC 3339 and Go's duration text, arithmetic in nanoseconds, calendar fields by time zone.

Reads the time zone database, once per zone; never the clock.
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
_RFC3339: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DURATION_PART: Final = re.compile(r"(\d*)(?:\.(\d*))?(h|ms|us|µs|μs|ns|m|s)", re.ASCII)
_OFFSET: Final = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)


def timestamp(nanos: int) -> Timestamp:
    """An instant of the years 1 to 9999, else RuleError."""
    if not _FIRST <= nanos <= _LAST:
        raise RuleError("timestamp out of range")
    return Timestamp(nanos)


def duration(nanos: int) -> Duration:
    """A span within 64 bits of nanoseconds, about 292 years, else RuleError."""
    if not INT_MIN <= nanos <= INT_MAX:
        raise RuleError("duration out of range")
    return Duration(nanos)


def parse_timestamp(text: str) -> Timestamp:
    match = _RFC3339.fullmatch(text)
    if not match:
        raise RuleError(f"invalid timestamp `{text:.40}`")
    day, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
        since = moment - _EPOCH
    except (ValueError, OverflowError):
        raise RuleError(f"timestamp out of range `{text:.40}`") from None
    return timestamp(_nanos(since) + int((fraction or "0").ljust(9, "0")))


def parse_duration(text: str) -> Duration:
    """Go's syntax: `1h30m`, `-1.5s`, `0`."""
    body = text.lstrip("+-")
    if len(text) > 64 or len(text) - len(body) > 1 or not body:
        raise RuleError(f"invalid duration `{text:.40}`")
    total, position = 0, 0
    while body != "0" and position < len(body):
        match = _DURATION_PART.match(body, position)
        if not match or not (match[1] or match[2]):
            raise RuleError(f"invalid duration `{text:.40}`")
        unit, digits = _UNITS[match[3]], match[2] or ""
        total += int(match[1] or "0") * unit + int(digits or "0") * unit // 10 ** len(digits)
        position = match.end()
    return duration(-total if text[0] == "-" else total)


def from_seconds(seconds: int) -> Timestamp:
    return timestamp(seconds * _SECOND)


def to_seconds(instant: Timestamp) -> int:
    return instant.nanos // _SECOND


def show_timestamp(instant: Timestamp) -> str:
    seconds, nanos = divmod(instant.nanos, _SECOND)
    text = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    return f"{text}{_fraction(nanos)}Z"


def show_duration(span: Duration) -> str:
    seconds, nanos = divmod(abs(span.nanos), _SECOND)
    return f"{'-' if span.nanos < 0 else ''}{seconds}{_fraction(nanos)}s"


def _fraction(nanos: int) -> str:
    return f".{nanos:09}".rstrip("0") if nanos else ""


def _nanos(span: timedelta) -> int:
    return (span.days * 86_400 + span.seconds) * _SECOND + span.microseconds * 1_000


def add_time(instant: Timestamp, span: Duration) -> Timestamp:
    return timestamp(instant.nanos + span.nanos)


def add_to_span(span: Duration, instant: Timestamp) -> Timestamp:
    return timestamp(instant.nanos + span.nanos)


def add_spans(left: Duration, right: Duration) -> Duration:
    return duration(left.nanos + right.nanos)


def between(left: Timestamp, right: Timestamp) -> Duration:
    return duration(left.nanos - right.nanos)


def before(instant: Timestamp, span: Duration) -> Timestamp:
    return timestamp(instant.nanos - span.nanos)


def subtract_spans(left: Duration, right: Duration) -> Duration:
    return duration(left.nanos - right.nanos)


@cache
def _zone_names() -> frozenset[str]:
    """What the database knows: a name that it does not know costs no look on the disk."""
    return frozenset(available_timezones())


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo:
    match = _OFFSET.fullmatch(name)
    if match and int(match[2]) < 24 and int(match[3]) < 60:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-offset if match[1] == "-" else offset)
    if name == "UTC":
        return UTC
    if name not in _zone_names():
        raise RuleError(f"unknown time zone `{name:.40}`")
    return ZoneInfo(name)


def _part(read: Callable[[datetime], int]) -> Callable[..., int]:
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


TIMESTAMP_PARTS: Final[dict[str, Callable[..., int]]] = {
    "getFullYear": _part(lambda t: t.year),
    "getMonth": _part(lambda t: t.month - 1),
    "getDate": _part(lambda t: t.day),
    "getDayOfMonth": _part(lambda t: t.day - 1),
    "getDayOfWeek": _part(lambda t: t.isoweekday() % 7),
    "getDayOfYear": _part(lambda t: t.timetuple().tm_yday - 1),
    "getHours": _part(lambda t: t.hour),
    "getMinutes": _part(lambda t: t.minute),
    "getSeconds": _part(lambda t: t.second),
    "getMilliseconds": _milliseconds,
}


def _toward_zero(nanos: int, unit: int) -> int:
    return -(-nanos // unit) if nanos < 0 else nanos // unit


DURATION_PARTS: Final[dict[str, Callable[[Duration], int]]] = {
    "getHours": lambda span: _toward_zero(span.nanos, 3600 * _SECOND),
    "getMinutes": lambda span: _toward_zero(span.nanos, 60 * _SECOND),
    "getSeconds": lambda span: _toward_zero(span.nanos, _SECOND),
    "getMilliseconds": lambda span: (
        _toward_zero(span.nanos, 1_000_000) % 1000
        if span.nanos >= 0
        else -(_toward_zero(-span.nanos, 1_000_000) % 1000)
    ),
}
