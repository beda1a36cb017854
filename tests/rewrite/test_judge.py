"""DuckDB's own parser judges results: what the reader misses is refused, and nothing else is."""

from __future__ import annotations

import builtins
import json
import os
import random
import time
from importlib.metadata import PackageNotFoundError
from typing import Any

import duckdb
import pytest
from support.judging import judge_seconds
from support.oracles.parser_judges import Seen, mutated, seeds, taken
from support.rewriting import (
    POLICIES,
    code_of,
    full_database,
    known_rows,
    recorded_cases,
    recorded_data,
    recorded_service,
)

from pdp.engines.row_access.policies import read_documents
from pdp.rewrite import errors, visible_relations
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.guards import DuckdbJudge
from pdp.rewrite.process import pool
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter

PDP_SEED = os.environ.get("TEST_JUDGE_SEED", "7")
BOB = "user:bob@example.com"
MISREAD = [
    "SELECT *, @1.from orders", "SELECT sku, 2, @1.from orders", "WITH c AS (SELECT 1, @1.from orders) SELECT * FROM c",
    "SELECT sku FROM items WHERE sku IN (SELECT @1.from orders)", "SELECT sku FROM items UNION ALL SELECT @1.from orders",
    "INSERT INTO items SELECT 1, @1.from orders", "CREATE TABLE copied AS SELECT *, @1.from orders",
    "INSERT INTO items (SELECT 1, @1.from orders)", "CREATE TABLE copied AS ((SELECT *, @1.from orders));",
    "INSERT INTO items SELECT 1, @1.from orders ON CONFLICT DO NOTHING", "INSERT INTO items (sku) SELECT @1.from orders",
    "CREATE TABLE copied AS SELECT *, @1.from orders WITH NO DATA",
]  # fmt: skip


def judged() -> LocalRewriter:
    documents = [source.document for source in read_documents([POLICIES])]
    catalog = catalog_of(documents)
    return LocalRewriter(catalog, policy_set_of(documents), Rewriter(catalog, judge=DuckdbJudge.start()))


JUDGED = judged()


@pytest.mark.parametrize("text", MISREAD)
def test_the_judge_refuses_a_table_that_the_reader_does_not_see(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The reader refuses such texts by itself. Without that check, the judge alone does."""
    monkeypatch.setattr(visible_relations, "check_readings", lambda parsed, dialect: None)
    request = RewriteRequest(text, "duckdb", BOB)
    recorded_service().rewrite(request)
    with pytest.raises(RewriteRefused, match="DuckDB reads other tables") as refused:
        JUDGED.rewrite(request)
    assert refused.value.rap == errors.NOT_COVERED


def test_the_judge_refuses_no_recorded_statement() -> None:
    callers, plain = recorded_data()["callers"], recorded_service()
    cases = [case for case in recorded_cases() if case["dialect"] == "duckdb"]
    judged = 0
    for case in random.Random(3).sample(cases, min(len(cases), 150)):
        who = callers[case["caller"]]
        request = RewriteRequest(case["sql"], "duckdb", who["principal"], tuple(who["groups"]), who["authenticated"])
        try:
            wanted = plain.rewrite(request)
        except RewriteRefused:
            continue
        assert known_rows(JUDGED.rewrite(request)) == known_rows(wanted)
        judged += 1
    assert judged > 50


@pytest.mark.parametrize(
    "text",
    [
        "PIVOT items ON sku USING count(*)", "UPDATE items SET sku = 'x' WHERE sku IN (SELECT sku FROM items)", "FROM items SELECT sku",
        "INSERT INTO items BY NAME SELECT * FROM items", "INSERT INTO items (SELECT * FROM items)", "DELETE FROM items WHERE sku = 'select'",
        "INSERT INTO items SELECT * FROM items RETURNING sku", "SELECT * FROM range(3), unnest([1]) AS u(a)", "VALUES (1), (2)",
        "SELECT (SELECT max(amount) FROM orders) AS x, o.id FROM orders AS o JOIN orders AS p USING (id)", "TABLE orders",
        "WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", "SELECT * FROM orders TABLESAMPLE (2 ROWS)",
    ],
)  # fmt: skip
def test_what_passes_the_reader_passes_the_judge(text: str) -> None:
    request = RewriteRequest(text, "duckdb", "user:admin@example.com")
    answers = []
    for by in (recorded_service(), JUDGED):
        try:
            answers.append(known_rows(by.rewrite(request)))
        except RewriteRefused as error:
            answers.append(error.rap)
    assert answers[0] == answers[1]


def test_a_result_that_duckdb_does_not_parse_is_refused_without_its_words() -> None:
    judge = DuckdbJudge(lambda text: '{"error":true,"error_type":"parser","error_message":"near secret"}')
    catalog = JUDGED._catalog
    by = LocalRewriter(catalog, JUDGED._policies, Rewriter(catalog, judge=judge))
    with pytest.raises(RewriteRefused, match=r"DuckDB does not parse the result$"):
        by.rewrite(RewriteRequest('SELECT "id" FROM orders', "duckdb", BOB))


def test_the_start_names_a_missing_judge_and_an_untested_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool.judge_notice() == ""
    monkeypatch.setattr(pool, "version", lambda name: "1.9.1")
    assert "not on 1.9.1" in pool.judge_notice()

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(pool, "version", missing)
    assert "lakehouse-pdp[duckdb]" in pool.judge_notice()


def test_without_duckdb_there_is_no_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "duckdb":
            raise ModuleNotFoundError(name, name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert DuckdbJudge.start() is None


def test_duckdb_sees_no_table_and_no_parameter_that_the_reader_does_not() -> None:
    """Mutated recorded statements; nightly for an hour, else for some seconds."""
    texts, dice, compared = seeds("duckdb"), random.Random(PDP_SEED), 0
    end = time.monotonic() + judge_seconds(6)
    with duckdb.connect() as database:
        while time.monotonic() < end or compared < 100:
            text = mutated(dice.choice(texts), dice)
            seen, engine = taken(text, "duckdb"), duckdb_sees(database, text)
            if seen is not None and engine is not None:
                compared += 1
                assert engine.tables <= seen.tables, text
                assert engine.parameters <= seen.parameters, text


def duckdb_sees(database: duckdb.DuckDBPyConnection, text: str) -> Seen | None:
    """Return what DuckDB's parser sees; None for a text that DuckDB does not parse as a query."""
    row = database.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    found = json.loads(row[0]) if row else {"error": True}
    tables, parameters, parts = set(), 0, [found]
    while parts and not found.get("error"):
        part = parts.pop()
        if isinstance(part, dict):
            if part.get("type") == "BASE_TABLE":
                tables.add(part["table_name"].lower())
            parameters += part.get("class") == "PARAMETER"
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return None if found.get("error") else Seen(frozenset(tables), parameters)


@pytest.mark.parametrize("dialect", ["duckdb", "trino", "spark"])
def test_a_common_table_may_have_a_dot_in_its_name(dialect: str) -> None:
    quote = "`" if dialect == "spark" else '"'
    text = 'WITH "a.1" AS (SELECT id FROM orders), "b.orders" AS (SELECT * FROM "A.1") SELECT * FROM "b.orders" JOIN "a.1" USING (id)'
    found = JUDGED.rewrite(RewriteRequest(text.replace('"', quote), dialect, BOB))
    assert found.count("region = 'US'") == 1
    for other in (
        'WITH "a.1" AS (SELECT 1 AS x) SELECT * FROM "a.2"',
        'SELECT * FROM "sales.orders"',
        'WITH "a.1" AS (SELECT 1 AS x) SELECT * FROM a."a.1"',
        'SELECT * FROM (WITH "a.1" AS (SELECT 1) SELECT 1) x, "a.1"',
    ):
        changed = other.replace('"', quote)
        assert code_of(JUDGED, RewriteRequest(changed, dialect, BOB)) == errors.UNKNOWN_RELATION, changed


def test_duckdb_reads_a_common_table_with_a_dot_in_its_name() -> None:
    database = full_database(recorded_data())
    text = 'WITH "lake.sales.items" AS (SELECT id, region FROM orders) SELECT region, count(*) AS n FROM "lake.sales.items" GROUP BY region'
    rewritten = JUDGED.rewrite(RewriteRequest(text, "duckdb", BOB))
    assert {row[0] for row in database.execute(rewritten).fetchall()} == {"US"}
    assert JUDGED.rewrite(RewriteRequest(text, "duckdb", BOB))
