"""Filters with times, today's date and casts, what each dialect means by them, and the rows to try them on.

The meanings are plain Python. DuckDB, Spark 4.1.4, Trino 476 and GoogleSQL's evaluator were asked first, and tests run
the forms there.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

from support.oracles.functions_abroad import DIALECTS, Form, Meaning, Oracle, Row, by_dialect, of

ZONES: Final = ("America/New_York", "Europe/Berlin")
"""Zones of the sessions: each has a gap and a repeated hour in the rows."""
TYPES: Final = {
    "id": "INTEGER", "ts": "DATETIME", "seen": "TIMESTAMP WITH TIME ZONE", "day": "DATE",
}  # fmt: skip
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "duckdb": {"ts": "TIMESTAMP", "seen": "TIMESTAMPTZ"},
    "spark": {"ts": "TIMESTAMP_NTZ", "seen": "TIMESTAMP_LTZ"},
    "trino": {"ts": "TIMESTAMP(6)", "seen": "TIMESTAMP(6) WITH TIME ZONE"},
    "bigquery": {"id": "INT64", "ts": "DATETIME", "seen": "TIMESTAMP"},
}
"""Types of the columns in an engine, where they have another name."""
STAMPS: Final = [
    None, "2024-01-31 12:00:00.000000", "2024-01-31 12:00:00.000001", "2024-01-31 00:00:00.000000", "2024-01-30 23:59:59.999999",
    "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00.000000", "2024-03-10 02:30:00.000000", "2024-03-31 02:30:00.000000",
    "2024-10-27 02:30:00.000000", "2024-11-03 01:30:00.000000", "1582-10-10 05:00:00.000000", "0001-01-01 00:00:00.000000",
    "0001-01-01 23:00:00.000000", "9999-12-31 23:59:59.999999", "2024-02-29 23:15:59.900000", "2024-12-31 23:00:00.000000",
    "2024-01-30 22:59:59.999999", "2024-01-30 23:00:00.000000", "2024-03-30 23:00:00.000000", "2024-03-31 00:59:59.000000",
    "2024-03-31 01:00:00.000000", "2024-03-31 21:59:59.999999", "2024-03-31 22:00:00.000000", "2024-10-26 22:00:00.000000",
    "2024-10-27 00:30:00.000000", "2024-10-27 01:30:00.000000", "2024-10-27 23:00:00.000000", "2024-03-10 06:59:59.999999",
    "2024-03-10 07:00:00.000000", "2024-11-03 05:30:00.000000", "2024-11-03 06:30:00.000000",
]  # fmt: skip
DAYS: Final = [None, "2024-01-31", "2024-01-30", "1970-01-01", "0001-01-01", "2020-02-29", "2999-12-31", "9999-12-31"]


def rows() -> list[dict[str, Any]]:
    """Return rows with each time as a timestamp and as a moment in UTC, beside changing days."""
    days = itertools.cycle(DAYS)
    return [
        {"id": at, "ts": stamp, "seen": STAMPS[(at * 5 + 2) % len(STAMPS)], "day": next(days)}
        for at, stamp in enumerate(STAMPS + STAMPS[:5])
    ]


def time_of(text: str) -> dt.datetime:
    """Return a time without a zone."""
    return dt.datetime.fromisoformat(text)


def day_in(zone: str) -> Callable[[str], str]:
    """Return a function to the day of a moment in a zone, as ISO's text: also of the day after Python's last."""

    def day(text: str) -> str:
        moment = time_of(text)
        offset = ZoneInfo(zone).utcoffset(
            moment.replace(tzinfo=dt.UTC).astimezone(ZoneInfo(zone)) if 1 < moment.year < 9999 else moment
        )
        try:
            return (moment + (offset or dt.timedelta())).date().isoformat()
        except OverflowError:
            return "9999-12-31+" if moment.year > 1 else "0000-12-31"

    return day


def every(text: str) -> Mapping[str, str]:
    """Return the texts of a form that all dialects but Spark and BigQuery write alike, with their names of the type."""
    return by_dialect(
        bigquery=text.replace("TIMESTAMP '", "DATETIME '"), trino=text, spark=text.replace("TIMESTAMP '", "TIMESTAMP_NTZ '"),
        duckdb=text,
    )  # fmt: skip


def moments(text: str) -> Mapping[str, str]:
    """Return the texts of a form with literals of moments."""
    return {d: text.replace("TIMESTAMP '", "TIMESTAMPTZ '") if d == "duckdb" else text for d in DIALECTS}


def day_form(zone: str, rest: str) -> Mapping[str, str]:
    """Return the texts of a form with the day of a moment in a zone. Spark has no such form."""
    cast = f"CAST(seen AT TIME ZONE '{zone}' AS DATE) {rest}"
    return {"bigquery": f"DATE(seen, '{zone}') {rest}", "trino": cast, "duckdb": cast}


def today(zone: str) -> dict[str, str]:
    """Return today's date in a zone, by dialect."""
    cast = f"CAST(current_timestamp AT TIME ZONE '{zone}' AS DATE)"
    return {
        "bigquery": f"CURRENT_DATE('{zone}')", "trino": cast, "duckdb": cast,
        "spark": f"CAST(convert_timezone('{zone}', current_timestamp()) AS DATE)",
    }  # fmt: skip


def always(row: Row, meaning: Meaning) -> bool:
    """Return TRUE for each row."""
    return True


def in_zone(zone: str, test: Callable[[str], bool]) -> Oracle:
    """Return an oracle of the day of a moment."""
    return of("seen", lambda text: test(day_in(zone)(text)))


_NOON: Final = "2024-01-31 12:00:00.000000"
_EAST, _WEST = today("Pacific/Kiritimati"), today("Pacific/Pago_Pago")
_BERLIN: Final = today("Europe/Berlin")
FORMS: Final = [
    Form("`ts >= TIMESTAMP '..'`", every("ts >= TIMESTAMP '2024-01-31 12:00:00'"), of("ts", lambda t: t >= _NOON)),
    Form("`ts = TIMESTAMP '..'`", every("NOT ts <> TIMESTAMP '2024-01-31 12:00:00.000001'"), of("ts", lambda t: t == "2024-01-31 12:00:00.000001")),
    Form("`ts IN (TIMESTAMP ..)`", every("ts IN (TIMESTAMP '2024-03-10 02:30:00', TIMESTAMP '2024-03-31 02:30:00')"), of("ts", lambda t: t in ("2024-03-10 02:30:00.000000", "2024-03-31 02:30:00.000000"))),
    Form("`ts BETWEEN TIMESTAMP ..`", every("ts NOT BETWEEN TIMESTAMP '2024-03-10 02:30:00' AND TIMESTAMP '2024-10-27 02:30:00'"), of("ts", lambda t: not "2024-03-10 02:30:00" <= t <= "2024-10-27 02:30:00.000000")),
    Form("`ts < '2024-01-31'`", {d: "ts < '2024-01-31' OR ts BETWEEN '2024-03-10 02:30:00' AND '2024-03-10 02:30:00.5'" for d in DIALECTS if d != "trino"}, of("ts", lambda t: t < "2024-01-31 00" or t == "2024-03-10 02:30:00.000000")),
    Form("`ts = DATE '..'`", {d: "ts >= DATE '2024-01-31'" for d in DIALECTS if d != "bigquery"}, of("ts", lambda t: t >= "2024-01-31 00:00:00.000000")),
    Form("`ts IS NULL`", "ts IS NULL OR seen IS NULL", lambda row, m: row["ts"] is None or row["seen"] is None),
    Form("`COALESCE(ts, TIMESTAMP ..)`", every("COALESCE(ts, TIMESTAMP '2000-01-01 00:00:00') = TIMESTAMP '2000-01-01 00:00:00'"), lambda row, m: row["ts"] is None),
    Form("`ts IS DISTINCT FROM TIMESTAMP ..`", every("ts IS DISTINCT FROM TIMESTAMP '2024-01-31 12:00:00'"), lambda row, m: row["ts"] != _NOON),
    Form("`CAST(ts AS DATE)`", "CAST(ts AS DATE) = DATE '2024-01-30'", of("ts", lambda t: t.startswith("2024-01-30"))),
    Form("`DATE(ts)`", dict.fromkeys(DIALECTS, "DATE(ts) <= DATE '1969-12-31'"), of("ts", lambda t: t < "1970")),
    Form("`EXTRACT(HOUR FROM ts)`", "EXTRACT(HOUR FROM ts) = 2 OR EXTRACT(MINUTE FROM ts) = 15 OR EXTRACT(YEAR FROM ts) = 1", of("ts", lambda t: time_of(t).hour == 2 or time_of(t).minute == 15 or time_of(t).year == 1)),
    Form("`EXTRACT(SECOND FROM ts)`", by_dialect(bigquery="EXTRACT(SECOND FROM ts) = 59", trino="EXTRACT(SECOND FROM ts) = 59", spark="second(ts) = 59", duckdb="EXTRACT(SECOND FROM ts) = 59"), of("ts", lambda t: time_of(t).second == 59)),
    Form("`HOUR(ts)`", {d: "hour(ts) = 23 AND minute(ts) >= 15" for d in DIALECTS if d != "bigquery"}, of("ts", lambda t: time_of(t).hour == 23 and time_of(t).minute >= 15)),
    *(Form(f"`DATE_TRUNC` of `ts` to {'an' if unit == 'HOUR' else 'a'} {unit.lower()}", {
        "bigquery": f"DATETIME_TRUNC(ts, {unit}) = DATETIME '{first}'", "trino": f"date_trunc('{unit}', ts) = TIMESTAMP '{first}'",
        "duckdb": f"date_trunc('{unit}', ts) = TIMESTAMP '{first}'",
    }, of("ts", test)) for unit, first, test in [
        ("YEAR", "2024-01-01 00:00:00", lambda t: t.startswith("2024-")), ("QUARTER", "2024-01-01 00:00:00", lambda t: "2024-01" <= t < "2024-04"),
        ("MONTH", "1969-12-01 00:00:00", lambda t: t.startswith("1969-12")), ("DAY", "2024-03-10 00:00:00", lambda t: t.startswith("2024-03-10")),
        ("HOUR", "2024-03-10 02:00:00", lambda t: t.startswith("2024-03-10 02")),
    ]),
    Form("`TRUNC(ts, 'MM')`", {"spark": "trunc(ts, 'MM') = DATE '2024-03-01'"}, of("ts", lambda t: t.startswith("2024-03"))),
    Form("`seen >= TIMESTAMP '.. UTC'`", moments("seen >= TIMESTAMP '2024-01-31 12:00:00 UTC'"), of("seen", lambda t: t >= _NOON)),
    Form("`seen = TIMESTAMP '..+01:00'`", moments("seen IN (TIMESTAMP '2024-01-31 13:00:00+01:00', TIMESTAMP '2024-01-30 16:30:00.999999-06:30')"), of("seen", lambda t: t in (_NOON, "2024-01-30 23:00:00.999999"))),
    Form("`seen < TIMESTAMP '.. Europe/Berlin'`", moments("seen < TIMESTAMP '2024-01-31 13:00:00.000001 Europe/Berlin'"), of("seen", lambda t: t < "2024-01-31 12:00:00.000001")),
    Form("`seen < '..+00:00'`", {d: "seen < '1970-01-01 00:00:00+00:00'" for d in DIALECTS if d != "trino"}, of("seen", lambda t: t < "1970")),
    Form("`TIMESTAMP('..', 'Europe/Berlin')`", {"bigquery": "seen = TIMESTAMP('2024-01-31 13:00:00', 'Europe/Berlin')"}, of("seen", lambda t: t == _NOON)),
    Form("`seen < CURRENT_TIMESTAMP`", {d: "seen < current_timestamp" + "()" * (d in ("spark", "bigquery")) for d in DIALECTS}, of("seen", lambda t: t < "2025")),
    Form("day of `seen` in Berlin", day_form("Europe/Berlin", "= DATE '2024-01-31'"), in_zone("Europe/Berlin", lambda d: d == "2024-01-31"), overflows=True),
    Form("day of `seen` in New York", day_form("America/New_York", "IN (DATE '2024-03-09', DATE '2024-11-03')"), in_zone("America/New_York", lambda d: d in ("2024-03-09", "2024-11-03")), overflows=True),
    Form("day of `seen` in UTC", day_form("UTC", "<= DATE '1969-12-31'"), in_zone("UTC", lambda d: d < "1970")),
    Form("day of `seen` in Kiritimati", day_form("Pacific/Kiritimati", "> DATE '2024-10-26'"), in_zone("Pacific/Kiritimati", lambda d: d > "2024-10-26"), overflows=True),
    Form("`EXTRACT(DATE FROM seen AT TIME ZONE ..)`", {"bigquery": "EXTRACT(DATE FROM seen AT TIME ZONE 'Europe/Berlin') = DATE '2024-03-31'"}, in_zone("Europe/Berlin", lambda d: d == "2024-03-31"), overflows=True),
    Form("today's date in a zone", {d: f"day < {_BERLIN[d]}" for d in DIALECTS}, of("day", lambda day: day < "2025")),
    Form("today's date in two zones", {d: f"{_EAST[d]} > {_WEST[d]}" for d in DIALECTS}, always),
    Form("today's date plus days", by_dialect(bigquery=f"day < DATE_ADD({_BERLIN['bigquery']}, INTERVAL 7 DAY)", trino=f"day < {_BERLIN['trino']} + INTERVAL '7' DAY", spark=f"day < date_add({_BERLIN['spark']}, 7)", duckdb=f"day < {_BERLIN['duckdb']} + 7"), of("day", lambda day: day < "2025")),
]  # fmt: skip
PARTLY: Final[list[Form]] = []
"""Forms that some pairs of dialects refuse."""
