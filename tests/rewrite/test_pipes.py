"""Pipes of BigQuery and Spark: each step is read at its place, every other step is refused."""

from __future__ import annotations

import os
import random
import re
from typing import Final, NamedTuple

import duckdb
import pytest
from support.oracles.equivalence import service_of
from support.rewriting import code_of, recorded_service

from pdp.rewrite import errors
from pdp.rewrite.process.local import RewriteRequest

SEED: Final = os.environ.get("TEST_JUDGE_SEED", "7")
BOB: Final = "user:bob@example.com"
RECORDED: Final = recorded_service()
SERVICE: Final = service_of(
    [{"id": "p", "table": "orders", "grantees": ["allUsers"], "filter": "region = 'US'", "dialect": "bigquery"}]
)
SOURCE: Final = re.compile(
    r"\(SELECT \* FROM orders(?: AS _rap_row_\w+)? WHERE (?:_rap_row_\w+\.)?region = 'US'\)(?: AS orders)?"
)
UNREADABLE: Final = (
    errors.UNSUPPORTED_STATEMENT, errors.PARSE_ERROR, errors.UNSUPPORTED_FUNCTION, errors.UNKNOWN_RELATION, errors.UNSUPPORTED_SOURCE,
)  # fmt: skip


class Step(NamedTuple):
    """Step as a pipe, and as a query on `{rows}`. `@` stands for the restricted table."""

    pipe: str
    query: str


STEPS: Final = [
    Step("WHERE id > 1", "SELECT * FROM {rows} WHERE id > 1"),
    Step("WHERE id IN (SELECT id FROM @ AS x WHERE x.id < 9)", "SELECT * FROM {rows} WHERE id IN (SELECT id FROM @ AS x WHERE x.id < 9)"),
    Step("WHERE EXISTS (FROM @ AS y |> WHERE y.id = 3)", "SELECT * FROM {rows} WHERE EXISTS (SELECT * FROM @ AS y WHERE y.id = 3)"),
    Step("SELECT id, region, id + 1 AS n,", "SELECT id, region, id + 1 AS n FROM {rows}"),
    Step("SELECT DISTINCT id, region", "SELECT DISTINCT id, region FROM {rows}"),
    Step("SELECT id, region, (SELECT MAX(z.id) FROM @ AS z) AS m", "SELECT id, region, (SELECT MAX(z.id) FROM @ AS z) AS m FROM {rows}"),
    Step("SELECT id, region, SUM(id) OVER w AS s WINDOW w AS (PARTITION BY region)", "SELECT id, region, SUM(id) OVER w AS s FROM {rows} WINDOW w AS (PARTITION BY region)"),
    Step("EXTEND id * 2 AS twice, (SELECT COUNT(*) FROM @ AS c) AS many", "SELECT *, id * 2 AS twice, (SELECT COUNT(*) FROM @ AS c) AS many FROM {rows}"),
    Step("EXTEND ROW_NUMBER() OVER w AS k WINDOW w AS (PARTITION BY region ORDER BY id)", "SELECT *, ROW_NUMBER() OVER (PARTITION BY region ORDER BY id) AS k FROM {rows}"),
    Step("SET id = id + (SELECT MIN(q.id) FROM @ AS q), region = UPPER(region)", "SELECT * REPLACE (id + (SELECT MIN(q.id) FROM @ AS q) AS id, UPPER(region) AS region) FROM {rows}"),
    Step("RENAME id AS i |> RENAME i AS id", "SELECT * FROM {rows}"),
    Step("AGGREGATE COUNT(*) AS number, MAX(id) AS id DESC GROUP BY region", "SELECT region, COUNT(*) AS number, MAX(id) AS id FROM {rows} GROUP BY region"),
    Step("AGGREGATE SUM(id) AS s GROUP AND ORDER BY region DESC, MOD(id, 2) AS id ASC NULLS LAST", "SELECT region, MOD(id, 2) AS id, SUM(id) AS s FROM {rows} GROUP BY ALL"),
    Step("AGGREGATE GROUP BY region, id", "SELECT region, id FROM {rows} GROUP BY region, id"),
    Step("ORDER BY id DESC, region", "SELECT * FROM {rows}"),
    Step("LIMIT 100 |> EXTEND 1 AS a1, 2 AS a2", "SELECT *, 1 AS a1, 2 AS a2 FROM {rows}"),
    Step("AS named |> WHERE named.id < 90", "SELECT * FROM {rows} AS named WHERE named.id < 90"),
    Step("DISTINCT", "SELECT DISTINCT * FROM {rows}"),
    Step("JOIN (SELECT id AS other FROM @ AS j) AS k ON TRUE |> SELECT id, region, other", "SELECT id, region, other FROM {rows} JOIN (SELECT id AS other FROM @ AS j) AS k ON TRUE"),
    Step("LEFT JOIN (FROM @ AS l |> SELECT region AS r2) AS rr ON r2 = region |> SELECT id, region", "SELECT id, region FROM {rows} LEFT JOIN (SELECT region AS r2 FROM @ AS l) AS rr ON r2 = region"),
    Step("SELECT id, region |> UNION ALL (SELECT id, region FROM @ AS u), (FROM @ AS v |> SELECT id, region)", "SELECT id, region FROM {rows} UNION ALL SELECT id, region FROM @ AS u UNION ALL SELECT id, region FROM @ AS v"),
    Step("SELECT id, region |> EXCEPT DISTINCT (SELECT 3, 'US')", "SELECT id, region FROM {rows} EXCEPT SELECT 3, 'US'"),
]  # fmt: skip
HEADS: Final = [
    Step("FROM @ AS o", "SELECT * FROM @ AS o"), Step("SELECT id, region FROM @ AS o WHERE id < 50", "SELECT id, region FROM @ AS o WHERE id < 50"),
    Step("WITH c AS (FROM @ AS o |> WHERE id > 0) FROM c", "SELECT * FROM @ AS o WHERE id > 0"), Step("(SELECT * FROM @ AS o)", "SELECT * FROM @ AS o"),
    Step("FROM (SELECT * FROM @ AS o) AS b", "SELECT * FROM @ AS o"), Step("FROM @", "SELECT * FROM @"),
]  # fmt: skip


def pipeline(dice: random.Random) -> tuple[str, str]:
    """Return a text with pipes, and the same query without, with marks for the table."""
    head = dice.choice(HEADS)
    text, query = head
    for number in range(dice.randrange(1, 5)):
        step = dice.choice(STEPS)
        text += f"\n|> {step.pipe}"
        query = step.query.format(rows=f"({query}) AS rows{number}")
    return text, query


def rows_of(sources: list[str], query: str, where: str) -> list[str]:
    database = duckdb.connect()
    database.execute(
        f"CREATE TABLE orders AS SELECT * FROM (VALUES (1, 'EU'), (2, 'US'), (3, 'US'), (7, 'EU'), (5, 'US'), (NULL, 'US')) v(id, region) {where}"
    )
    pieces = query.split("@")
    filled = pieces[0] + "".join(source + piece for source, piece in zip(sources, pieces[1:], strict=True))
    return sorted(map(repr, database.execute(filled).fetchall()))


@pytest.mark.parametrize("part", range(4))
def test_rows_are_those_of_the_text_on_visible_rows(part: int) -> None:
    """DuckDB has no pipes: the same query without them gets the sources that the rewriter puts into the text."""
    dice, judged = random.Random(f"{SEED}{part}"), 0
    for _ in range(30):
        text, query = pipeline(dice)
        written = text.replace("@", "orders")
        try:
            wanted = rows_of(["orders"] * query.count("@"), query, "WHERE region = 'US'")
        except duckdb.Error:
            continue
        rewritten = SERVICE.rewrite(RewriteRequest(written, "bigquery", BOB))
        sources = SOURCE.findall(rewritten)
        assert SOURCE.sub("@", rewritten).replace("@ AS orders", "@") == text, rewritten
        # the text has its tables in the order of the pipes, the query in another: all are filtered alike
        plain = sources[0].removesuffix(" AS orders")
        assert len(sources) == text.count("@")
        assert (
            rows_of([f"{plain} AS orders" if one.endswith("orders") else plain for one in in_query(query)], query, "")
            == wanted
        ), text
        judged += 1
    assert judged > 12


def in_query(query: str) -> list[str]:
    """Return what stands for each table of a query: a name of its own where the query gives none."""
    return ["AS x" if after.startswith(" AS ") else "AS orders" for after in query.split("@")[1:]]


@pytest.mark.parametrize(
    "step",
    [
        "CALL f(1)", "TEE (|> SELECT 1)", "FORK (|> SELECT 1), (|> SELECT 2)", "INSERT INTO items", "CREATE TABLE n", "EXPORT DATA OPTIONS(uri='x') ", "ASSERT id > 1", "LOG", "DESCRIBE",
        "STATIC_DESCRIBE", "WITH x AS (SELECT 1)", "TABLESAMPLE SYSTEM (10 PERCENT)", "MATCH_RECOGNIZE (x)", "IF TRUE THEN (SELECT 1)", "RECURSIVE UNION ALL (SELECT 1)", "WINDOW SUM(id) OVER () AS s",
        "FROM items", "id > 1", "(SELECT 1)", "", "orders", "GROUP BY id", "HAVING id > 1", "USING x", "NATURAL JOIN items", "TRUNCATE", "`WHERE` id > 1", "`CALL` f(1)", "EXTENDS id", "VALUES (1)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("dialect", ["bigquery", "spark"])
def test_an_unknown_step_is_refused(dialect: str, step: str) -> None:
    for text in (
        f"FROM items |> {step}",
        f"FROM orders |> {step} |> WHERE id > 1",
        f"SELECT * FROM (FROM orders |> {step})",
    ):
        assert code_of(RECORDED, RewriteRequest(text, dialect, BOB)) in UNREADABLE, text


@pytest.mark.parametrize(
    "text",
    [
        "FROM orders o |> JOIN o.tags", "FROM orders o |> WHERE TRUE |> CROSS JOIN o.tags AS t", "FROM orders o |> WHERE EXISTS (SELECT 1 FROM o.tags)", "FROM orders |> AS o |> LEFT JOIN o.tags ON TRUE",
        "FROM items |> EXTEND (SELECT COUNT(*) FROM items.tags) AS n", "FROM items |> WHERE nosuch(sku)", "FROM items |> AGGREGATE s.f(sku) GROUP BY sku", "FROM items |> AGGREGATE COUNT(*) GROUP BY secrets(sku)",
        "FROM items |> ORDER BY secrets(sku)", "FROM items |> JOIN nosuch USING (sku)", "FROM items |> UNION ALL (SELECT * FROM nosuch)", "FROM items |> UNION ALL (SELECT 1), (FROM nosuch)", "FROM nosuch |> SELECT 1",
        "FROM items |> SET sku = (SELECT MAX(a) FROM nosuch)", "FROM items |> RENAME sku AS x, (SELECT a FROM nosuch) AS y", "FROM items |> DROP sku, (SELECT a FROM nosuch)", "FROM items |> LIMIT (SELECT a FROM nosuch)",
        "FROM items |> PIVOT (MAX(secrets(qty)) FOR sku IN ('a'))", "FROM items |> PIVOT (MAX(qty) FOR sku IN (SELECT a FROM nosuch))", "INSERT INTO sink FROM items |> SELECT sku", "CREATE TABLE n AS FROM items |> SELECT sku",
        "FROM items | > SELECT sku", "|> SELECT 1", "FROM items |>", "FROM items |> |> SELECT sku", "SELECT f(items |> SELECT sku)", "FROM items |> SELECT (sku |> WHERE sku)", "FROM items |> SELECT [sku |> WHERE sku]",
        "FROM orders |> SELECT _partitiontime", "FROM orders |> AGGREGATE MAX(_file_name)", "FROM items |> AGGREGATE COUNT(*) GROUP BY sku x", "FROM items" + " |> WHERE qty > 1" * 41, "FROM items |> SELECT sku FROM nosuch",
        "FROM items |> AGGREGATE COUNT(*) c DESC, secrets(1) ASC", "FROM items |> EXTEND 1 AS a WINDOW w AS (ORDER BY secrets(1))", "WITH x AS (SELECT 1) (SELECT 2) |> SELECT 1", "FROM items |> AS nosuch, nosuch",
        "FROM items SELECT sku |> WHERE TRUE", "UPDATE items SET sku = 'a' |> WHERE TRUE", "FROM items |> WHERE sku IN (FROM nosuch |> SELECT a)", "FROM items |> JOIN (FROM nosuch |> SELECT a) AS x ON TRUE",
    ],
)  # fmt: skip
def test_what_a_step_may_read_unseen_is_refused(text: str) -> None:
    assert code_of(RECORDED, RewriteRequest(text, "bigquery", BOB)) in (*UNREADABLE, errors.HIDDEN_COLUMN)


@pytest.mark.parametrize("dialect", ["trino", "duckdb"])
def test_other_dialects_have_no_pipes(dialect: str) -> None:
    assert code_of(RECORDED, RewriteRequest("FROM items |> SELECT sku", dialect, BOB)) == errors.UNSUPPORTED_STATEMENT


@pytest.mark.parametrize(
    "text",
    [
        "TABLE {} |> WHERE id > 1", "FROM {} |> SELECT DISTINCT id", "TABLE {} |> EXTEND 1 AS z |> SET z = z + id", "FROM items |> CROSS JOIN {} |> AGGREGATE count(*) GROUP BY region",
        "FROM items |> SELECT sku |> UNION ALL (SELECT region FROM {})", "FROM {} |> ORDER BY id |> LIMIT 3 |> OFFSET 1", "FROM {} |> DROP id |> AS x", "FROM items |> WHERE sku IN (TABLE {} |> SELECT region)",
    ],
)  # fmt: skip
def test_pipes_of_spark_are_read(text: str) -> None:
    found = RECORDED.rewrite(RewriteRequest(text.format("orders"), "spark", BOB))
    assert "region = 'US'" in found
    assert found.count("|>") == text.count("|>")


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("FROM (SELECT 1 AS user) |> WHERE user = 1", True), ("FROM items |> EXTEND sku AS user |> WHERE user = 'x'", True), ("FROM items |> WHERE user = 'x'", False),
        ("FROM items |> SET sku = user", False), ("FROM items |> AGGREGATE count(*) GROUP BY sku AS user |> WHERE user = 'x'", True),
    ],
)  # fmt: skip
def test_the_user_of_spark_is_a_column_where_a_step_made_one(text: str, is_kept: bool) -> None:
    found = RECORDED.rewrite(RewriteRequest(text, "spark", BOB))
    assert (found == text) is is_kept
    assert ("'bob@example.com'" in found) is not is_kept
