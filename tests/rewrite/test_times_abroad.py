"""Times, today's date, casts, pieces and lists of one dialect in another: the author's rows on a real DuckDB, or a refusal."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import re
from collections.abc import Iterator
from types import ModuleType
from zoneinfo import ZoneInfo

import duckdb
import pytest
from support.oracles import casts_abroad, pieces_abroad, times_abroad
from support.oracles.functions_abroad import DIALECTS, Form, Printer, local, wanted
from support.oracles.times_abroad import ZONES, every, moments, today

from pdp.engines.row_access.portable_times import zone_names
from pdp.engines.row_access.portable_values import kind_of

SUITES = (times_abroad, casts_abroad, pieces_abroad)
CASES = [(suite, form) for suite in SUITES for form in suite.FORMS]


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[ModuleType, duckdb.DuckDBPyConnection]]:
    made = {}
    for suite in SUITES:
        con = made[suite] = duckdb.connect()
        types = ", ".join(f"{name} {suite.COLUMNS['duckdb'].get(name, kind)}" for name, kind in suite.TYPES.items())
        con.execute(f"set TimeZone = 'UTC'; create table t({types})")
        places = ", ".join("?" * len(suite.TYPES))
        con.executemany(f"insert into t values ({places})", [list(row.values()) for row in suite.rows()])
        con.execute("create table m as select unnest(?) as x", [pieces_abroad.LOOKUP])
    yield made
    for con in made.values():
        con.close()


@pytest.fixture(scope="module")
def printers() -> dict[ModuleType, Printer]:
    return {suite: Printer(suite.TYPES) for suite in SUITES}


Engines = dict[ModuleType, duckdb.DuckDBPyConnection]
Printers = dict[ModuleType, Printer]


def shown(engine: duckdb.DuckDBPyConnection, condition: str) -> list[int]:
    return [row[0] for row in engine.execute(f"SELECT id FROM t WHERE {local(condition)} ORDER BY id").fetchall()]


@pytest.mark.parametrize(
    ("suite", "form"),
    [*CASES, *((casts_abroad, form) for form in casts_abroad.PARTLY)],
    ids=lambda one: one.name if isinstance(one, Form) else None,
)
def test_duckdb_shows_the_rows_of_the_author(
    engines: Engines, printers: Printers, suite: ModuleType, form: Form
) -> None:
    data = suite.rows()
    for source, zone in itertools.product(DIALECTS, ZONES):
        text = form.text(source)
        if text is None or (source == "duckdb" and form.overflows):
            continue
        engines[suite].execute(f"set TimeZone = '{zone}'")
        condition = printers[suite].condition(text, source, "duckdb")
        assert condition is not None, (source, text, printers[suite].refusal(text, source, "duckdb"))
        assert shown(engines[suite], condition) == wanted(form, source, data), (source, zone, text, condition)


@pytest.mark.parametrize(
    ("suite", "form"), CASES, ids=lambda one: one.name if isinstance(one, Form) else None
)  # fmt: skip
def test_each_pair_prints_the_form(printers: Printers, suite: ModuleType, form: Form) -> None:
    for source, target in itertools.permutations(DIALECTS, 2):
        if (text := form.text(source)) is not None:
            assert printers[suite].refusal(text, source, target) == "", (source, target, text)


def test_literals_of_moments_are_the_author_s_whatever_their_zone(engines: Engines, printers: Printers) -> None:
    """Compare generated literals with Python, in zones and offsets, near the rows."""
    dice, data = random.Random("moments"), times_abroad.rows()
    known = [row["seen"] for row in data if row["seen"] is not None and "1970" < row["seen"] < "2037"]
    zones = sorted(zone_names() - {"UTC"})
    used = 0
    for _ in range(120):
        moment = dt.datetime.fromisoformat(f"{dice.choice(known)}+00:00") + dt.timedelta(
            microseconds=dice.choice((-1, 0, 1))
        )
        name, hours = dice.choice(zones), dice.randrange(-12, 15)
        zone = dice.choice((ZoneInfo(name), dt.timezone(dt.timedelta(hours=hours, minutes=30 * (-11 < hours < 13)))))
        local = moment.astimezone(zone)
        text = f"{local.replace(tzinfo=None).isoformat(' ', 'microseconds')}{f' {name}' if isinstance(zone, ZoneInfo) else local.isoformat()[-6:]}"
        source = dice.choice(DIALECTS)
        filter = str(moments(f"seen <= TIMESTAMP '{text}'")[source])
        condition = printers[times_abroad].condition(filter, source, "duckdb")
        is_once = local.replace(fold=0).utcoffset() == local.replace(fold=1).utcoffset()
        assert is_once == (condition is not None) or source == "duckdb", (source, filter)
        if condition is None or not is_once:
            continue
        used += 1
        limit = moment.replace(tzinfo=None).isoformat(" ", "microseconds")
        found = shown(engines[times_abroad], condition)
        assert found == [row["id"] for row in data if row["seen"] is not None and row["seen"] <= limit], filter
    assert used > 80


def test_today_is_that_of_the_zone(engines: Engines, printers: Printers) -> None:
    """The dates in these zones always differ, so the zone of the session cannot be both."""
    for source, zone in itertools.product(DIALECTS, ("Pacific/Kiritimati", "Pacific/Pago_Pago", "Asia/Tokyo", "UTC")):
        before = dt.datetime.now(ZoneInfo(zone)).date()
        condition = printers[times_abroad].condition(f"day = {today(zone)[source]}", source, "duckdb")
        assert condition is not None
        (found,) = engines[times_abroad].execute(f"SELECT {condition.partition('=')[2]}").fetchall()[0]
        assert before <= found <= dt.datetime.now(ZoneInfo(zone)).date(), (source, zone)


REFUSED = [
    ("all", "day < CURRENT_DATE", "CURRENT_DATE.'Europe/Berlin'"),
    ("all", "CAST(seen AS DATE) = DATE '2024-01-31'", "AT TIME ZONE"),
    ("all", "DATE(seen) = DATE '2024-01-31'", "AT TIME ZONE"),
    ("all", "EXTRACT(HOUR FROM seen) = 5", "session"),
    ("all", "EXTRACT(YEAR FROM seen) = 2024", "session"),
    ("all", "EXTRACT(DAYOFWEEK FROM ts) = 1", "differs|EXTRACT"),
    ("all", "ts = seen", "two kinds|two types"),
    ("all", "seen < DATE '2024-01-31'", "two"),
    ("all", "CAST(ts AS TIME) IS NULL", "CAST"),
    ("all", "either < TIMESTAMP '2024-01-31 12:00:00'", "two ways|zone of the session"),
    ("all", "either < '2024-01-31'", "two ways|text"),
    ("all", "EXTRACT(YEAR FROM either) = 2024", "two ways"),
    ("all", "nano > ts", "two"),
    ("all", "day = CURRENT_TIMESTAMP", "two"),
    ("spark", "seen < TIMESTAMP '2024-01-31 12:00:00'", "zone of the session"),
    ("bigquery", "seen < TIMESTAMP '2024-01-31 12:00:00'", "zone of the session"),
    ("duckdb", "seen < TIMESTAMPTZ '2024-01-31 12:00:00'", "zone of the session"),
    ("bigquery", "seen < '2024-01-31 12:00:00'", "zone of the session"),
    ("spark", "seen < '2024-01-31 12:00:00'", "zone of the session"),
    ("duckdb", "ts < TIMESTAMP '2024-01-31 12:00:00+02'", "without one"),
    ("duckdb", "ts < '2024-01-31 12:00:00+02'", "without one"),
    ("trino", "seen < TIMESTAMP '2024-01-31 UTC'", "zone"),
    ("trino", "seen < TIMESTAMP '2024-03-31 02:30:00 Europe/Berlin'", "twice or never"),
    ("trino", "seen < TIMESTAMP '2024-10-27 02:30:00 Europe/Berlin'", "twice or never"),
    ("bigquery", "seen < TIMESTAMP '1945-05-01 12:00:00 Europe/Berlin'", "offset"),
    ("bigquery", "seen < TIMESTAMP '2024-01-31 12:00:00 Europe/Atlantis'", "zone"),
    ("bigquery", "seen < TIMESTAMP '2024-01-31 12:00:00+14:01'", "14:00"),
    ("bigquery", "DATE(seen, 'europe/berlin') = DATE '2024-01-31'", "zone is a literal"),
    ("bigquery", "DATE(seen, '+02:00') = DATE '2024-01-31'", "zone is a literal"),
    ("bigquery", "DATE(seen, 'Europe/Amsterdam') = DATE '2024-01-31'", "before 1970"),
    ("bigquery", "CURRENT_DATE('America/Vancouver') = DATE '2024-01-31'", "zone is a literal"),
    ("bigquery", "ts < DATE '2024-01-31'", "two"),
    ("bigquery", "ts < DATETIME '2024-01-31 12:00'", "written as"),
    ("trino", "ts < TIMESTAMP '2024-01-31T12:00:00'", "written as"),
    ("trino", "ts < TIMESTAMP '2024-01-31 24:00:00'", "calendar"),
    ("trino", "ts < TIMESTAMP '2024-01-31 12:00:00.1234567'", "written as"),
    ("trino", "ts < CAST('2024-01-31 12:00:00.123456' AS TIMESTAMP)", "more than 3 digits"),
    ("trino", "ts < '2024-01-31'", "TIMESTAMP"),
    ("spark", "ts IN ('2024-01-31')", "TIMESTAMP"),
    ("spark", "date_trunc('MONTH', ts) = TIMESTAMP_NTZ '2024-01-01 00:00:00'", "zone of the session"),
    ("spark", "ts < timestamp('2024-01-31 12:00:00')", "zone of the session"),
    ("spark", "ts < to_timestamp('2024-01-31 12:00:00')", "zone of the session"),
    ("spark", "ts < timestamp('2024-01-31 12:00:00+00:00')", "two"),
    ("spark", "EXTRACT(SECOND FROM ts) = 5", "SECOND"),
    ("spark", "CAST(from_utc_timestamp(current_timestamp(), 'UTC') AS DATE) = day", "TIMESTAMP"),
    ("spark", "CAST(convert_timezone('Europe/Berlin', seen) AS DATE) = day", "current_timestamp"),
    ("spark", "convert_timezone('Europe/Berlin', current_timestamp()) = ts", "cast to DATE"),
    ("trino", "CAST(ts AT TIME ZONE 'UTC' AS DATE) = day", "kind instant"),
    ("trino", "seen AT TIME ZONE 'UTC' = seen", "cast to DATE"),
    ("duckdb", "hour(seen AT TIME ZONE 'UTC') = 5", "cast to DATE"),
    ("trino", "day < CAST(current_timestamp(6) AT TIME ZONE 'UTC' AS DATE)", "digits"),
]


@pytest.mark.parametrize(("source", "text", "cause"), REFUSED)
def test_what_depends_on_the_session_or_is_read_in_two_ways_is_refused(source: str, text: str, cause: str) -> None:
    printer = Printer({**times_abroad.TYPES, "either": "TIMESTAMP", "nano": "TIMESTAMP(9) WITH TIME ZONE"})
    for one, target in itertools.permutations(DIALECTS, 2):
        if source in ("all", one):
            assert re.search(cause, printer.refusal(text, one, target)), (
                one,
                target,
                printer.refusal(text, one, target),
            )


def test_columns_of_one_type_of_times_are_compared() -> None:
    types = {
        **times_abroad.TYPES,
        "either": "TIMESTAMP",
        "other": "TIMESTAMP",
        "fine": "timestamp(3)",
        "until": "TIMESTAMPTZ",
    }
    printer = Printer(types)
    for source, target in itertools.permutations(DIALECTS, 2):
        assert printer.refusal("either <= other AND NOT seen > until", source, target) == ""
        for text in ("either < ts", "either < seen", "ts < fine", "seen BETWEEN ts AND until"):
            assert "type" in printer.refusal(text, source, target), (source, target, text)


CASTS_REFUSED = [
    ("duckdb", "TRY_CAST(s AS INTEGER) = 5", "CAST"),
    ("duckdb", "CAST(d AS BIGINT) = 5", "CAST"),
    ("trino", "TRY_CAST(s AS DATE) = DATE '2024-01-05'", "literal"),
    ("all", "CAST(d AS DECIMAL(5, 2)) = 1", "CAST"),
    ("all", "CAST(c AS DECIMAL(10, 2)) = 1", "CAST"),
    ("all", "CAST(g AS DECIMAL(10, 2)) = 1", "CAST"),
    ("all", "CAST(s AS DECIMAL(10, 2)) = 1", "CAST"),
    ("all", "CAST(d AS VARCHAR) = '1'", "CAST"),
    ("all", "CAST(g AS DATE) IS NULL", "DATE"),
    ("all", "ROUND(c, i) = 1", "ROUND"),
    ("all", "ROUND(c, -1) = 1", "ROUND"),
    ("all", "ROUND(d, 1) = 1", "ROUND"),
    ("bigquery", "ROUND(i) = 1", "ROUND"),
    ("bigquery", "DIV(i, 0) = 1", "DIV"),
    ("bigquery", "DIV(i, g) = 1", "DIV"),
    ("spark", "i / 2 = 1", "product"),
    ("wide", "DIV(g * g, 2) = 1", "product"),
    ("wide", "CAST(g * g AS BOOLEAN)", "CAST"),
    ("wide", "CAST(g * g AS DOUBLE) = 1", "CAST"),
    ("plain", "CAST(s AS BIGINT) IS NULL", "TRY_CAST"),
    ("plain", "COALESCE(CAST(s AS BIGINT), 5) = 5", "TRY_CAST"),
    ("plain", "CAST(s AS BIGINT) IS DISTINCT FROM 5", "TRY_CAST"),
    ("plain", "CASE WHEN CAST(s AS BIGINT) = 5 THEN FALSE ELSE TRUE END", "TRY_CAST"),
    ("plain", "(CAST(s AS BIGINT) = 5) IS DISTINCT FROM TRUE", "TRY_CAST|binds first"),
    ("plain", "COALESCE(NOT (CAST(s AS BIGINT) = 5), TRUE)", "TRY_CAST"),
    ("plain", "CAST(CAST(s AS BIGINT) AS BOOLEAN) IS NULL", "TRY_CAST"),
    ("plain", "CAST(d AS BIGINT) + 1 IS NULL", "TRY_CAST|wrap"),
    ("plain", "COALESCE(CAST(d AS BIGINT) = 1, TRUE)", "TRY_CAST"),
    ("plain", "NULLIF(CAST(d AS BIGINT), 1) = 1", "TRY_CAST"),
    ("plain", "IF(CAST(s AS BOOLEAN), FALSE, TRUE)", "TRY_CAST"),
]


@pytest.mark.parametrize(("source", "text", "cause"), CASTS_REFUSED)
def test_a_cast_that_could_show_a_row_is_refused(printers: Printers, source: str, text: str, cause: str) -> None:
    for one, target in itertools.permutations(DIALECTS, 2):
        if source in ("all", one) or one in {"plain": DIALECTS[:3], "wide": ("bigquery", "trino", "duckdb")}.get(
            source, ()
        ):
            written = text.replace(
                "DIV(g * g, 2)", {"trino": "g * g / 2", "duckdb": "g * g // 2"}.get(one, "DIV(g * g, 2)")
            )
            refusal = printers[casts_abroad].refusal(written, one, target)
            assert re.search(cause, refusal), (one, target, refusal)


def test_a_failing_cast_shows_a_row_alone_where_each_value_would(engines: Engines, printers: Printers) -> None:
    """What fails at home is unknown: the row is shown only if the rest of the filter shows it."""
    dice = random.Random("casts")
    atoms = [
        "CAST(s AS BIGINT) = 5",
        "CAST(s AS BIGINT) > 0",
        "CAST(s AS BIGINT) IN (5, 7)",
        "CAST(d AS BIGINT) <> 3",
        "i > 0",
        "b",
        "b IS NULL",
    ]
    for _ in range(60):
        parts = [f"{dice.choice(('', 'NOT '))}({dice.choice(atoms)})" for _ in range(3)]
        text = f"({parts[0]} {dice.choice(('AND', 'OR'))} {parts[1]}) {dice.choice(('AND', 'OR'))} {parts[2]}"
        for source in ("bigquery", "trino", "spark"):
            filter = text.replace("BIGINT", "INT64") if source == "bigquery" else text
            condition = printers[casts_abroad].condition(filter, source, "duckdb")
            assert condition is not None, (source, filter, printers[casts_abroad].refusal(filter, source, "duckdb"))
            found = set(shown(engines[casts_abroad], condition))
            for value in (5, 6, 7, 3, -1):
                number = f"COALESCE(TRY_CAST(s AS BIGINT), {value})"
                real = f"COALESCE(TRY_CAST(CASE WHEN isfinite(d) THEN {'trunc' if source == 'spark' else 'round'}(d) END AS BIGINT), {value})"
                whole = text.replace("CAST(s AS BIGINT)", number).replace("CAST(d AS BIGINT)", real)
                plain = "s IS NULL OR regexp_matches(s, '^-?[0-9]{1,18}$') OR NOT regexp_matches(s, '[0-9\\x{660}-\\x{ffff}]')"
                rows = set(shown(engines[casts_abroad], f"({whole}) AND d IS NOT NULL AND s IS NOT NULL AND ({plain})"))
                sure = set(shown(engines[casts_abroad], f"d IS NOT NULL AND s IS NOT NULL AND ({plain})"))
                assert found & sure <= rows, (source, filter, condition)


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        ("TIMESTAMP", "other"), ("timestamp(6)", "other"), ("DATETIME", "timestamp"), ("TIMESTAMP_NTZ", "timestamp"),
        ("TIMESTAMP WITHOUT TIME ZONE", "timestamp"), ("timestamp(3) without time zone", "timestamp"), ("TIMESTAMP(9) WITHOUT TIME ZONE", "other"),
        ("TIMESTAMPTZ", "instant"), ("TIMESTAMP WITH TIME ZONE", "instant"), ("timestamp(6) with time zone", "instant"), ("TIMESTAMP_LTZ", "instant"),
        ("TIMESTAMP(12) WITH TIME ZONE", "other"), ("TIMESTAMP_NS", "other"), ("TIMESTAMP_S", "other"), ("TIME", "other"),
    ],
)  # fmt: skip
def test_a_type_of_times_has_one_kind_or_none(type: str, kind: str) -> None:
    assert kind_of(type) == kind


def test_every_text_of_a_literal_is_refused_or_the_same_time(engines: Engines, printers: Printers) -> None:
    """Spell times in ways that engines may read: what is taken is what DuckDB reads."""
    spellings = [
        "2024-01-31", "2024-01-31 12:00:00", "2024-01-31T12:00:00", "2024-01-31 12:00", "2024-1-31 12:00:00", "2024-01-31 12:00:00.5", "2024-01-31 12:00:00.",
        " 2024-01-31", "2024-01-31 ", "20240131", "2024-01-31 12:00:00.000000", "2024/01/31", "2024-01-31  12:00:00", "0000-01-01", "2024-02-30 00:00:00",
        "2024-01-31 23:59:60", "24-01-31", "+2024-01-31", "\u0662024-01-31", "2024-01-31 12:00:00 ", "infinity", "epoch", "now", "",
    ]  # fmt: skip
    taken = 0
    for spelling, source in itertools.product(spellings, DIALECTS):
        text = str(every(f"ts < TIMESTAMP '{spelling}'")[source])
        condition = printers[times_abroad].condition(text, source, "duckdb") if source != "duckdb" else None
        if condition is not None:
            taken += 1
            assert shown(engines[times_abroad], condition) == shown(
                engines[times_abroad], f"ts < TIMESTAMP '{spelling}'"
            )
    assert taken >= 12
