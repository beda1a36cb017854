"""Temporary functions of BigQuery in front of one query: they read their arguments alone, and the query calls them."""

from __future__ import annotations

import re

import duckdb
import pytest
from support.rewriting import code_of, recorded_service

from pdp.engines.row_access.policies import parse_document
from pdp.rewrite import errors
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter

BOB = "user:bob@example.com"
SERVICE = recorded_service()
FILTERED = "(SELECT * FROM orders WHERE region = 'US') AS orders"
F = "CREATE TEMP FUNCTION f(x INT64) AS (x * 2);"


@pytest.mark.parametrize(
    "head",
    [
        F, "CREATE TEMPORARY FUNCTION f(x INT64) RETURNS INT64 AS (x + 1) ;", "create or replace temp function f(x any type) as (x);",
        "CREATE TEMP FUNCTION g(x INT64) AS (x);CREATE TEMP FUNCTION f(x INT64) AS (g(x) + g(1));", f"-- orders;\n{F}\n", f"/* ; */{F}",
        'CREATE TEMP FUNCTION f(x STRING) RETURNS STRING LANGUAGE js AS r"""return x; // FROM orders; """;',
        "CREATE TEMP FUNCTION f(x STRING) RETURNS STRING DETERMINISTIC LANGUAGE js AS 'return x; SELECT id FROM orders';",
        "CREATE TEMP FUNCTION f(x INT64) AS ((WITH a AS (SELECT x AS y) SELECT y FROM a));", "CREATE TEMP FUNCTION f(x ANY TYPE) AS ((SELECT SUM(i) FROM UNNEST([x]) AS i));",
        "CREATE TEMP FUNCTION f(x ARRAY<STRUCT<k STRING, v INT64>>) AS (ARRAY(SELECT v FROM UNNEST(x) WHERE k = 'a'));",
    ],
)  # fmt: skip
def test_the_query_behind_functions_is_rewritten(head: str) -> None:
    sql = SERVICE.rewrite(RewriteRequest(f"{head} SELECT f(id) AS x FROM orders WHERE f(id) > 1;", "bigquery", BOB))
    assert sql == f"{head} SELECT f(id) AS x FROM {FILTERED} WHERE f(id) > 1;"
    alone = head.rstrip(" ;\n")
    assert SERVICE.rewrite(RewriteRequest(alone, "bigquery", BOB)) == alone


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TEMP FUNCTION f(x INT64) AS ((SELECT MAX(id) FROM orders)); SELECT f(1)", "CREATE TEMP FUNCTION f(x INT64) AS ((SELECT MAX(sku) FROM items)); SELECT f(1)",
        "CREATE TEMP FUNCTION f(x INT64) AS (EXISTS (SELECT 1 FROM lake.hr.salaries)); SELECT f(1)", "CREATE TEMP FUNCTION f(orders ANY TYPE) AS ((SELECT COUNT(*) FROM orders)); SELECT f(1)",
        "CREATE TEMP FUNCTION f(x ANY TYPE) AS ((SELECT COUNT(*) FROM x.orders)); SELECT f(1)", "CREATE TEMP FUNCTION f(x INT64) AS (nosuch(x)); SELECT f(id) FROM orders",
        "CREATE TEMP FUNCTION f(x INT64) AS (f(x)); SELECT f(1)", "CREATE TEMP FUNCTION f(x INT64) AS (g(x)); CREATE TEMP FUNCTION g(x INT64) AS (x); SELECT f(1)",
        "CREATE TEMP FUNCTION lower(x STRING) AS (x); SELECT lower(region) FROM orders", "CREATE TEMP FUNCTION `ABS`(x INT64) AS (x); SELECT 1", "CREATE TEMP FUNCTION stats(x INT64) AS (x); SELECT 1",
        f"{F} {F} SELECT f(1)", f"{F} CREATE TEMP FUNCTION F(x INT64) AS (x); SELECT f(1)", "CREATE TEMP FUNCTION s.f(x INT64) AS (x); SELECT s.f(1)",
        "CREATE FUNCTION f(x INT64) AS (x); SELECT f(1)", f"SELECT 1; {F}", f"{F} SELECT 1; SELECT f(1)", f"{F} DROP TABLE orders", f"{F} SELECT * FROM f(1)", f"{F} SELECT s.f(1)",
        f"{F} CREATE FUNCTION g(x INT64) AS (x); SELECT 1", f"{F} BEGIN SELECT 1; END", f"{F} EXECUTE IMMEDIATE 'SELECT 1'", f"{F} SELECT `f`.x(1)", f"{F} SELECT ff(1)",
        "CREATE TEMP FUNCTION f() AS (SESSION_USER()); SELECT f()", "CREATE TEMP FUNCTION f() AS (@@session_id); SELECT f()", "CREATE TEMP FUNCTION f(x INT64) AS (x) SELECT f(id) FROM orders",
        "CREATE TEMP FUNCTION f(x STRING) RETURNS STRING LANGUAGE js OPTIONS (library=['gs://a/b.js']) AS 'x'; SELECT f('a')",
        "CREATE TEMP FUNCTION f(x STRING) RETURNS STRING LANGUAGE python AS 'x'; SELECT f('a')", "CREATE TEMP FUNCTION f(x STRING) RETURNS STRING LANGUAGE js AS (x); SELECT f('a')",
        "CREATE TEMP FUNCTION f(x STRING) RETURNS STRING REMOTE WITH CONNECTION `a.b.c` OPTIONS (endpoint='https://x'); SELECT f('a')",
        "CREATE TEMP TABLE FUNCTION f(x INT64) AS SELECT * FROM orders; SELECT * FROM f(1)", "CREATE TEMP AGGREGATE FUNCTION f(x INT64) AS ((SELECT MAX(id) FROM orders)); SELECT f(1)",
        "CREATE TEMP FUNCTION f(x INT64) AS ((SELECT COUNT(*) FROM sales.INFORMATION_SCHEMA.ROW_ACCESS_POLICIES)); SELECT f(1)", "CREATE TEMP FUNCTION f(x INT64) AS ('a'; SELECT 1",
    ],
)  # fmt: skip
def test_a_function_that_may_read_more_is_refused(text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, "bigquery", BOB)) in (
        errors.UNSUPPORTED_FUNCTION, errors.UNKNOWN_RELATION, errors.PARSE_ERROR, errors.MULTI_STATEMENT, errors.UNSUPPORTED_STATEMENT,
        errors.UNSUPPORTED_SOURCE,
    )  # fmt: skip


@pytest.mark.parametrize("dialect", ["duckdb", "spark", "trino"])
def test_other_dialects_take_one_statement(dialect: str) -> None:
    assert code_of(SERVICE, RewriteRequest(f"{F} SELECT f(1)", dialect, BOB)) == errors.MULTI_STATEMENT


def test_a_view_calls_no_function_of_the_statement() -> None:
    """The statement's function would see columns that the view hides."""
    document = parse_document({
        "default": ["lake", "sales"], "tables": {"t": {"columns": {"id": "INT64", "secret": "STRING"}}},
        "policies": [{"id": "p", "table": "t", "grantees": ["allUsers"], "filter": "id > 1", "dialect": "bigquery"}],
        "functions": [{"name": "shorten", "reads": "nothing"}], "views": {"v": {"sql": "SELECT id, shorten(secret) AS s FROM t"}, "w": {"sql": "SELECT f(secret) AS s FROM t"}},
    }).document  # fmt: skip
    catalog = catalog_of([document])
    service = LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))
    assert code_of(service, RewriteRequest("SELECT s FROM v", "bigquery", BOB)) == ""
    for name, view in (("shorten", "v"), ("SHORTEN", "v"), ("f", "w")):
        text = f"CREATE TEMP FUNCTION {name}(x STRING) AS (x); SELECT s FROM {view}"
        assert code_of(service, RewriteRequest(text, "bigquery", BOB)) == errors.UNSUPPORTED_FUNCTION


@pytest.mark.parametrize(
    "query",
    [
        "SELECT f(id) AS x FROM orders",
        "SELECT id FROM orders WHERE f(id) > 2",
        "SELECT f(MAX(id)) FROM orders GROUP BY region",
        "SELECT f(o.id) FROM orders AS o JOIN orders AS p ON f(o.id) = f(p.id)",
    ],
)
@pytest.mark.parametrize("body", ["x * 2", "CASE WHEN x > 2 THEN x ELSE 0 END", "(SELECT x + 1)"])
def test_rows_are_those_of_the_text_on_visible_rows(query: str, body: str) -> None:
    """DuckDB has macros in place of such functions."""
    sql = SERVICE.rewrite(RewriteRequest(f"CREATE TEMP FUNCTION f(x INT64) AS ({body}); {query}", "bigquery", BOB))
    rows = "(1, 'EU'), (2, 'US'), (3, 'US'), (4, 'EU'), (NULL, 'US')"
    found = []
    for text, where in ((re.sub("CREATE.*?; ", "", sql), ""), (query, "WHERE region = 'US'")):
        database = duckdb.connect()
        database.execute(
            f"CREATE TABLE orders AS SELECT * FROM (VALUES {rows}) v(id, region) {where}; CREATE MACRO f(x) AS ({body})"
        )
        found.append(sorted(map(repr, database.execute(text).fetchall())))
    assert found[0] == found[1]
