"""Barriers on DuckDB: no expression of a statement meets a hidden row, so no error prints one."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import Any, Final

import duckdb
import pytest

from pdp.engines.row_access.policies import parse_document
from pdp.rewrite.catalog import Catalog, catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.guards import BARRIERS, is_total
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter
from pdp.rewrite.sql import ParsedText

ALICE: Final = "user:alice@example.com"
COLUMNS: Final = {"id": "INTEGER", "region": "VARCHAR", "email": "VARCHAR", "amount": "INTEGER", "day": "DATE"}
FILTERS: Final = (
    "region = 'EU'",
    "region IN ('EU', 'AP', 'XX', 'YY', 'ZZ', 'QQ', 'KK')",
    "region LIKE 'E%'",
    "lower(region) = 'eu'",
    "amount < 100 OR amount > 5000",
    "(region = 'EU') OR (email = 'mail1')",
    "region IN (SELECT m.region FROM m WHERE m.who = SESSION_USER())",
    "EXISTS (SELECT 1 FROM m WHERE m.region = orders.region)",
    "region NOT IN (SELECT m.region FROM m WHERE m.region <> 'EU') AND region IN ('EU')",
)
FAILING: Final = (
    "email::int[] IS NOT NULL", "CAST(email AS INTEGER) > 0", "jaccard('[1]', email) > 2", "email::DATE > '2020-01-01'",
    "{'a': email}::STRUCT(a INT) IS NOT NULL", "[email]::INT[] IS NOT NULL", "email > 5", "email = amount", "email IS TRUE",
    "amount + 2147483000 > 0", "CASE WHEN amount = 777 THEN email::int ELSE 1 END > 0", "strptime(email, '%Y') IS NULL",
    "email IN (1, 2)", "email BETWEEN 1 AND 2", "NOT email", "email", "list_extract([1], email::int) = 1",
)  # fmt: skip
SHAPES: Final = (
    "SELECT count(*) FROM orders WHERE {c}",
    "SELECT id FROM orders AS o WHERE id > 0 AND {c}",
    "SELECT * FROM (SELECT *, {c} AS z FROM orders) WHERE z",
    "SELECT o.id FROM orders AS o JOIN free AS f ON f.k = o.id AND {c}",
    "SELECT o.id FROM free AS f LEFT JOIN orders AS o ON {c}",
    "WITH w AS (SELECT * FROM orders) SELECT id FROM w WHERE {c} ORDER BY id",
    "SELECT id FROM orders ORDER BY {c} LIMIT 3",
    "SELECT k FROM free WHERE EXISTS (SELECT 1 FROM orders WHERE {c} AND orders.id = free.k)",
    "SELECT id FROM v WHERE {c}",
    "SELECT {c}, count(*) FROM orders GROUP BY 1 HAVING {c}",
    "SELECT id FROM orders USING SAMPLE 5 ROWS WHERE {c}",
)


def world(
    filters: tuple[str, ...], rows: int, *, barriers: Collection[str] = tuple(BARRIERS), mask: str = ""
) -> tuple[LocalRewriter, duckdb.DuckDBPyConnection]:
    """Return the rewriter of policies, and a database of hidden and visible rows. Hidden e-mails begin with `secret`."""
    table = {"table": "orders", "grantees": ["allAuthenticatedUsers"], "dialect": "duckdb"}
    body: dict[str, Any] = {
        "default": ["memory", "main"],
        "tables": {
            "orders": {"columns": COLUMNS}, "m": {"columns": {"who": "VARCHAR", "region": "VARCHAR"}},
            "free": {"columns": {"k": "INTEGER"}},
        },
        "views": {"v": {"sql": "SELECT * FROM orders WHERE id IS NOT NULL"}},
        "policies": [{"id": f"p{at}", "filter": text, **table} for at, text in enumerate(filters)],
    }  # fmt: skip
    if mask:
        body["masks"] = [{"id": "m", "column": "amount", "kind": "expression", "expression": mask, **table}]
    document = parse_document(body).document
    catalog = catalog_of([document])
    database = duckdb.connect()
    database.execute(
        f"""CREATE TABLE orders AS SELECT i::INT AS id, CASE WHEN i % 3 = 0 THEN 'EU' ELSE 'hidden' END AS region,
        CASE WHEN i % 3 <> 0 THEN 'secret' || i END AS email,
        (CASE WHEN i % 3 = 0 THEN 50 ELSE 700 + i % 100 END)::INT AS amount, DATE '2024-01-01' AS day FROM range({rows}) t(i);
        CREATE TABLE m AS SELECT 'alice@example.com' AS who, 'EU' AS region; CREATE TABLE free AS SELECT range::INT AS k FROM range(5);
        CREATE VIEW v AS SELECT * FROM orders WHERE id IS NOT NULL"""
    )
    return LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog, barriers=barriers)), database


def leaks(service: LocalRewriter, database: duckdb.DuckDBPyConnection, text: str) -> bool:
    """Tell whether a text shows a hidden value in its rows or its error."""
    try:
        shown = str(database.execute(service.rewrite(RewriteRequest(text, "duckdb", ALICE))).fetchall())
    except RewriteRefused:
        return False
    except duckdb.Error as error:
        shown = str(error)
    return "secret" in shown or "hidden" in shown or "7" in shown.partition("Overflow")[2]


def statements() -> Iterator[str]:
    return (shape.format(c=condition) for shape in SHAPES for condition in FAILING)


def some(seed: str, count: int) -> list[str]:
    return random.Random(seed).sample(list(statements()), count)


@pytest.mark.parametrize("filter", FILTERS)
def test_no_error_prints_a_hidden_value(filter: str) -> None:
    service, database = world((filter,), 6)
    with database:
        assert [text for text in some(filter, 20) if leaks(service, database, text)] == []


@pytest.mark.parametrize("filters", [FILTERS[:1], FILTERS[:2], FILTERS[3:5], FILTERS[6:7]])
def test_no_error_prints_a_hidden_value_of_many_rows(filters: tuple[str, ...]) -> None:
    service, database = world(filters, 100_000)
    with database:
        assert [text for text in some(str(filters), 12) if leaks(service, database, text)] == []


@pytest.mark.long
@pytest.mark.parametrize("rows", [6, 100_000])
@pytest.mark.parametrize("filter", FILTERS)
def test_no_error_of_any_statement_prints_a_hidden_value(filter: str, rows: int) -> None:
    service, database = world((filter,), rows)
    with database:
        assert [text for text in statements() if leaks(service, database, text)] == []


@pytest.mark.parametrize("filter", [FILTERS[1], FILTERS[4], FILTERS[5], FILTERS[7]])
def test_without_barriers_an_error_prints_a_hidden_value(filter: str) -> None:
    service, database = world((filter,), 6, barriers=())
    with database:
        assert leaks(service, database, SHAPES[0].format(c=FAILING[0]))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, region FROM orders WHERE amount > 100 AND region = 'EU' ORDER BY id DESC LIMIT 10",
        "SELECT COUNT(*), SUM(amount), MIN(email) FROM orders HAVING COUNT(*) > 5",
        "SELECT o.id FROM orders AS o JOIN free AS f ON f.k = o.id WHERE day >= '2024-01-01' AND o.email IS NOT NULL",
        "SELECT * FROM orders WHERE UPPER(region) = 'EU' OR region LIKE 'E%' AND NOT amount IN (1, 2, 3)",
        "WITH x AS (SELECT id, amount FROM orders) SELECT COUNT(*) FROM x WHERE amount BETWEEN 1 AND 5",
    ],
)
def test_a_statement_whose_expressions_cannot_fail_has_no_barrier(text: str) -> None:
    service, database = world(FILTERS[:1], 6)
    with database:
        sql = service.rewrite(RewriteRequest(text, "duckdb", ALICE))
        assert "OFFSET 0" not in sql
        database.execute(sql)
    assert "TABLESAMPLE" not in service.rewrite(RewriteRequest(text, "spark", ALICE))


@pytest.mark.parametrize("condition", FAILING)
def test_a_condition_that_can_fail_has_a_barrier(condition: str) -> None:
    service, database = world(FILTERS[:1], 6)
    database.close()
    sql = service.rewrite(RewriteRequest(f"SELECT id FROM orders WHERE {condition}", "duckdb", ALICE))
    assert "OFFSET 0" in sql


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 FROM (SELECT email AS amount FROM orders) AS x WHERE amount > 5",
        "SELECT 1 FROM (SELECT email FROM orders) AS x (amount) WHERE amount > 5",
        "SELECT 1 FROM orders NATURAL JOIN free",
        "SELECT 1 FROM orders AS o JOIN free AS f ON o.email = f.k",
        "SELECT 1 FROM orders WHERE email",
        "SELECT 1 FROM orders HAVING email",
        "SELECT 1 FROM orders AS o JOIN free AS f ON email",
        "SELECT 1 FROM orders WHERE email IS TRUE",
        "SELECT 1 FROM orders UNION SELECT 2",
        "SELECT SUM(email) FROM orders",
        "SELECT 1 FROM orders WHERE '5' LIKE email",
        "SELECT 1 FROM orders WHERE email LIKE region",
        "SELECT 1 FROM orders WHERE (email, 1) = (5, 1)",
        "SELECT 1 FROM orders WHERE email = (SELECT 5)",
        "SELECT 1 FROM orders WHERE email IN (SELECT k FROM free)",
    ],
)
def test_what_an_engine_may_cast_is_not_total(text: str) -> None:
    catalog = _catalog()
    assert not is_total(ParsedText(text, "duckdb").tree, list(catalog), "duckdb")


def test_a_view_of_unknown_columns_joined_by_name_is_not_total() -> None:
    service, database = world(FILTERS[:1], 6)
    with database:
        sql = service.rewrite(RewriteRequest("SELECT count(*) FROM v JOIN orders USING (email)", "duckdb", ALICE))
        assert sql.count("OFFSET 0") == 2


def _catalog() -> Catalog:
    tables = {"orders": {"columns": COLUMNS}, "free": {"columns": {"k": "INTEGER"}}}
    return catalog_of([parse_document({"default": ["memory", "main"], "tables": tables}).document])


def test_a_barrier_drops_no_row() -> None:
    service, database = world(FILTERS[:1], 3_000)
    with database:
        sql = service.rewrite(RewriteRequest("SELECT count(*) FROM orders WHERE amount + 1 > 0", "duckdb", ALICE))
        assert "OFFSET 0" in sql
        assert database.execute(sql).fetchall() == [(1_000,)]


FIELDS: Final = (
    "s.b::int > 0", "t.s.b = 5", "struct_extract(s, 'b')::int > 0", "s['b']::int > 0", "(s).b::date IS NULL", "s.c.d::int > 0",
    "strptime(s.b, '%Y') IS NULL",
)  # fmt: skip
STRUCT: Final = "STRUCT(b VARCHAR, c STRUCT(d VARCHAR))"


@pytest.mark.parametrize(
    "columns",
    [{"id": "INTEGER", "region": "VARCHAR", "s": STRUCT}, {"id": "INTEGER", "region": "VARCHAR", "s": "mine"}],
)
@pytest.mark.parametrize("rows", [3, 3000])
@pytest.mark.parametrize("more", ["1 AS other", "1 AS t, 2 AS _rap_rows, 3 AS _rap_row, 4 AS columns"])
def test_no_error_prints_a_field_of_a_hidden_row(columns: dict[str, str], rows: int, more: str) -> None:
    """DuckDB reads and casts fields in its scan. No column of the table takes the place of the barrier's row."""
    policy = {
        "id": "p",
        "table": "t",
        "filter": "region = 'EU'",
        "grantees": ["allAuthenticatedUsers"],
        "dialect": "duckdb",
    }
    body = {
        "default": ["memory", "main"],
        "tables": {"t": {"columns": columns}},
        "policies": [policy],
    }
    document = parse_document(body).document
    catalog = catalog_of([document])
    service = LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))
    with duckdb.connect() as database:
        database.execute(
            f"""CREATE TABLE t AS SELECT i AS id, CASE WHEN i % 3 = 1 THEN 'EU' ELSE 'hidden' END AS region,
            {{'b': x, 'c': {{'d': x}}}} AS s, {more} FROM (SELECT i, CASE WHEN i % 3 = 1 THEN '5' ELSE 'secret' END AS x FROM range({rows}) t(i))"""
        )
        for condition in FIELDS:
            for shape in (
                "SELECT count(*) FROM t WHERE {c}",
                "SELECT max({c}) FROM t",
                "SELECT id FROM t ORDER BY {c}",
            ):
                assert not leaks(service, database, shape.format(c=condition)), condition
        written = service.rewrite(RewriteRequest("SELECT sum(s.b::int) FROM t", "duckdb", ALICE))
        assert database.execute(written).fetchall() == [(rows // 3 * 5,)]


HIDDEN_MAXIMA: Final = (700, 5_000, 44_090, 44_100, 110_000, 7_349_123)
TELLING: Final = (
    "SELECT (amount > {k}) AND CAST(email AS INTEGER) > 0 FROM orders LIMIT 1",
    "SELECT (amount <= {k}) OR CAST(email AS INTEGER) > 0 FROM orders LIMIT 1",
    "SELECT (amount + 9223372036854000000 > {k}) AND CAST(email AS INTEGER) > 0 FROM orders LIMIT 1",
    "SELECT (day < DATE '1960-01-01') AND CAST(email AS INTEGER) > 0 FROM orders LIMIT 1",
    "SELECT (amount IS NULL) AND CAST(email AS INTEGER) > 0 FROM orders LIMIT 1",
    "SELECT amount FROM orders GROUP BY amount", "SELECT DISTINCT amount FROM orders",
    "SELECT amount, count(*) FROM orders WHERE amount > 39000 AND amount < 44103 GROUP BY amount",
)  # fmt: skip


@pytest.mark.parametrize("rows", [6, 3_000])
def test_statistics_of_hidden_rows_change_no_answer(rows: int) -> None:
    """Whether an error comes, and the order of groups, are the same whatever hidden rows there are."""
    rewriter, database = world(("region = 'EU'",), rows)
    database.execute("SET threads = 1")  # several threads return groups in any order
    database.execute("UPDATE orders SET email = 'x', amount = 40000 + id * 7919 % 1000 WHERE region = 'EU'")
    database.execute("DELETE FROM orders WHERE region <> 'EU'")
    seen: dict[str, set[str]] = {}
    for hidden in HIDDEN_MAXIMA:
        database.execute(f"INSERT INTO orders VALUES (-1, 'US', 'boss', {hidden}, DATE '1951-07-19')")
        database.execute("CREATE OR REPLACE TABLE orders AS SELECT * FROM orders")
        for text in TELLING:
            for k in (5_000_000, 8_000_000):
                sql = rewriter.rewrite(RewriteRequest(text.format(k=k), "duckdb", ALICE))
                try:
                    answer = str(database.execute(sql).fetchall())
                except duckdb.Error as error:
                    answer = type(error).__name__
                seen.setdefault(sql, set()).add(answer)
        database.execute("DELETE FROM orders WHERE id = -1")
    assert {sql: answers for sql, answers in seen.items() if len(answers) > 1} == {}


MASKS: Final = (
    "CASE WHEN amount > 50000 THEN 50000 ELSE amount END", "least(amount, 50000)", "if(amount > 50000, 50000, amount)",
    "greatest(least(amount, 50000), 50)",
)  # fmt: skip


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("filters", [(), ("region = 'EU'",)])
def test_statistics_of_a_masked_column_change_no_answer(mask: str, filters: tuple[str, ...]) -> None:
    """The masked value is the same in each world, so every answer is."""
    rewriter, database = world(filters, 6, mask=mask)
    database.execute("SET threads = 1; UPDATE orders SET email = 'x', region = 'EU'")
    seen, shown = dict[str, set[str]](), set()
    for hidden in (100_000, 7_349_123):
        database.execute(
            f"INSERT INTO orders VALUES (-1, '{'US' if filters else 'EU'}', 'boss', {hidden}, DATE '1951-07-19')"
        )
        database.execute("CREATE OR REPLACE TABLE orders AS SELECT * FROM orders")
        rows = rewriter.rewrite(RewriteRequest("SELECT id, amount FROM orders ORDER BY id", "duckdb", ALICE))
        shown.add(str(database.execute(rows).fetchall()))
        for text in TELLING:
            for k in (105_000, 8_000_000):
                sql = rewriter.rewrite(RewriteRequest(text.format(k=k), "duckdb", ALICE))
                try:
                    answer = str(sorted(database.execute(sql).fetchall()))
                except duckdb.Error as error:
                    answer = type(error).__name__
                seen.setdefault(sql, set()).add(answer)
        database.execute("DELETE FROM orders WHERE id = -1")
    assert len(shown) == 1
    assert {sql: answers for sql, answers in seen.items() if len(answers) > 1} == {}


SAMPLES: Final = (
    "bernoulli(30%) REPEATABLE (3)", "system(30%) REPEATABLE (3)", "30 PERCENT (bernoulli, 3)", "30% (system, 7)", "100%", "system(100%)",
    "(100 PERCENT)", "reservoir(100%)", "5000 ROWS", "reservoir(5000 ROWS)",
)  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES)
def test_hidden_rows_do_not_change_a_sample(sample: str) -> None:
    rewriter, database = world(("region = 'EU'",), 6)
    sql = rewriter.rewrite(RewriteRequest(f"SELECT id FROM orders TABLESAMPLE {sample} ORDER BY id", "duckdb", ALICE))
    seen = set()
    for every in (1_000_000, 7, 2):
        database.execute(
            f"""CREATE OR REPLACE TABLE orders AS SELECT i AS id, 'EU' AS region, 'x' AS email, 1 AS amount, DATE '2024-01-01' AS day
            FROM range(5000) t(i) UNION ALL SELECT i - 0.5, 'US', 'secret', 2, DATE '2024-01-01' FROM range(1, 5000, {every}) t(i) ORDER BY 1"""
        )
        seen.add(str(database.execute(sql).fetchall()))
    assert len(seen) == 1


@pytest.mark.parametrize(
    "sample", ["reservoir(5 ROWS) REPEATABLE (3)", "5 ROWS (reservoir, 3)", "reservoir(10%) REPEATABLE (3)"]
)
def test_a_seed_with_which_hidden_rows_decide_is_refused(sample: str) -> None:
    rewriter, _ = world(("region = 'EU'",), 6)
    with pytest.raises(RewriteRefused, match="bernoulli"):
        rewriter.rewrite(RewriteRequest(f"SELECT id FROM orders TABLESAMPLE {sample}", "duckdb", ALICE))
    open_rows = f"SELECT k FROM free TABLESAMPLE {sample}"
    assert rewriter.rewrite(RewriteRequest(open_rows, "duckdb", ALICE)) == open_rows
