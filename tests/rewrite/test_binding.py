"""Names of filters and masks bind to the filtered row alone, though a table lacks the column.

The databases of these tests lack columns that the catalog knows, as an old version of a table does. The statements
offer the missing names in every place from which an engine could take them.
"""

from __future__ import annotations

import re
from typing import Any, Final

import duckdb
import pytest
import sqlglot
from sqlglot import exp
from support.rewriting import code_of, known_rows

from pdp.engines.row_access.policies import parse_document
from pdp.rewrite import rendering
from pdp.rewrite.binding import looks_around
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import FILTER_INVALID, NOT_COVERED
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter

DIALECTS: Final = ("duckdb", "trino", "spark", "bigquery")
TABLES: Final = {
    "orders": {"id": "BIGINT", "region": "VARCHAR", "owner": "VARCHAR"},
    "grants": {"region": "VARCHAR", "who": "VARCHAR"},
    "other": {"id": "BIGINT", "region": "VARCHAR"},
}
CALLER: Final = "user:eve@x.example"
FILTERS: Final = {
    "own column": "region = 'eu'",
    "own column with its table": "orders.region = 'eu'",
    "caller": "owner = SESSION_USER()",
    "lookup": "id IN (SELECT id FROM other WHERE region = 'eu')",
    "lookup for the caller": "region IN (SELECT region FROM grants WHERE who = SESSION_USER())",
    "correlated lookup": "EXISTS (SELECT 1 FROM grants WHERE grants.region = orders.region)",
    "alias": "EXISTS (SELECT 1 FROM grants g WHERE g.region = 'eu' AND g.who = 'eve@x.example')",
    "join": "EXISTS (SELECT 1 FROM grants g JOIN other o ON o.region = g.region WHERE o.id = orders.id)",
}
MISSING: Final = ("region", "owner", "who")
NAMES: Final = "'eu' AS region, 'eve@x.example' AS owner, 'eve@x.example' AS who"
FIELDS: Final = "{'region': 'eu', 'owner': 'eve@x.example', 'who': 'eve@x.example', 'id': 1}"
STATEMENTS: Final = {
    "scalar": "SELECT (SELECT count(*) FROM orders) AS n FROM (SELECT {names}) AS s",
    "alias of the table": "SELECT (SELECT count(*) FROM orders) AS n FROM (SELECT {names}) AS orders",
    "alias of the filter": "SELECT (SELECT count(*) FROM orders) AS n FROM (SELECT {names}) AS g, (SELECT {names}, 1 AS id) AS o",
    "alias of the row": "SELECT (SELECT count(*) FROM orders) AS n FROM (SELECT {names}) AS _rap_row",
    "alias of a lookup": "SELECT (SELECT count(*) FROM orders) AS n FROM (SELECT {names}) AS _rap_row_0, (SELECT {names}) AS _rap_row_1",
    "exists": "SELECT 1 AS n FROM (SELECT {names}) AS s WHERE EXISTS (SELECT 1 FROM orders)",
    "in": "SELECT 1 AS n FROM (SELECT {names}) AS s WHERE 1 IN (SELECT id FROM orders)",
    "twice": "SELECT (SELECT max(m) FROM (SELECT count(*) AS m FROM orders) AS x) AS n FROM (SELECT {names}) AS s",
    "common table": "SELECT (WITH x AS (SELECT * FROM orders) SELECT count(*) FROM x) AS n FROM (SELECT {names}) AS s",
    "union": "SELECT (SELECT count(*) FROM (SELECT id FROM orders UNION ALL SELECT id FROM orders) AS u) AS n FROM (SELECT {names}) AS s",
    "view": "SELECT (SELECT count(*) FROM v) AS n FROM (SELECT {names}) AS s",
    "join beside": "SELECT count(*) AS n FROM (SELECT {names}) AS s JOIN orders ON TRUE",
    "comma": "SELECT count(*) AS n FROM (SELECT {names}) AS s, orders",
    "join of two": "SELECT (SELECT count(*) FROM items CROSS JOIN orders) AS n FROM (SELECT {names}) AS s",
    "change": "UPDATE items SET sku = (SELECT count(*) FROM orders) FROM (SELECT {names}) AS s",
}
"""Statements for every dialect. `{names}` are columns with the missing names."""
ON_DUCKDB: Final = STATEMENTS | {
    "lateral": "SELECT count(*) AS n FROM (SELECT {names}) AS s, LATERAL (SELECT * FROM orders) AS x",
    "field": "SELECT (SELECT count(*) FROM orders) AS n FROM (SELECT {fields} AS _rap_row, {fields} AS _rap_row_0)",
    "field of a table": "SELECT (SELECT count(*) FROM orders) AS n FROM mine",
    "column of data": "SELECT (SELECT count(*) FROM orders) AS n FROM (PIVOT named ON name USING first(value))",
    "rest of a query": "FROM (SELECT {names}) AS s SELECT (FROM orders SELECT count(*)) AS n",
    "list": "SELECT [(SELECT count(*) FROM orders), 2] AS n FROM (SELECT {names}) AS s",
}
VIEWS: Final = {"v": {"sql": "SELECT id FROM orders", "columns": ["id"]}}
OPEN: Final = {"items": {"sku": "VARCHAR"}, "mine": {}, "named": {"name": "VARCHAR", "value": "VARCHAR"}}


def service(
    filter: str, dialect: str = "duckdb", masks: tuple[dict[str, Any], ...] = (), tables: Any = None
) -> LocalRewriter:
    """Return a service with a filter on `orders`."""
    policies = [{"id": "p", "table": "orders", "grantees": ["allUsers"], "filter": filter, "dialect": dialect}]
    known = {name: {"columns": columns} for name, columns in ((tables or TABLES) | OPEN).items()}
    document = parse_document(
        {"default": ["lake", "sales"], "tables": known, "views": VIEWS, "policies": policies, "masks": list(masks)}
    ).document
    catalog = catalog_of([document])
    return LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))


def database(missing: tuple[str, ...]) -> duckdb.DuckDBPyConnection:
    """Return a database without some columns, and with tables of the caller."""
    found = duckdb.connect()
    found.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.sales; USE lake.sales")
    values = {"id": "1", "region": "'eu'", "owner": "'eve@x.example'", "who": "'eve@x.example'"}
    for name, columns in TABLES.items():
        kept = [column for column in columns if column not in missing] or ["x"]
        shown = ", ".join(f"{values.get(column, '0')} AS {column}" for column in kept)
        found.execute(f"CREATE TABLE {name} AS SELECT {shown}")
    found.execute("CREATE TABLE items (sku VARCHAR); INSERT INTO items VALUES ('a')")
    found.execute(f"CREATE TABLE mine AS SELECT {FIELDS} AS _rap_row, {FIELDS} AS _rap_row_0, {FIELDS} AS _rap_row_1")
    found.execute(f"CREATE TABLE named AS SELECT '_rap_row' AS name, {FIELDS} AS value")
    found.execute(f"INSERT INTO named SELECT '_rap_row_0', {FIELDS}")
    return found


def rewritten(service: LocalRewriter, sql: str, dialect: str = "duckdb") -> str:
    return service.rewrite(RewriteRequest(sql, dialect, CALLER))


def statement(text: str) -> str:
    return text.replace("{names}", NAMES).replace("{fields}", FIELDS)


@pytest.mark.parametrize("written", ["duckdb", "bigquery"])
@pytest.mark.parametrize("filter", FILTERS.values(), ids=FILTERS)
def test_a_missing_column_is_an_error_of_the_engine(filter: str, written: str) -> None:
    if "JOIN" in filter and written != "duckdb":
        pytest.skip("joins stay in their dialect")
    rewriting, lacking, whole = service(filter, written), database(MISSING), database(())
    for text in ON_DUCKDB.values():
        sql = rewritten(rewriting, statement(text))
        whole.execute(sql)
        with pytest.raises(duckdb.Error, match=r"does not have a column|not found|Cannot extract|Referenced column"):
            lacking.execute(sql)


@pytest.mark.parametrize("missing", MISSING)
def test_one_missing_column_of_many_is_an_error_of_the_engine(missing: str) -> None:
    for filter in FILTERS.values():
        lacking = database((missing,))
        sql = rewritten(service(filter), statement(ON_DUCKDB["field of a table"]))
        reads = {"other": "id", "grants": "region"}
        if re.search(rf"\b{missing}\b", sql) and reads:
            with pytest.raises(duckdb.Error):
                lacking.execute(sql)


MASKS: Final = ({"kind": "hash"}, {"kind": "partial"}, {"kind": "null"}, {"kind": "constant", "expression": "x"},
                {"kind": "expression", "expression": "upper(region)", "dialect": "duckdb"})  # fmt: skip


@pytest.mark.parametrize("mask", MASKS, ids=[mask["kind"] for mask in MASKS])
def test_a_masked_table_without_a_column_is_an_error_of_the_engine(mask: dict[str, Any]) -> None:
    body = {"id": "m", "table": "orders", "column": "region", "grantees": ["allUsers"], **mask}
    rewriting, lacking, whole = service("TRUE", masks=(body,)), database(MISSING), database(())
    for text in ON_DUCKDB.values():
        sql = rewritten(rewriting, statement(text))
        whole.execute(sql)
        with pytest.raises(duckdb.Error):
            lacking.execute(sql)
    rows = whole.execute(rewritten(rewriting, "SELECT * FROM orders")).fetchall()
    assert [column[0] for column in whole.description or ()] == ["id", "region", "owner"]
    assert rows[0][0] == 1


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("written", DIALECTS)
def test_every_column_of_a_filter_has_the_name_of_its_source(dialect: str, written: str) -> None:
    """Bare names stay where an engine looks for names nowhere else, in filters that read no other table."""
    for filter in FILTERS.values():
        if "JOIN" in filter and written != dialect:
            continue
        rewriting = service(filter, written)
        for text in STATEMENTS.values():
            sql = rewritten(rewriting, statement(text), dialect)
            for source in sqlglot.parse_one(sql, read=dialect).find_all(exp.Table):
                query = source.find_ancestor(exp.Select)
                if source.name != "orders" or query is None:
                    continue
                inside = {table.alias for table in query.find_all(exp.Table)}
                names = {column.parts[0].name for column in query.args["where"].find_all(exp.Column)}
                is_bare = "SELECT" not in filter and not looks_around(source, dialect)
                assert is_bare or (names <= inside and all(name.startswith("_rap_row") for name in names)), sql


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("travel", "by"),
    [
        (" FOR VERSION AS OF 1", {"trino", "spark"}), (" FOR SYSTEM_TIME AS OF '2026-01-01'", {"bigquery"}),
        (" TIMESTAMP AS OF '2026-01-01'", {"spark"}), (" AT (VERSION => 1)", {"duckdb"}),
        (" TABLESAMPLE BERNOULLI (10)", {"trino"}), (" TABLESAMPLE SYSTEM (10 PERCENT)", {"bigquery"}),
    ],
)  # fmt: skip
def test_clauses_of_a_table_keep_their_place(dialect: str, travel: str, by: set[str]) -> None:
    if dialect not in by:
        pytest.skip("another dialect's clause")
    for text in (f"SELECT id FROM orders{travel}", f"SELECT (SELECT count(*) FROM orders{travel}) AS n FROM items"):
        sql = rewritten(service("region = 'eu'"), text, dialect)
        tables = sqlglot.parse_one(sql, read=dialect).find_all(exp.Table)
        source = next(table for table in tables if table.name == "orders")
        assert source.alias.startswith("_rap_row") == ("count" in text)
        assert source.args.get("version") or source.args.get("when") or source.args.get("sample")
        assert known_rows(sql).count("_rap_row.region") == ("count" in text)


@pytest.mark.parametrize(
    "filter",
    [
        "region.lower() = 'eu'", "owner = ANY ([x for x in [region]])", "id IN (SELECT id FROM (SELECT 1 AS id) AS x)",
        "id IN (SELECT other.region FROM grants)", "id IN (SELECT id FROM other JOIN orders USING (id))",
        "region IN (SELECT region FROM grants, other)", "id IN (SELECT x.a FROM other AS x(a, b))",
        "region IN (SELECT upper(region) AS region FROM grants GROUP BY region)", "nothing = 1", "g.region = 'eu'",
        "region = '_rap_row'", "EXISTS (SELECT * EXCLUDE (who) FROM grants)", "who = 'eve@x.example'",
        "id IN (SELECT id FROM other WHERE who = 'x')", "id IN (SELECT id FROM other o WHERE other.region = 'eu')",
    ],
)  # fmt: skip
def test_a_name_without_a_certain_source_makes_a_filter_invalid(filter: str) -> None:
    request = RewriteRequest("SELECT id FROM orders", "duckdb", CALLER)
    assert code_of(service(filter), request) == FILTER_INVALID


def test_a_column_with_the_name_of_the_row_makes_a_filter_invalid() -> None:
    tables = TABLES | {"orders": {"id": "BIGINT", "region": "VARCHAR", "_rap_row": "BIGINT"}}
    request = RewriteRequest("SELECT id FROM orders", "duckdb", CALLER)
    assert code_of(service("region = 'eu'", tables=tables), request) == FILTER_INVALID
    named = RewriteRequest("SELECT id FROM orders", "duckdb", "user:a_rap_row@x.example")
    assert code_of(service("owner = SESSION_USER()"), named) == FILTER_INVALID


@pytest.mark.parametrize(
    ("filter", "rows"),
    [
        ("list_contains([region, 'x'], 'eu')", 1), ("len(list_filter(['eu', 'us'], x -> x = region)) = 1", 1),
        ("EXISTS (SELECT who FROM grants WHERE grants.region = orders.region AND who = owner)", 1),
        ("region IN (SELECT max(region) FROM grants GROUP BY who HAVING count(*) > 0 ORDER BY who)", 1),
        ("EXISTS (SELECT * FROM grants)", 1), ("id IN (SELECT id FROM other WHERE other.id = orders.id)", 1),
        ("region = (SELECT region FROM grants LIMIT 1)", 1), ("region = 'us' OR NOT (owner = 'eve@x.example')", 0),
        ("struct_pack(region := region).region = 'eu'", 1),
        ("EXISTS (SELECT 1 FROM grants a, grants b WHERE a.who = b.who)", 1),
    ],
)  # fmt: skip
def test_a_filter_means_what_its_author_wrote(filter: str, rows: int) -> None:
    whole = database(())
    for text in ("SELECT id FROM orders", "SELECT 1 AS n FROM items WHERE 1 IN (SELECT id FROM orders)"):
        assert len(whole.execute(rewritten(service(filter), text)).fetchall()) == rows, text


def test_the_second_reading_refuses_bare_names_where_an_engine_looks_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "looks_around", lambda *_: False)
    for filter in FILTERS.values():
        for text in ON_DUCKDB.values():
            assert code_of(service(filter), RewriteRequest(statement(text), "duckdb", CALLER)) == NOT_COVERED, text


def test_names_that_nobody_foresees_stand_where_an_engine_looks_around() -> None:
    """A text without such places is the same every time."""
    rewriting = service("region = 'eu'")
    plain = [
        "SELECT id FROM orders",
        "WITH x AS (SELECT * FROM orders) SELECT id FROM x",
        "SELECT id FROM (SELECT id FROM v) AS y",
    ]
    for text in plain:
        assert rewritten(rewriting, text) == rewritten(rewriting, text) == known_rows(rewritten(rewriting, text))
    for text in STATEMENTS.values():
        sql = rewritten(rewriting, statement(text))
        assert sql != rewritten(rewriting, statement(text))
        assert known_rows(sql) == known_rows(rewritten(rewriting, statement(text)))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_join_hides_names_where_the_engine_does(dialect: str) -> None:
    tree = sqlglot.parse_one("SELECT 1 FROM a JOIN b ON TRUE", read=dialect)
    first, second = sorted(tree.find_all(exp.Table), key=lambda table: table.name)
    assert not looks_around(first, dialect)
    assert looks_around(second, dialect) == (dialect == "duckdb")
