"""Masks in rewritten statements: values of masked columns leave neither rows nor conditions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.oracles.equivalence import DATA, service_of
from support.oracles.secure_views import mask_columns
from support.rewriting import code_of, full_database, rows_of

from pdp.errors import PolicyError
from pdp.rewrite import errors
from pdp.rewrite.process.local import RewriteRequest, service_of_files

STAFF: dict[str, Any] = {"table": "lake.hr.salaries", "grantees": ["allUsers"], "except": ["user:alice@example.com"]}
MASKS = [
    {"id": "a_mail", "column": "email", "kind": "expression", "expression": "email", "dialect": "duckdb", **STAFF},
    {"id": "mail", "column": "email", "kind": "partial", **STAFF},
    {"id": "pay", "column": "SALARY", "kind": "null", **STAFF},
    {"id": "pay_less", "column": "salary", "kind": "hash", **STAFF},
    {"id": "dept", "column": "dept", "kind": "hash", **STAFF},
    {"id": "number", "column": "emp_id", "kind": "constant", "expression": 9, **STAFF},
]
TEXTS = [
    "SELECT * FROM lake.hr.salaries",
    "SELECT email FROM hr.salaries WHERE email LIKE '%bob%' OR salary > 500",
    "SELECT dept, COUNT(*) AS n, SUM(salary) AS s FROM lake.hr.salaries GROUP BY dept HAVING MAX(salary) IS NULL",
    "SELECT x.email FROM lake.hr.salaries AS x JOIN lake.hr.salaries AS y ON x.salary = y.salary",
    "SELECT id FROM leads WHERE id IN (SELECT emp_id FROM lake.hr.salaries WHERE dept = 'eng')",
    "SELECT dept, salary FROM lake.hr.v_pay ORDER BY salary",
    "WITH s AS (SELECT * FROM lake.hr.salaries) SELECT MAX(email) AS m FROM s",
    "SELECT t.* FROM (SELECT * EXCLUDE (salary) FROM lake.hr.salaries) AS t(a, b, c) WHERE c <> 'eng'",
    "SELECT emp_id FROM lake.hr.salaries UNION SELECT id FROM leads",
    "INSERT INTO sink SELECT emp_id, email FROM lake.hr.salaries",
]


def service_with(*masks: dict[str, Any]) -> Any:
    return service_of([], list(masks))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("caller", ["alice", "bob", "anon"])
def test_a_query_reads_the_masks_and_never_the_values(text: str, caller: str) -> None:
    who = DATA["callers"][caller]
    request = RewriteRequest(text, "duckdb", who["principal"], authenticated=who["authenticated"])
    sql = service_with(*MASKS).rewrite(request)
    after = "SELECT * FROM sink" if text.startswith("INSERT") else ""
    masked = mask_columns(full_database(DATA), [{**mask, "column": mask["column"].lower()} for mask in MASKS], caller)
    assert rows_of(full_database(DATA), sql, after) == rows_of(masked, text, after), sql
    assert (sql == text) == (caller == "alice")


def test_a_filter_reads_the_value_and_the_query_reads_the_mask() -> None:
    policy = {
        "id": "p",
        "table": "lake.hr.salaries",
        "grantees": ["allUsers"],
        "filter": "dept = 'eng'",
        "dialect": "duckdb",
    }
    sql = service_of([policy], [MASKS[4]]).rewrite(
        RewriteRequest("SELECT dept FROM lake.hr.salaries", "duckdb", "user:b@c.d")
    )
    rows = rows_of(full_database(DATA), sql)[1]
    assert len(rows) == 2
    assert {len(row[0]) for row in rows} == {64}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("UPDATE lake.hr.salaries SET dept = 'x' WHERE salary > 500", errors.WRITE_NEEDS_FULL_ACCESS),
        ("DELETE FROM lake.hr.salaries WHERE salary > 500", errors.WRITE_NEEDS_FULL_ACCESS),
        ("INSERT INTO lake.hr.salaries VALUES (1, 'a', 'b', 2)", errors.WRITE_NEEDS_FULL_ACCESS),
        ("SELECT rowid FROM lake.hr.salaries", errors.HIDDEN_COLUMN),
        ("CREATE TEMPORARY VIEW x AS SELECT * FROM lake.hr.salaries", errors.UNSUPPORTED_STATEMENT),
    ],
)
def test_a_masked_table_is_treated_like_a_table_with_hidden_rows(text: str, code: str) -> None:
    service = service_with(*MASKS)
    assert code_of(service, RewriteRequest(text, "duckdb", "user:bob@example.com")) == code
    if code != errors.HIDDEN_COLUMN:
        assert code_of(service, RewriteRequest(text, "duckdb", "user:alice@example.com")) in ("", code)


@pytest.mark.parametrize(
    ("mask", "shown"),
    [
        ({"kind": "expression", "expression": "upper(dept)", "dialect": "duckdb"}, {"ENG", "OPS"}),
        ({"kind": "expression", "expression": "orders.dept", "dialect": "duckdb"}, {None}),
        ({"kind": "expression", "expression": "nosuch", "dialect": "duckdb"}, {None}),
        ({"kind": "expression", "expression": "upper(dept)", "dialect": "trino"}, {None}),
        ({"kind": "expression", "expression": "dept = 'eng'", "dialect": "trino"}, {"true", "false"}),
        ({"kind": "expression", "expression": "(SELECT MAX(name) FROM lake.hr.emp)", "dialect": "duckdb"}, {None}),
        ({"kind": "expression", "expression": "'a', (SELECT 1)", "dialect": "duckdb"}, {None}),
        ({"kind": "expression", "expression": "MAX(dept)", "dialect": "duckdb"}, {None}),
        ({"kind": "expression", "expression": "SESSION_USER()", "dialect": "duckdb"}, {"bob@example.com"}),
        ({"kind": "constant", "expression": "NULL"}, {None}),
        ({"kind": "constant", "expression": "it's"}, {"it's"}),
        ({"kind": "constant", "expression": "TRUE"}, {"true"}),
        ({"kind": "constant", "expression": 1.5}, {"1.5"}),
    ],
)
def test_an_expression_without_a_certain_meaning_is_null(mask: dict[str, Any], shown: set[Any]) -> None:
    body = {"id": "m", "table": "lake.hr.salaries", "column": "dept", "grantees": ["allUsers"], **mask}
    request = RewriteRequest("SELECT dept FROM lake.hr.salaries", "duckdb", "user:bob@example.com")
    rows = rows_of(full_database(DATA), service_with(body).rewrite(request))[1]
    assert {row[0] for row in rows} == shown


def test_a_constant_that_does_not_fit_the_column_is_null() -> None:
    body = {"id": "m", "table": "lake.hr.salaries", "column": "salary", "grantees": ["allUsers"], "kind": "constant"}
    request = RewriteRequest("SELECT salary FROM lake.hr.salaries", "duckdb", "user:bob@example.com")
    rows = rows_of(full_database(DATA), service_with({**body, "expression": "much"}).rewrite(request))[1]
    assert {row[0] for row in rows} == {None}


@pytest.mark.parametrize("dialect", ["bigquery", "spark", "trino", "duckdb"])
def test_every_dialect_names_the_columns_of_a_masked_table(dialect: str) -> None:
    sql = service_with(*MASKS).rewrite(
        RewriteRequest("SELECT * FROM lake.hr.salaries", dialect, "user:bob@example.com")
    )
    quote = "`" if dialect in ("bigquery", "spark") else '"'
    assert f"CASE WHEN FALSE THEN {quote}salary{quote} END AS {quote}salary{quote}" in sql
    assert "SELECT * FROM (SELECT " in sql


def test_a_masked_table_with_unknown_columns_is_refused() -> None:
    body = {"id": "m", "table": "lake.sales.n1", "column": "amount", "grantees": ["allUsers"], "kind": "null"}
    request = RewriteRequest("SELECT amount FROM n1", "duckdb", "user:bob@example.com")
    assert code_of(service_with(body), request) == errors.FILTER_INVALID


def test_a_masked_view_shows_the_mask() -> None:
    body = {"id": "m", "table": "lake.sales.v_orders", "column": "amount", "grantees": ["allUsers"], "kind": "null"}
    request = RewriteRequest("SELECT DISTINCT amount FROM v_orders", "duckdb", "user:bob@example.com")
    assert rows_of(full_database(DATA), service_with(body).rewrite(request))[1] == [[None]]


@pytest.mark.parametrize("column", ["a b (c)", "random()", "x.y", "2019-20", "#1"])
def test_a_described_column_of_any_name_is_masked(tmp_path: Path, column: str) -> None:
    document = {
        "default": ["lake", "main"], "tables": {"t": {"columns": {column: "VARCHAR", "id": "INT"}}},
        "masks": [{"id": "m", "table": "lake.main.T", "column": column.upper(), "kind": "null", "grantees": ["allUsers"]}],
    }  # fmt: skip
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(document))
    sql = service_of_files([path]).rewrite(RewriteRequest("SELECT * FROM t", "duckdb", "user:bob@example.com"))
    database = duckdb.connect()
    database.execute(f"CREATE TABLE t AS SELECT 'secret' AS \"{column}\", 1 AS id")
    assert database.execute(sql).fetchall() == [(None, 1)]
    if column != "a b (c)":
        return
    path.write_text(json.dumps(document | {"tables": {"other": {"columns": {column: "VARCHAR"}}}}))
    with pytest.raises(PolicyError, match="no plain name of a column"):
        service_of_files([path])
