"""Functions, times and casts of one dialect in another on a real Trino: the author's rows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import pytest
import trino.dbapi
from support.oracles import casts_abroad, functions_abroad, pieces_abroad, times_abroad, typed_abroad
from support.oracles.functions_abroad import printed, wanted
from support.oracles.zones_abroad import samples
from support.servers.real_trino import PATIENCE
from support.servers.trino_distribution import java, server_folder
from support.servers.trino_server import Setup, trino_server
from trino.exceptions import TrinoUserError

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
_AT_ONCE = 50
_ZONES_AT_ONCE = 15
_SUITES = (functions_abroad, times_abroad, casts_abroad, pieces_abroad)


def literal(value: Any, kind: str) -> str:
    """Return a value of a column as Trino's SQL."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    if isinstance(value, list):
        return f"CAST(ARRAY[{', '.join(literal(one, 'VARCHAR') for one in value)}] AS {kind})"
    if kind == "VARCHAR":
        return f"CAST(from_utf8(from_hex('{value.encode().hex()}')) AS VARCHAR)"
    text = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), str(value))
    return f"CAST('{text}{' UTC' if kind.endswith('ZONE') else ''}' AS {kind})"


def fill(cursor: Any, suite: ModuleType) -> None:
    """Make the table of the rows."""
    names = getattr(suite, "COLUMNS", {}).get("trino", {})
    kinds = {name: names.get(name, kind) for name, kind in suite.TYPES.items()}
    values = ", ".join(
        f"({', '.join(literal(row[name], kind) for name, kind in kinds.items())})" for row in suite.rows()
    )
    cursor.execute("DROP TABLE IF EXISTS lake.s.t").fetchall()
    cursor.execute(f"CREATE TABLE lake.s.t AS SELECT * FROM (VALUES {values}) AS t ({', '.join(kinds)})").fetchall()
    lookup = ", ".join(f"({literal(text, 'VARCHAR')})" for text in pieces_abroad.LOOKUP)
    cursor.execute("DROP TABLE IF EXISTS lake.s.m").fetchall()
    cursor.execute(f"CREATE TABLE lake.s.m AS SELECT * FROM (VALUES {lookup}) AS m (x)").fetchall()


def check(cursor: Any, suite: ModuleType, library: str) -> None:
    """Compare the rows of all forms with those of their authors."""
    fill(cursor, suite)
    data, forms = suite.rows(), [*suite.FORMS, *getattr(suite, "PARTLY", [])]
    cases = [case for case in printed("trino", forms, suite.TYPES) if library == "JONI" or "REGEXP" in case[2].upper()]
    for start in range(0, len(cases), _AT_ONCE):
        some = cases[start : start + _AT_ONCE]
        columns = ", ".join(f"({condition}) AS c{at}" for at, (_, _, condition) in enumerate(some))
        found = cursor.execute(f"SELECT id, {columns} FROM lake.s.t").fetchall()
        for at, (form, source, condition) in enumerate(some):
            shown = sorted(row[0] for row in found if row[at + 1] is True)
            assert shown == wanted(form, source, data), (source, condition)


def check_typed(cursor: Any) -> None:
    """Compare filters over each type of column with DuckDB, in both directions."""
    fill(cursor, typed_abroad)

    def shown(conditions: Sequence[str]) -> list[list[int] | None]:
        found: list[list[int] | None] = []
        for condition in conditions:
            text = re.sub(r"\bFROM m\b", "FROM lake.s.m", condition)
            try:
                rows = cursor.execute(f"SELECT id FROM lake.s.t WHERE {text}").fetchall()
                found.append(sorted(row[0] for row in rows))
            except TrinoUserError:
                found.append(None)
        return found

    with duckdb.connect() as con:
        typed_abroad.fill_duckdb(con)
        duck = partial(typed_abroad.shown_by_duckdb, con)
        assert typed_abroad.differences("trino", "duckdb", shown, duck) == []
        assert typed_abroad.differences("duckdb", "trino", duck, shown) == []


def differing_zones(cursor: Any) -> set[str]:
    """Return the zones whose clocks are not those of the service."""
    queries = []
    for zone, group in itertools.groupby(samples(), lambda sample: sample.zone):
        some = list(group)
        moments, offsets = (", ".join(str(one[place]) for one in some) for place in (1, 2))
        utc, there = (f"CAST(from_unixtime(moment, '{name}') AS timestamp)" for name in ("UTC", zone))
        queries.append(
            f"SELECT '{zone}' FROM UNNEST(ARRAY[{moments}], ARRAY[{offsets}]) AS t (moment, seconds) "
            f"WHERE date_diff('second', {utc}, {there}) <> seconds"
        )
    found: set[str] = set()
    for start in range(0, len(queries), _ZONES_AT_ONCE):
        cursor.execute(" UNION ".join(queries[start : start + _ZONES_AT_ONCE]))
        found.update(row[0] for row in cursor.fetchall())
    return found


@pytest.mark.parametrize("library", ["JONI", "RE2J"])
def test_trino_shows_the_rows_of_the_author(tmp_path: Path, library: str) -> None:
    """Run all forms with Trino's usual library of regular expressions, and those of patterns with the other."""
    server_folder()
    java()
    setup = Setup({"access-control.name": "allow-all"}, settings={"regex-library": library})
    with trino_server(tmp_path, setup) as server:
        for zone in times_abroad.ZONES:
            with trino.dbapi.Connection(
                host="127.0.0.1", port=server.port, user="u", max_attempts=1, request_timeout=PATIENCE, timezone=zone
            ) as connection:
                cursor = connection.cursor()
                cursor.execute("CREATE CATALOG IF NOT EXISTS lake USING memory").fetchall()
                cursor.execute("CREATE SCHEMA IF NOT EXISTS lake.s").fetchall()
                if library == "JONI" and zone == times_abroad.ZONES[0]:
                    check_typed(cursor)
                    assert differing_zones(cursor) == set(), "`portable_times` names disputed zones"
                for suite in _SUITES if zone == times_abroad.ZONES[0] else (times_abroad,):
                    check(cursor, suite, library)
