"""Kinds of masks on a real Trino, rewritten and as its plugin gets them: the results of plain Python."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
import trino.dbapi
from support.oracles.mask_kinds import COLUMNS, ROWS, Pair, pairs, rewritten, spelled, wanted
from support.servers.real_trino import PATIENCE
from support.servers.trino_distribution import java, server_folder
from support.servers.trino_server import Setup, trino_server

from pdp.engines.row_access.trino import mask_sql

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
ZONES = ("UTC", "America/St_Johns", "Pacific/Kiritimati")
_ROWS_AT_ONCE = 20


def literal(pair: Pair, row: int) -> str:
    """Return a value of a column as Trino's SQL. Lists, maps and rows are NULL there."""
    kind, text = COLUMNS[pair.column].type("trino"), spelled(pair, row)
    if text is None:
        return f"CAST(NULL AS {kind})"
    if pair.column == "bytes":
        return f"to_utf8('{text}')"
    if pair.column == "text":
        return f"CAST(from_utf8(from_hex('{text.encode().hex()}')) AS VARCHAR)"
    return f"CAST('{text.replace('+00', ' UTC')}' AS {kind})"


def read(pair: Pair, name: str) -> str:
    """Return SQL that reads a shown value as the oracle writes it, as far as that is a text."""
    if pair.column in ("date", "timestamp", "instant"):
        return f"CAST({name} AS VARCHAR)"
    return f"json_format(CAST({name} AS JSON))" if pair.column in ("struct", "one") else name


def text_of(pair: Pair, value: Any) -> Any:
    """Return a result of the oracle as `read` reads it."""
    if value is None:
        return None
    if pair.column == "date":
        return value.isoformat()
    if pair.column in ("timestamp", "instant"):
        return f"{value.isoformat(' ', 'microseconds')}{' UTC' if pair.column == 'instant' else ''}"
    if pair.column == "struct":
        return '{"a":"XXXXXXXX","b":{"c":0,"d":[]},"e":"1970-01-01"}'
    return '{"a":false}' if pair.column == "one" else value


def test_trino_shows_what_python_does(tmp_path: Path) -> None:
    server_folder()
    java()
    some = list(pairs("trino"))
    types = ", ".join(f"{pair.name} {COLUMNS[pair.column].type('trino')}" for pair in some)
    with (
        trino_server(tmp_path, Setup({"access-control.name": "allow-all"})) as server,
        trino.dbapi.Connection(
            host="127.0.0.1", port=server.port, user="u", max_attempts=1, request_timeout=PATIENCE
        ) as connection,
    ):
        cursor = connection.cursor()
        cursor.execute("CREATE CATALOG lake USING memory").fetchall()
        cursor.execute("CREATE SCHEMA lake.s").fetchall()
        cursor.execute(f"CREATE TABLE lake.s.t (id INTEGER, {types})").fetchall()
        for start in range(0, ROWS, _ROWS_AT_ONCE):
            rows = (
                f"({row}, {', '.join(literal(pair, row) for pair in some)})"
                for row in range(start, min(start + _ROWS_AT_ONCE, ROWS))
            )
            cursor.execute(f"INSERT INTO lake.s.t VALUES {', '.join(rows)}").fetchall()
        stored = [row[:2] for row in cursor.execute("DESCRIBE lake.s.t").fetchall()]
        masked = ", ".join(
            f"{mask_sql(pair.kind, '', pair.name, type)} AS {pair.name}"
            for pair, (_, type) in zip(some, stored[1:], strict=True)
        )
        for zone in ZONES:
            cursor.execute(f"SET TIME ZONE '{zone}'").fetchall()
            for query in (rewritten(tmp_path, "trino"), f"SELECT id, {masked} FROM lake.s.t"):
                columns = ", ".join(read(pair, pair.name) for pair in some)
                found = cursor.execute(f"SELECT id, {columns} FROM ({query}) ORDER BY id").fetchall()
                for at, pair in enumerate(some):
                    shown = [row[at + 1] for row in found]
                    assert shown == [text_of(pair, wanted(pair, row)) for row in range(ROWS)], (pair, zone, query)
            cursor.execute(f"CREATE VIEW lake.s.v AS SELECT id, {masked} FROM lake.s.t").fetchall()
            assert [row[:2] for row in cursor.execute("DESCRIBE lake.s.v").fetchall()] == stored
            cursor.execute("DROP VIEW lake.s.v").fetchall()
    assert dt.date(1, 1, 1) in [wanted(pair, row) for pair in some for row in range(ROWS)]
