"""Words that touch numbers and dots: what DuckDB reads as a source is never a column to the rewriter."""

from __future__ import annotations

import json
import random
from typing import Final

import duckdb
import pytest
from sqlglot import exp
from support.rewriting import code_of, recorded_service

from pdp.rewrite import errors
from pdp.rewrite.process.local import RewriteRequest
from pdp.rewrite.readings import check_readings
from pdp.rewrite.sql import ParsedText

SERVICE = recorded_service()
BOB = "user:bob@example.com"
DIALECTS = ("bigquery", "duckdb", "spark", "trino")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT *, @1.from {t}", "SELECT 1, @1.from {t}", "SELECT @1.FROM {t} x", "SELECT 1, @1. from {t}",
        "SELECT 1.from {t}", "SELECT .5from {t}", "SELECT 1.5from {t}", "SELECT 0x1from {t}", "SELECT 1_000.from {t}",
        "SELECT $1from {t}", "SELECT #1from {t}", "select.5from {t}", "SELECT x.5from {t}", "SELECT 1.e5from {t}",
        "SELECT 1e5.from {t}", "SELECT (SELECT @1.from {t})", "SELECT * FROM items WHERE sku = (SELECT 1, @1.from {t})",
        "SELECT 1 FROM items i JOIN items j ON i.sku = @1.join {t}", "WITH x AS (SELECT 1.from {t}) SELECT * FROM x",
        "SELECT 1 . from {t}", "SELECT x[1].from {t}", "SELECT (1).from {t}", "SELECT 'a'.from {t}", "SELECT x.join {t}",
        "SELECT 1e+5from {t}", "SELECT 1e-5from {t}", "SELECT 1e+5dfrom {t}", "SELECT 1E+5FFROM {t}", "SELECT x, 1e-0bdfrom {t}",
        "SELECT 1.5e+5dfrom {t}", "SELECT .5e+5lfrom {t}", "SELECT EXISTS (SELECT 1e+5dfrom {t})", "SELECT 1e+5d.from {t}",
        "SELECT * FROM items i JOIN items j ON i.sku = 1e+5djoin {t}", "SELECT 1.e+5dfrom {t}", "SELECT 1e+5e+5dfrom {t}",
        "SELECT 1 UNION ALL SELECT 2, @1.from {t}", "SELECT 1, @1./**/from {t}", "SELECT 1, @1 .from {t}",
    ],
)  # fmt: skip
def test_a_word_that_touches_a_number_or_dot_hides_no_source(dialect: str, text: str) -> None:
    if (dialect, text[7:9]) in {("bigquery", "#1"), ("spark", "0x"), ("spark", "$1")}:
        pytest.skip("a comment, or a name that begins with a digit")
    for table in ("orders", "nosuch"):
        assert code_of(SERVICE, RewriteRequest(text.format(t=table), dialect, BOB))


@pytest.mark.parametrize("text", ["SELECT 1.from nosuch", "SELECT 1e5from nosuch", "SELECT .5from nosuch"])
def test_the_fast_pass_leaves_such_a_text_to_the_parser(text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, "duckdb", BOB)) == errors.PARSE_ERROR


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("duckdb", "SELECT 1.5, 1e5, 1.e5, .5, 0x1F, 1_000, 1., -1.5e-3, sku FROM items"),
        ("duckdb", "SELECT EXTRACT(year FROM DATE '2024-01-01'), sku IS NOT DISTINCT FROM qty FROM items"),
        ("duckdb", "FROM items SELECT sku"),
        ("duckdb", "FROM x: items SELECT x.sku"),
        ("duckdb", "SELECT SUBSTRING('abc' FROM (SELECT MAX(qty) FROM items) - 640) AS x"),
        ("trino", "SELECT 1.5E0, 1.5, TRIM(BOTH 'x' FROM sku) FROM items"),
        ("trino", "SELECT SUBSTRING(sku FROM 2) FROM items JOIN UNNEST(ARRAY[1]) AS u (a) ON TRUE"),
        ("spark", "SELECT 1L, 2S, 3Y, 1.0D, 1.0BD, 1e5D, 1.5F, 1e+5D, 1.5e-5BD, 1e+5, sku FROM items"),
        ("spark", "SELECT x.7day FROM (SELECT sku AS 7day FROM items) AS x"),
        ("bigquery", "SELECT 0x1F, 1.5, sku FROM items JOIN UNNEST([1]) AS u ON TRUE"),
        ("bigquery", "SELECT EXTRACT(YEAR FROM CURRENT_DATE()), sku FROM `lake`.sales.items"),
    ],
)
def test_numbers_and_from_in_functions_are_read(dialect: str, text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) == ""


PIECES: Final = (
    "SELECT", "FROM", "from", "closed", "t", "x", "1", "1.", ".5", "0x1", "1e5", "1_0", "@", "$1", "#1", "?", ".", ",", "*",
    "-", "+", "!", "~", "<", ">", "=", "|", "&", "^", "(", ")", "[", "]", "'a'", '"x"', "::int", "AS", "IS", "NOT", "DISTINCT",
    "JOIN", "ON", "UNION ALL", "WHERE", "IN", "CASE WHEN", "THEN", "END", "EXTRACT(year", "/**/", ":", "->", "LATERAL", "TABLE",
)  # fmt: skip


def engine_tables(database: duckdb.DuckDBPyConnection, text: str) -> set[str] | None:
    """Return the tables that DuckDB's parser sees; None for a text that DuckDB does not parse."""
    row = database.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    found = json.loads(row[0]) if row else {"error": True}
    if found.get("error"):
        return None
    names: set[str] = set()
    parts = [found]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if part.get("type") == "BASE_TABLE":
                names.add(part["table_name"])
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return names


def mutated(dice: random.Random) -> str:
    """Return a statement with some pieces put in, taken out or run together."""
    words = dice.choice(SEEDS).split(" ")
    for _ in range(dice.randint(1, 2)):
        at = dice.randrange(len(words) + 1)
        words[at : at + dice.choice((0, 0, 1))] = [dice.choice(PIECES)]
    return "".join(word + dice.choice(("", " ", " ", " ")) for word in words)


SEEDS: Final = (
    "SELECT * , 1 FROM t",
    "SELECT * , @ 1. from closed",
    "SELECT x FROM t WHERE x = 1 AND x IN ( SELECT 1 FROM closed )",
    "SELECT x FROM t JOIN t AS u ON t.x = u.x",
    "WITH c AS ( SELECT 1 AS x ) SELECT x FROM c , t",
)


def test_the_engine_sees_no_table_that_the_rewriter_does_not() -> None:
    """DuckDB's own parser judges mutated statements, those that the rewriter takes."""
    dice, taken = random.Random(7), 0
    with duckdb.connect() as database:
        for _ in range(3_000):
            text = mutated(dice)
            try:
                parsed = ParsedText(text, "duckdb", statement=True)
                check_readings(parsed, "duckdb")
            except errors.RewriteRefused:
                continue
            seen = engine_tables(database, text)
            if seen is None:
                continue
            taken += 1
            assert seen <= {table.name for table in parsed.tree.find_all(exp.Table)}, text
    assert taken > 100


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM VALUES n9", "SELECT 1 FROM items JOIN values v ON TRUE", "SELECT 1 FROM items, VALUES a", "SELECT * FROM VALUES lower(a)",
        "SELECT * FROM (VALUES n9) AS x", "SELECT 1 WHERE EXISTS (SELECT 1 FROM Values x)", "MERGE INTO items USING values v ON TRUE WHEN MATCHED THEN DELETE",
        "SELECT * FROM VALUES trim(a) AS x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_a_table_named_values_is_no_row(dialect: str, text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB))


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("duckdb", "SELECT * FROM (VALUES (1), (lower('A'))) AS x"), ("spark", "SELECT * FROM VALUES 1, -2, 'a'"),
        ("spark", "SELECT * FROM VALUES (1, 2), (3, 4) AS t(a, b)"), ("trino", "SELECT * FROM (VALUES 1, lower('A')) AS x"),
        ("duckdb", "INSERT INTO items VALUES ('x', 1)"), ("duckdb", "VALUES (1), (2)"),
    ],
)  # fmt: skip
def test_rows_are_read(dialect: str, text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) in ("", errors.WRITE_NEEDS_FULL_ACCESS)
