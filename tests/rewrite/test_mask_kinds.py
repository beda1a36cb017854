"""Kinds of masks in the four dialects: executed on DuckDB, with the results of plain Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles.mask_kinds import (
    COLUMNS,
    DIALECTS,
    EPOCH,
    ROWS,
    kinds_without_examples,
    pairs,
    rewritten,
    spelled,
    tables,
    text_wanted,
    wanted,
)
from support.paths import ROOT

from pdp.engines.row_access.mask_kinds import MASK_KINDS, Family, kind_sql, trino_sql
from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.trino import mask_sql
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter

BASE = duckdb.connect(config={"threads": 1})


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """Return a database with the values of each pair in a column of its own."""
    made = duckdb.connect(config={"threads": 1})
    made.execute("ATTACH ':memory:' AS lake")
    made.execute("CREATE SCHEMA lake.s")
    some = list(pairs("duckdb"))
    casts = ", ".join(f"CAST({pair.name} AS {COLUMNS[pair.column].type('duckdb')}) AS {pair.name}" for pair in some)
    texts = ", ".join(f"unnest(?::VARCHAR[]) AS {pair.name}" for pair in some)
    values = [[spelled(pair, row) for row in range(ROWS)] for pair in some]
    made.execute(
        f"CREATE TABLE lake.s.t AS SELECT id, {casts} FROM (SELECT unnest(range({ROWS})) AS id, {texts})", values
    )
    return made


def plain(value: Any) -> Any:
    """Return a value of DuckDB as the oracle writes it: a struct as its values."""
    if isinstance(value, dict):
        return [plain(part) for part in value.values()] if value else {}
    return value


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Kiritimati"])
def test_duckdb_shows_what_python_does(database: duckdb.DuckDBPyConnection, tmp_path: Path, zone: str) -> None:
    database.execute(f"SET TimeZone = '{zone}'")
    database.execute(f"CREATE OR REPLACE TABLE shown AS {rewritten(tmp_path, 'duckdb')}")
    kinds = dict(
        database.execute("SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'shown'").fetchall()
    )
    stored = dict(
        database.execute("SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 't'").fetchall()
    )
    assert kinds == stored
    for pair in pairs("duckdb"):
        read = f"MAKE_TIMESTAMP(EPOCH_US({pair.name}))" if pair.column == "instant" else pair.name
        found = [plain(row[0]) for row in database.execute(f"SELECT {read} FROM shown ORDER BY id").fetchall()]
        assert found == [wanted(pair, row) for row in range(ROWS)], pair


def test_the_documents_have_the_results() -> None:
    page = (ROOT / "docs" / "row-access.md").read_text("utf-8")
    assert tables() in page, tables()
    listed = page[page.index("- **Masks remove values**") : page.index("- **Hidden columns**")]
    assert " ".join(listed.split()).count(", ".join(f"`{kind}`" for kind in MASK_KINDS)) == 1


def test_every_kind_is_run() -> None:
    assert kinds_without_examples() == set()
    assert EPOCH in [wanted(pair, 1) for pair in pairs("trino")]


ODD: dict[str, list[str]] = {
    "mask-alphanum": ["INTEGER", "DATE", "JSON", "BLOB", "UUID", "VARCHAR[]", "nosuch", ""],
    "show-first-4": ["INTEGER", "TIMESTAMP", "STRUCT(a VARCHAR)", "ENUM('secret')", ""],
    "show-last-4": ["BOOLEAN", "MAP(VARCHAR, VARCHAR)", "INTERVAL", ""],
    "truncate-to-year": ["VARCHAR", "TIME", "INTEGER", "nosuch", "TIME WITH TIME ZONE", ""],
    "truncate-to-month": ["VARCHAR", "BIGINT", "DATE[]", ""],
    "mask-to-fixed-value": [
        "JSON", "INTERVAL", "nosuch", "", "INTEGER[3]", "TIME WITH TIME ZONE", "STRUCT(a JSON)", "STRUCT(a INTEGER, b INTERVAL)",
        'STRUCT("${x}" STRUCT(b INTERVAL))',
    ],
}  # fmt: skip
"""Kind -> types without a value of the kind. The empty one is unknown."""


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", ODD)
def test_a_kind_without_a_value_is_null(kind: str, dialect: str) -> None:
    columns = {f"c{at}": type for at, type in enumerate(ODD[kind])}
    masks = [
        {"id": name, "table": "lake.s.t", "column": name, "kind": kind, "grantees": ["allUsers"]} for name in columns
    ]
    parsed = parse_document({"tables": {"lake.s.t": {"columns": columns}}, "masks": masks}).document
    catalog = catalog_of([parsed])
    service = LocalRewriter(catalog, policy_set_of([parsed]), Rewriter(catalog))
    sql = service.rewrite(RewriteRequest("SELECT * FROM lake.s.t", dialect, "user:a@x.example"))
    for name, type in columns.items():
        quoted = f"`{name}`" if dialect in ("bigquery", "spark") else f'"{name}"'
        shown = re.search(rf"(?:CASE WHEN FALSE THEN {quoted} END|CAST\(NULL AS [^)]*\)*\)|NULL) AS {quoted}", sql)
        assert shown, (name, type, sql)


@pytest.mark.parametrize("family", ["date", "timestamp", "instant"])
def test_a_text_in_a_column_that_was_a_date_is_null(family: Family) -> None:
    """`tables` can be older than the table. An error of a cast would show the text."""
    for kind in ("truncate-to-year", "truncate-to-month"):
        sql = kind_sql(kind, "c", family, COLUMNS[family].type("duckdb"), "duckdb")
        assert duckdb.execute(f"SELECT {sql} FROM (SELECT 'secret-1' AS c)").fetchall() == [(None,)]


@pytest.mark.parametrize("kind", ["truncate-to-year", "truncate-to-month"])
@pytest.mark.parametrize(
    ("type", "values"),
    [
        ("DATE", ["infinity", "-infinity", "5877642-06-25 (BC)", "0044-03-15 (BC)", "10000-01-01", "5881580-07-10"]),
        ("TIMESTAMP", ["infinity", "-infinity", "290309-12-22 (BC) 00:00:00", "10000-01-01 00:00:00", "294247-01-10 04:00:54.775806"]),
        ("TIMESTAMPTZ", ["infinity", "-infinity", "290309-12-22 (BC) 00:00:00+00", "10000-01-01 00:00:00+00", "0001-01-01 (BC) 00:00:00+00"]),
    ],
)  # fmt: skip
def test_a_day_that_not_every_engine_has_is_null(kind: str, type: str, values: list[str]) -> None:
    family: Family = "instant" if type == "TIMESTAMPTZ" else "date" if type == "DATE" else "timestamp"
    sql = kind_sql(kind, "c", family, type, "duckdb")
    found = duckdb.execute(f"SELECT {sql} FROM (SELECT CAST(unnest(?::VARCHAR[]) AS {type}) AS c)", [values]).fetchall()
    assert found == [(None,)] * len(values)


@pytest.mark.parametrize(
    ("type", "shown"),
    [
        ("row(a integer, b varchar)", "ROW(CAST(0 AS integer), 'XXXXXXXX')"),
        ("row(integer, boolean)", "ROW(CAST(0 AS integer), FALSE)"),
        ('row("a, b" boolean)', "ROW(FALSE)"),
        ("row(a row(b boolean))", "ROW(ROW(FALSE))"),
        ("row(timestamp(3) with time zone)", "ROW(TIMESTAMP '1970-01-01 00:00:00 UTC')"),
        ("row(a json)", None),
        ("row(a integer, b json)", None),
        ("row(a b boolean)", None),
        ("row()", None),
        ("row", None),
        ("array(json)", "ARRAY[]"),
        ("time(6) with time zone", None),
        ("interval day to second", None),
        ("HyperLogLog", None),
        ("Geometry", None),
        ("ipaddress", None),
        ("TIMESTAMP(6) WITH TIME ZONE", "TIMESTAMP '1970-01-01 00:00:00 UTC'"),
    ],
)  # fmt: skip
def test_the_fixed_value_of_a_type_of_trino(type: str, shown: str | None) -> None:
    assert trino_sql("mask-to-fixed-value", "c", type) == shown


def test_deep_types_of_trino_are_read_once() -> None:
    type = "row(a " * 63 + "date" + ")" * 63
    assert str(trino_sql("mask-to-fixed-value", "c", type)).count("DATE '1970-01-01'") == 1
    assert trino_sql("mask-to-fixed-value", "c", "row(row " * 31 + "nosuch" + ")" * 31) is None
    assert "DATE" not in mask_sql("mask-to-fixed-value", "", "c", "row(a " * 65 + "date" + ")" * 65)


def test_a_struct_with_any_names_of_fields() -> None:
    """The creator of a table chooses the names."""
    type = 'STRUCT("a b" INTEGER, "q""); DROP TABLE t; --" VARCHAR, "o\'x" BOOLEAN)'
    masked = {"id": "m", "table": "lake.s.t", "column": "c", "kind": "mask-to-fixed-value", "grantees": ["allUsers"]}
    parsed = parse_document({"tables": {"lake.s.t": {"columns": {"c": type}}}, "masks": [masked]}).document
    catalog = catalog_of([parsed])
    service = LocalRewriter(catalog, policy_set_of([parsed]), Rewriter(catalog))
    sql = service.rewrite(RewriteRequest("SELECT c FROM lake.s.t", "duckdb", "user:a@x.example"))
    with duckdb.connect() as database:
        database.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.s;")
        database.execute(f"CREATE TABLE lake.s.t (c {type})")
        database.execute("INSERT INTO lake.s.t VALUES (NULL)")
        assert database.execute(sql).fetchall() == [({"a b": 0, 'q"); DROP TABLE t; --': "XXXXXXXX", "o'x": False},)]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
@settings(max_examples=100)
def test_any_text_on_duckdb(text: str) -> None:
    kinds = ("mask-alphanum", "show-first-4", "show-last-4")
    columns = ", ".join(str(kind_sql(kind, "c", "text", "VARCHAR", "duckdb")) for kind in kinds)
    found = BASE.execute(f"SELECT {columns} FROM (SELECT ?::VARCHAR AS c)", [text]).fetchone()
    assert found == tuple(text_wanted(kind, text) for kind in kinds)
