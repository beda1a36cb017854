"""Functions of one dialect in another on a real Trino: the author's rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trino.dbapi
from support.oracles.functions_abroad import TYPES, printed, rows, wanted
from support.servers.real_trino import PATIENCE
from support.servers.trino_distribution import java, server_folder
from support.servers.trino_server import Setup, trino_server

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
DATA = rows()
_AT_ONCE = 50


def literal(value: Any, kind: str) -> str:
    """Return a value of a column as Trino's SQL."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    if kind == "VARCHAR":
        return f"CAST(from_utf8(from_hex('{value.encode().hex()}')) AS VARCHAR)"
    return f"CAST('{value}' AS {kind})"


@pytest.mark.parametrize("library", ["JONI", "RE2J"])
def test_trino_shows_the_rows_of_the_author(tmp_path: Path, library: str) -> None:
    """Run all forms with Trino's usual library of regular expressions, and those of patterns with the other."""
    server_folder()
    java()
    values = ", ".join(
        f"({', '.join(literal(row[name], kind) for name, kind in TYPES.items())})".replace("'nan'", "'NaN'")
        .replace("'inf'", "'Infinity'")
        .replace("'-inf'", "'-Infinity'")
        for row in DATA
    )
    cases = [case for case in printed("trino") if library == "JONI" or case[0].name.startswith("regular")]
    setup = Setup({"access-control.name": "allow-all"}, settings={"regex-library": library})
    with (
        trino_server(tmp_path, setup) as server,
        trino.dbapi.Connection(
            host="127.0.0.1", port=server.port, user="u", max_attempts=1, request_timeout=PATIENCE
        ) as connection,
    ):
        cursor = connection.cursor()
        cursor.execute("CREATE CATALOG lake USING memory").fetchall()
        cursor.execute("CREATE SCHEMA lake.s").fetchall()
        cursor.execute(f"CREATE TABLE lake.s.t AS SELECT * FROM (VALUES {values}) AS t ({', '.join(TYPES)})").fetchall()
        for start in range(0, len(cases), _AT_ONCE):
            some = cases[start : start + _AT_ONCE]
            columns = ", ".join(f"({condition}) AS c{at}" for at, (_, _, condition) in enumerate(some))
            found = cursor.execute(f"SELECT id, {columns} FROM lake.s.t").fetchall()
            for at, (form, source, condition) in enumerate(some):
                shown = sorted(row[0] for row in found if row[at + 1] is True)
                assert shown == wanted(form, source, DATA), (source, condition)
