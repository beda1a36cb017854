"""Days and times in a filter or mask, written so that another engine has the author's value.

A `timestamp` here has no zone: DATETIME of BigQuery, TIMESTAMP of Trino and DuckDB, TIMESTAMP_NTZ of Spark. An
`instant` is a moment, shown in the zone of the session. Nothing that depends on the session is printed: no literal of
an instant without a zone, and no day of an instant without a zone. Tests run DuckDB, Spark 4.1.4, Trino 476 and
GoogleSQL's evaluator of 2024.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import cache
from pathlib import Path
from typing import Any, Final
from zoneinfo import TZPATH, ZoneInfo, available_timezones

from sqlglot import exp

from pdp.engines.row_access.portable_values import (
    WIDEST,
    Compile,
    Kind,
    PortableValue,
    PortableValues,
    check_type,
    converted,
    date_of,
    function,
    of_kind,
)
from pdp.engines.row_access.trino import UntranslatableSql

_T: Final = exp.DataType.Type
_UNITS: Final = {"YEAR": (-9_999_999, 9_999_999), "QUARTER": (1, 4), "MONTH": (1, 12), "DAY": (1, 31)}
_CLOCK: Final = {"HOUR": (0, 23), "MINUTE": (0, 59), "SECOND": (0, 59)}
_TIME_KINDS: Final[dict[Any, Kind]] = {
    **dict.fromkeys((_T.DATETIME, _T.TIMESTAMP, _T.TIMESTAMPNTZ), "timestamp"),
    **dict.fromkeys((_T.TIMESTAMPTZ, _T.TIMESTAMPLTZ), "instant"),
}
TIME_TYPES: Final = frozenset(_TIME_KINDS)
"""Types of timestamps, as the dialect of an author names them."""
_TYPES: Final = {
    ("timestamp", "bigquery"): "DATETIME", ("timestamp", "trino"): "TIMESTAMP(6)",
    ("timestamp", "spark"): "TIMESTAMP_NTZ", ("timestamp", "duckdb"): "TIMESTAMP", ("instant", "bigquery"): "TIMESTAMP",
    ("instant", "trino"): "TIMESTAMP(6) WITH TIME ZONE", ("instant", "spark"): "TIMESTAMP_LTZ",
    ("instant", "duckdb"): "TIMESTAMPTZ",
}  # fmt: skip
_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:([ T])(\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?)?"
    r"(?: (UTC)|(Z)|([+-]\d\d)(:\d\d)?| (\w+(?:/[\w+-]+)+))?",
    re.ASCII,
)
_DEFAULT_DIGITS: Final = {"trino": 3}
"""Digits of a second that CAST to a type without a number of digits keeps; 6 elsewhere."""
_ZONED_YEARS: Final = range(1970, 2038)
"""Years in which engines know the clocks of a zone alike."""
_REGIONS: Final = (
    "Africa/",
    "America/",
    "Antarctica/",
    "Asia/",
    "Atlantic/",
    "Australia/",
    "Europe/",
    "Indian/",
    "Pacific/",
)
_DISPUTED: Final = frozenset(
    """Africa/Casablanca Africa/El_Aaiun America/Bogota America/Coyhaique America/Edmonton America/Ensenada
    America/Inuvik America/Santa_Isabel America/Tijuana America/Vancouver America/Yellowknife Asia/Tehran
    Europe/Chisinau Europe/Tiraspol""".split()  # noqa: SIM905
)
"""Zones on whose clocks the databases of engines differ. Tests ask DuckDB, Spark and Trino about all others."""
_FIRST: Final = datetime(1, 1, 1, 0, 1)  # noqa: DTZ001  a time on any clock
_LAST: Final = datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001
"""First and last time of BigQuery, with a minute for clocks that had seconds of their own."""
_TODAYS: Final = (date(1970, 1, 2).toordinal(), date(9999, 1, 1).toordinal())
"""Bounds of today's date."""
_WIDEST_OFFSET: Final = timedelta(hours=14)
_NO_ZONE: Final = "has the zone of the session: write a zone, such as '2024-01-31 12:00:00+00:00'"
_NO_DAY: Final = (
    "the day of a moment depends on the zone of the session: write CAST(.. AT TIME ZONE 'Europe/Berlin' AS DATE), "
    "or DATE(.., 'Europe/Berlin') in BigQuery"
)
NO_TODAY: Final = (
    "`CURRENT_DATE` depends on the zone of the session: write CURRENT_DATE('Europe/Berlin') in BigQuery, "
    "CAST(convert_timezone('Europe/Berlin', current_timestamp()) AS DATE) in Spark, "
    "CAST(current_timestamp AT TIME ZONE 'Europe/Berlin' AS DATE) elsewhere"
)


@cache
def zone_names() -> frozenset[str]:
    """Return the zones with the same clocks in all engines since 1970."""
    return frozenset(name for name in available_timezones() if name.startswith(_REGIONS)) - _DISPUTED | {"UTC"}


@cache
def old_zone_names() -> frozenset[str]:
    """Return the zones with data of their own, not other names: engines know the clocks before 1970 alike."""
    files = [Path(folder, "zone1970.tab") for folder in TZPATH]
    file = next((file for file in files if file.is_file()), None)
    lines = file.read_text("utf-8").splitlines() if file else []
    return frozenset(line.split("\t")[2] for line in lines if not line.startswith("#")) & zone_names() | {"UTC"}


def _zone_of(node: exp.Expr | None) -> str:
    """Return the name of a zone of all engines; raise UntranslatableSql."""
    if not isinstance(node, exp.Literal) or not node.is_string or node.name not in zone_names():
        raise UntranslatableSql("a zone is a literal such as 'Europe/Berlin' or 'UTC', whose clocks engines know alike")
    return node.name


def day_of(values: PortableValues, value: PortableValue) -> PortableValue:
    """Return the day of a date, of a timestamp, or of a literal; raise UntranslatableSql."""
    if value.kind == "date":
        return value
    if value.kind == "instant":
        raise UntranslatableSql(_NO_DAY)
    if value.kind == "timestamp":
        return PortableValue(converted(value.node, _T.DATE), "date")
    found = date_of(value.text) if value.text is not None else None
    if found is None:
        raise UntranslatableSql("`DATE` takes a literal such as '2024-01-31'")
    day = found.toordinal()
    return PortableValue(converted(exp.Literal.string(found.isoformat()), _T.DATE), "date", day, day)


def time_of(values: PortableValues, value: PortableValue, to: exp.DataType) -> PortableValue:
    """Return the literal of a timestamp or instant; raise UntranslatableSql."""
    # the parser names the type of Spark's function TIMESTAMP as if that had no zone
    kind = "instant" if values.source == "spark" and to.this == _T.TIMESTAMP else _TIME_KINDS[to.this]
    if value.kind == kind and not to.expressions:
        return value
    if value.text is None:
        raise UntranslatableSql("`TIMESTAMP` takes a literal: write the value as it is")
    digits = int(to.expressions[0].name) if to.expressions else _DEFAULT_DIGITS.get(values.source, 6)
    return _literal(values, kind, _moment_of(value.text, values.source, digits))


def _moment_of(text: str, source: str, digits: int = 6, zone: str = "") -> datetime:
    """Return the time of a text, in UTC for a text with a zone; raise UntranslatableSql if engines read others."""
    found = _MOMENT.fullmatch(text)
    if found is None or (source == "trino" and (found[2] == "T" or (found[7] and not found[8]))):
        raise UntranslatableSql("a time is written as '2024-01-31 12:00:00', with digits of seconds and a zone behind")
    if len((found[4] or "").rstrip("0")) > digits:
        raise UntranslatableSql(f"a time has more than {digits} digits of a second: write the type with its digits")
    name = "UTC" if found[5] or found[6] else found[9] or zone
    if not found[3] and (name or found[7]):
        raise UntranslatableSql("a day beside a zone is read in two ways: write a time")
    try:
        moment = datetime.fromisoformat(f"{found[1]} {found[3] or '00:00:00'}.{(found[4] or '').ljust(6, '0')}")
    except ValueError:
        raise UntranslatableSql("a time is no time of the calendar") from None
    if not name and not found[7]:
        return moment
    return _in_utc(moment, _offset(found[7], found[8] or ":00") if found[7] else _clock(moment, name))


def _offset(hours: str, minutes: str) -> tzinfo:
    size = timedelta(hours=int(hours[1:]), minutes=int(minutes[1:]))
    if size > _WIDEST_OFFSET or int(minutes[1:]) > 59:
        raise UntranslatableSql("an offset from UTC is at most 14:00")
    return timezone(-size if hours[0] == "-" else size)


def _clock(moment: datetime, name: str) -> tzinfo:
    """Return the zone of a name for a time that the clocks show once; raise UntranslatableSql."""
    if name == "UTC":
        return UTC
    zone = ZoneInfo(_zone_of(exp.Literal.string(name)))
    if moment.year not in _ZONED_YEARS:
        raise UntranslatableSql("clocks of other years differ between engines: write the offset from UTC")
    if zone.utcoffset(moment) != zone.utcoffset(moment.replace(fold=1)):
        raise UntranslatableSql(f"the clocks of `{name}` show this time twice or never: write the offset from UTC")
    return zone


def _in_utc(moment: datetime, zone: tzinfo) -> datetime:
    try:
        return moment.replace(tzinfo=zone).astimezone(UTC)
    except OverflowError:
        raise UntranslatableSql("a time is out of range in UTC") from None


def _literal(values: PortableValues, kind: Kind, moment: datetime) -> PortableValue:
    """Return the literal of a time in the target; raise UntranslatableSql unless zone and type fit."""
    if kind == "instant" and moment.tzinfo is None:
        raise UntranslatableSql(f"a time without a zone {_NO_ZONE}")
    if kind == "timestamp" and moment.tzinfo is not None:
        raise UntranslatableSql("a time with a zone stands for a type without one, which engines read in two ways")
    text = moment.replace(tzinfo=None).isoformat(" ") + (_zone_text(values.target) if kind == "instant" else "")
    type = exp.DataType.build(_TYPES[kind, values.target], dialect=values.target)
    return PortableValue(exp.Cast(this=exp.Literal.string(text), to=type), kind)


def _zone_text(target: str) -> str:
    return " UTC" if target == "trino" else "+00:00"


def fit_times(values: PortableValues, *sides: exp.Expr) -> None:
    """Write days and texts beside a timestamp as timestamps, in their place; raise UntranslatableSql.

    Spark compares the texts of a list as texts where ANSI is off, and BigQuery a day in a way of its own.
    """
    found = [values.of(side) for side in sides]
    if not all(isinstance(value.node.unnest(), exp.Column) for value in found):  # one type compares alike everywhere
        for value in found:
            check_type(values, value)
    kind = next((value.kind for value in found if value.kind in ("timestamp", "instant")), None)
    for side, value in zip(sides, found, strict=True) if kind is not None else ():
        if value.text is not None:
            if values.source == "trino" or (values.source == "spark" and isinstance(side.parent, exp.In)):
                raise UntranslatableSql("a text beside a time is read in two ways: write TIMESTAMP '..'")
            moment = _moment_of(value.text, values.source)
        elif value.kind == "date" and value.low == value.high and kind == "timestamp" and values.source != "bigquery":
            moment = datetime.combine(date.fromordinal(value.low), datetime.min.time())
        else:
            continue
        side.replace(values.note(_literal(values, "timestamp" if kind == "timestamp" else "instant", moment)))


def _date(values: PortableValues, node: exp.Date | exp.TsOrDsToDate) -> PortableValue:
    if node.args.get("expressions") or node.args.get("format"):
        raise UntranslatableSql("`DATE` takes one value")
    value, zone = values.of(node.this), node.args.get("zone")
    return (
        day_of(values, value) if zone is None else _day_in(values, of_kind(values, node.this, "DATE", "instant"), zone)
    )


def _moment(values: PortableValues, node: exp.Timestamp) -> PortableValue:
    """Return `TIMESTAMP('..', 'zone')` of BigQuery."""
    text, zone = values.of(node.this).text, node.args.get("zone")
    if values.source != "bigquery" or text is None:
        raise UntranslatableSql("`TIMESTAMP` takes a literal: write the value as it is")
    return _literal(values, "instant", _moment_of(text, values.source, zone=_zone_of(zone) if zone is not None else ""))


def _now(values: PortableValues, node: exp.CurrentTimestamp) -> PortableValue:
    if node.args.get("this") is not None:
        raise UntranslatableSql("`CURRENT_TIMESTAMP` takes no digits")
    return PortableValue(node, "instant", is_constant=True)


def _today(values: PortableValues, node: exp.CurrentDate) -> PortableValue:
    if node.this is None:
        raise UntranslatableSql(NO_TODAY)
    return _day_in(values, PortableValue(exp.CurrentTimestamp(), "instant", is_constant=True), node.this)


def _zoned(values: PortableValues, node: exp.AtTimeZone) -> PortableValue:
    """Return the day of an instant in a zone, within a cast to DATE alone; raise UntranslatableSql."""
    if values.source == "spark":
        raise UntranslatableSql("`FROM_UTC_TIMESTAMP` depends on the zone of the session: write convert_timezone")
    _check_day(node)
    return _day_in(values, of_kind(values, node.this, "AT TIME ZONE", "instant"), node.args["zone"])


def _converted_zone(values: PortableValues, node: exp.ConvertTimezone) -> PortableValue:
    """Return today's date in a zone, of Spark: other moments pass through the repeating clocks of the session."""
    if node.args.get("source_tz") is not None or not isinstance(node.args["timestamp"], exp.CurrentTimestamp):
        raise UntranslatableSql("`CONVERT_TIMEZONE` takes a zone and current_timestamp() alone")
    _check_day(node)
    return _day_in(values, values.of(node.args["timestamp"]), node.args["target_tz"])


def _check_day(node: exp.Expr) -> None:
    """Raise UntranslatableSql unless the day alone counts of a time in a zone."""
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    is_cast = isinstance(parent, exp.Cast) and parent.to.this == _T.DATE
    is_part = isinstance(parent, exp.Extract) and parent.this.name.upper() == "DATE"
    if not (is_cast or is_part or isinstance(parent, (exp.Date, exp.TsOrDsToDate))):
        raise UntranslatableSql("a time in a zone stands in a cast to DATE alone: write CAST(.. AS DATE)")


def _day_in(values: PortableValues, value: PortableValue, zone: exp.Expr) -> PortableValue:
    """Return the day of an instant in a zone, whatever the zone of the session is; raise UntranslatableSql."""
    name = _zone_of(zone)
    if name not in old_zone_names() and not value.is_constant:
        raise UntranslatableSql(f"engines differ on the clocks of `{name}` before 1970: write the zone that it follows")
    place = exp.Literal.string(name)
    ends = _TODAYS if value.is_constant else (-WIDEST, WIDEST)
    if values.target == "trino":
        return PortableValue(converted(function("AT_TIMEZONE", value.node, place), _T.DATE), "date", *ends)
    if values.target == "duckdb":
        return PortableValue(converted(function("TIMEZONE", place, value.node), _T.DATE), "date", *ends)
    if values.target == "spark":
        seconds = function("UNIX_SECONDS", function("FROM_UTC_TIMESTAMP", value.node, place))
        size = exp.Literal.number(86400)
        midnight = exp.Paren(this=exp.Sub(this=seconds, expression=function("PMOD", seconds.copy(), size)))
        days = converted(exp.IntDiv(this=midnight, expression=size.copy()), _T.INT)
        return PortableValue(function("DATE_FROM_UNIX_DATE", days), "date", *ends)
    if value.is_constant or name == "UTC":
        return PortableValue(function("DATE", value.node, place), "date", *ends)
    return PortableValue(function("DATE", _within_days(values, value, name), place), "date", is_clamped=True)


def _within_days(values: PortableValues, value: PortableValue, zone: str) -> exp.Expr:
    """Return an instant with a day of BigQuery in a zone: another day fails, with the value in the error."""
    ends = []
    for end, is_first in ((_FIRST, True), (_LAST, False)):
        offset = ZoneInfo(zone).utcoffset(end) or timedelta()
        utc = end - offset if is_first == (offset < timedelta()) else end
        ends.append(_literal(values, "instant", utc.replace(tzinfo=UTC)).node)
    return function("LEAST", function("GREATEST", value.node, ends[0]), ends[1])


def _extract(values: PortableValues, node: exp.Extract) -> PortableValue:
    unit = node.this.name.upper()
    if unit == "DATE" and values.source == "bigquery":
        return day_of(values, values.of(node.expression))
    if unit == "SECOND" and values.source == "spark":
        raise UntranslatableSql("`EXTRACT` of SECOND has digits behind the point in Spark: write SECOND(..)")
    return _field(values, unit, node.expression)


def _part_of_date(values: PortableValues, node: exp.Func) -> PortableValue:
    return _field(values, type(node).__name__.upper(), node.this)


def _field(values: PortableValues, unit: str, node: exp.Expr) -> PortableValue:
    value = values.of(node)
    if value.kind == "instant":
        raise UntranslatableSql(f"`{unit}` of a moment depends on the zone of the session: write the day in a zone")
    units = {**_UNITS, **_CLOCK} if value.kind == "timestamp" else _UNITS
    if unit not in units:
        raise UntranslatableSql(f"`EXTRACT` of {unit} differs: write YEAR, QUARTER, MONTH or DAY")
    value = value if value.kind == "timestamp" else of_kind(values, node, "EXTRACT", "date")
    if unit == "SECOND" and values.target == "spark":
        return PortableValue(function("SECOND", value.node), "integer", *units[unit], bits=32)
    return PortableValue(exp.Extract(this=exp.var(unit), expression=value.node), "integer", *units[unit], bits=32)


def _truncated(values: PortableValues, node: exp.DateTrunc | exp.TimestampTrunc | exp.DatetimeTrunc) -> PortableValue:
    unit = str(node.args["unit"].name).upper()
    unit = {"MM": "MONTH", "MON": "MONTH", "YYYY": "YEAR", "YY": "YEAR"}.get(unit, unit)
    value = values.of(node.this)
    units = ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR") if value.kind == "timestamp" else ("YEAR", "QUARTER", "MONTH")
    if unit not in units or node.args.get("zone"):
        raise UntranslatableSql(f"`DATE_TRUNC` to {unit} differs: write YEAR, QUARTER or MONTH")
    if value.kind == "timestamp":
        return _truncated_time(values, value, unit, is_day=isinstance(node, exp.DateTrunc))
    return _first_of(values, of_kind(values, node.this, "DATE_TRUNC", "date"), unit)


def _truncated_time(values: PortableValues, value: PortableValue, unit: str, *, is_day: bool) -> PortableValue:
    """Return a timestamp without its smaller parts; raise UntranslatableSql."""
    if values.source == "spark":
        if is_day:
            return _first_of(values, day_of(values, value), unit)
        raise UntranslatableSql("`DATE_TRUNC` of Spark has the zone of the session: write TRUNC(CAST(.. AS DATE), ..)")
    if values.target == "bigquery":
        return PortableValue(function("DATETIME_TRUNC", value.node, exp.var(unit)), "timestamp")
    if values.target != "spark":
        return PortableValue(function("DATE_TRUNC", exp.Literal.string(unit.lower()), value.node), "timestamp")
    day = day_of(values, value)
    first = day if unit in ("DAY", "HOUR") else _first_of(values, day, unit)
    found: exp.Expr = converted(first.node, _T.TIMESTAMPNTZ)
    if unit == "HOUR":
        hours = function("MAKE_DT_INTERVAL", exp.Literal.number(0), function("HOUR", value.node.copy()))
        found = exp.Paren(this=exp.Add(this=found, expression=hours))
    return PortableValue(found, "timestamp")


def _first_of(values: PortableValues, value: PortableValue, unit: str) -> PortableValue:
    """Return the first day of the year, quarter or month of a date."""
    if unit not in ("YEAR", "QUARTER", "MONTH"):
        raise UntranslatableSql(f"`TRUNC` to {unit} differs: write YEAR, QUARTER or MONTH")
    if values.target == "bigquery":
        return PortableValue(function("DATE_TRUNC", value.node, exp.var(unit)), "date")
    if values.target == "spark":
        return PortableValue(function("TRUNC", value.node, exp.Literal.string(unit)), "date")
    call = function("DATE_TRUNC", exp.Literal.string(unit.lower()), value.node)
    return PortableValue(converted(call, _T.DATE) if values.target == "duckdb" else call, "date")


TIMES: Final[dict[type, Compile]] = {
    exp.Date: _date,
    exp.TsOrDsToDate: _date,
    exp.Timestamp: _moment,
    exp.CurrentTimestamp: _now,
    exp.CurrentDate: _today,
    exp.AtTimeZone: _zoned,
    exp.ConvertTimezone: _converted_zone,
    exp.Extract: _extract,
    **dict.fromkeys((exp.Year, exp.Quarter, exp.Month, exp.Day, exp.Hour, exp.Minute, exp.Second), _part_of_date),
    **dict.fromkeys((exp.DateTrunc, exp.TimestampTrunc, exp.DatetimeTrunc), _truncated),
}
"""Kind of expression -> its compiler."""
