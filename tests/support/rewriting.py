"""Rewritten SQL, executed for real on DuckDB, and the recorded cases with their data."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb
import sqlglot
from sqlglot import exp
from support.paths import RECORDED

from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest, service_of_files

FOLDER: Final = RECORDED / "rowaccess"
POLICIES: Final = FOLDER / "row_access.json"


def recorded_cases() -> list[dict[str, Any]]:
    lines = (FOLDER / "rewrite_cases.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def recorded_data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((FOLDER / "dataset.json").read_text("utf-8"))
    return data


def recorded_service() -> LocalRewriter:
    return service_of_files([POLICIES])


def code_of(service: LocalRewriter, request: RewriteRequest) -> str:
    """Return the code of a refusal; an empty text if the request is not refused."""
    try:
        service.rewrite(request)
    except RewriteRefused as error:
        return error.rap
    return ""


def known_rows(sql: str) -> str:
    """Return a rewritten statement with the usual name in place of names that nobody can foresee."""
    return re.sub("_rap_row_[0-9a-f]{16}", "_rap_row", sql)


def full_database(data: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    """Return a database with all tables and views of recorded data."""
    database = duckdb.connect()
    database.execute("ATTACH ':memory:' AS lake; SET TimeZone='UTC'")
    for schema in sorted({name.split(".")[1] for name in data["tables"]}):
        database.execute(f"CREATE SCHEMA lake.{schema}")
    for name, table in data["tables"].items():
        database.execute(f"CREATE TABLE {name} ({table['ddl']}); INSERT INTO {name} VALUES {table['values']}")
    for name, view in data["views"].items():
        if not view.get("no_engine"):
            database.execute(f"USE {name.rpartition('.')[0]}")
            columns = f"({','.join(view['columns'])})" if view.get("columns") else ""
            database.execute(f"CREATE VIEW {name}{columns} AS {view['sql']}")
    database.execute("USE lake.sales")
    return database


@contextmanager
def undone(database: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Undo all changes at the end."""
    database.execute("BEGIN")
    try:
        yield
    finally:
        database.execute("ROLLBACK")


def on_duckdb(sql: str, dialect: str) -> str:
    """Return SQL for DuckDB, which has no old versions of tables."""
    if dialect == "duckdb":
        return sql
    tree = sqlglot.parse_one(sql, read=dialect)
    for table in tree.find_all(exp.Table):
        table.set("version", None)
        table.set("when", None)
    return tree.sql(dialect="duckdb")


def rows_of(
    database: duckdb.DuckDBPyConnection, sql: str, after: str = "", *, ordered: bool = False
) -> tuple[list[str], list[list[Any]]]:
    """Return the columns and rows of a statement, or of the query after the statement."""
    with undone(database):
        result = database.execute(sql)
        if after:
            result = database.execute(after)
        columns = [column[0] for column in result.description or ()]
        rows = [list(map(plain_value, row)) for row in result.fetchall()]
    return columns, rows if ordered else sorted_rows(rows)


def sorted_rows(rows: Iterable[list[Any]]) -> list[list[Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True, default=str))


def plain_value(value: Any) -> Any:
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, float)):
        return int(value) if value == int(value) else round(float(value), 6)
    if isinstance(value, (list, tuple)):
        return list(map(plain_value, value))
    if isinstance(value, dict):
        return {key: plain_value(part) for key, part in value.items()}
    return value


def write_policies(folder: Path, document: Mapping[str, Any]) -> Path:
    path = folder / "policies.json"
    path.write_text(json.dumps(document), "utf-8")
    return path
