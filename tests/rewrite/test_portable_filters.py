"""Comparisons of one dialect in another: the author's rows on a real DuckDB, or a refusal.

The oracle knows how each dialect compares, with NaN, 32 bits and whole numbers. DuckDB itself proves what it says of
DuckDB, and Spark what it says of Spark.
"""

from __future__ import annotations

import itertools
import json
import math
import operator
import random
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from pdp.engines.row_access.dialects import translate_filter
from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.trino import UntranslatableSql
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.process.local import LocalRewriter
from pdp.rewrite.rewriter import Rewriter

TYPES = {
    "i": "INTEGER",
    "g": "BIGINT",
    "f": "REAL",
    "d": "DOUBLE",
    "c": "DECIMAL(18,2)",
    "s": "VARCHAR",
    "b": "BOOLEAN",
}
EDGES: dict[str, list[Any]] = {
    "i": [None, -1, 0, 1, 5, 2147483647],
    "g": [None, 0, 5, 2**24 + 1, 2**53 + 1, -(2**53) - 1],
    "f": [None, "nan", "inf", "-inf", 0.1, 0.3, 1.5, -0.0, 16777216.0, 5.0],
    "d": [None, "nan", "inf", "-inf", 0.1, 0.3, 1.5, -0.0, float(2**53), 5.0],
    "c": [None, "0.10", "1.01", "1.50", "5.00", "-0.01"],
    "s": [None, "", "EU", "eu", "EU ", "%", "\U0001f600"],
    "b": [None, True, False],
}
NUMBERS = [
    "0",
    "1",
    "5",
    "-1",
    "1.5",
    "0.1",
    "0.3",
    "1e0",
    "1e-1",
    "1.01",
    "0.10",
    "16777217",
    "9007199254740993",
    "2147483648",
]
WORDS = ["'EU'", "'eu'", "''", "'EU '", "'F'", "'%'"]
IEEE = ("trino", "bigquery")
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
Row = dict[str, Any]


def rows() -> list[Row]:
    """Rows with each edge of each column, beside changing values of the others."""
    count = max(map(len, EDGES.values()))
    made = [
        {name: values[(at + shift) % len(values)] for shift, (name, values) in enumerate(EDGES.items())}
        for at in range(count)
    ]
    made += [{name: values[(3 * at + 1) % len(values)] for name, values in EDGES.items()} for at in range(count)]
    return [{"id": at, **row} for at, row in enumerate(made)]


def real(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def value_of(row: Row, column: str) -> Any:
    value = row[column]
    if value is None or column in "sbig":
        return value
    return Decimal(value) if column == "c" else real(float(value)) if column == "f" else float(value)


def order_key(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value)


def compared(sign: str, column: str, left: Any, literal: str, dialect: str) -> bool | None:
    """One comparison of a column with a literal, as a dialect does it."""
    if left is None:
        return None
    if column == "s":
        return COMPARE[sign](left.encode(), literal[1:-1].encode())
    if column in "igc":
        right: Any = float(literal) if "e" in literal else Decimal(literal)
        return COMPARE[sign](float(left), right) if "e" in literal else COMPARE[sign](Decimal(left), right)
    number = float(literal)
    if column == "f" and dialect in ("trino", "duckdb") and "e" not in literal:
        number = real(number)
    if dialect in IEEE:
        return COMPARE[sign](left, number)
    return COMPARE[sign](order_key(left), order_key(number))


def generated(dice: random.Random, depth: int = 2) -> tuple[str, Callable[[Row, str], bool | None]]:
    """A filter, and its value on a row in a dialect."""
    form = dice.randrange(8) if depth else dice.randrange(5)
    if form >= 6:
        (one, first), (two, second) = generated(dice, depth - 1), generated(dice, depth - 1)
        word = dice.choice(["AND", "OR"])
        return f"({one}) {word} ({two})", lambda row, dialect: joined(word, first(row, dialect), second(row, dialect))
    if form == 5:
        text, inner = generated(dice, depth - 1)
        return f"NOT ({text})", lambda row, dialect: None if (found := inner(row, dialect)) is None else not found
    column = dice.choice("igffddcs")
    has_exponent = dice.random() < 0.2  # numbers of two forms share a type in a list
    pool = WORDS if column == "s" else [one for one in NUMBERS if ("e" in one) == has_exponent]
    if form == 0:
        first_, second_ = dice.choice(pool), dice.choice(pool)
        is_not = dice.random() < 0.4

        def between(row: Row, dialect: str) -> bool | None:
            left = value_of(row, column)
            low, high = (
                compared(sign, column, left, text, dialect) for sign, text in ((">=", first_), ("<=", second_))
            )
            found = joined("AND", low, high)
            return found if not is_not or found is None else not found

        return f"{column} {'NOT ' if is_not else ''}BETWEEN {first_} AND {second_}", between
    if form == 1:
        some = [dice.choice(pool) for _ in range(dice.randrange(1, 4))]
        is_not = dice.random() < 0.5

        def listed(row: Row, dialect: str) -> bool | None:
            left = value_of(row, column)
            found = None if left is None else any(compared("=", column, left, text, dialect) for text in some)
            return found if not is_not or found is None else not found

        return f"{column} {'NOT ' if is_not else ''}IN ({', '.join(some)})", listed
    if form == 2 and dice.random() < 0.3:
        return f"{column} IS NULL", lambda row, dialect: row[column] is None
    sign, literal = dice.choice(list(COMPARE)), dice.choice(pool)
    if form == 3:
        turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
        text = f"{literal} {turned} {column}"
    else:
        text = f"{column} {sign} {literal}"
    return text, lambda row, dialect: compared(sign, column, value_of(row, column), literal, dialect)


def joined(word: str, one: bool | None, two: bool | None) -> bool | None:
    strong = word == "OR"
    if strong in (one, two):
        return strong
    return None if None in (one, two) else not strong


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("attach ':memory:' as lake; create schema lake.s; use lake.s")
    con.execute(f"create table t(id INTEGER, {', '.join(f'{name} {kind}' for name, kind in TYPES.items())})")
    con.executemany(
        f"insert into t values ({', '.join('?' * (1 + len(TYPES)))})", [list(row.values()) for row in rows()]
    )
    return con


def rewritten(text: str, source: str, target: str, types: dict[str, str] | None = None) -> str | None:
    columns = {"id": "INTEGER", **(types or TYPES)}
    policy = {"id": "p", "table": "t", "filter": text, "dialect": source}
    body = {"default": ["lake", "s"], "tables": {"t": {"columns": columns}}, "policies": [policy]}
    document = parse_document(body).document
    catalog = catalog_of([document])
    service = LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))
    asked = {"sql": "SELECT id FROM t", "dialect": target, "principal": "user:a@x.example"}
    answer = service.answer(json.dumps(asked).encode())
    if "error" in answer:
        assert answer["error"]["code"] == "RAP_FILTER_INVALID", answer
    return answer.get("sql")


@pytest.mark.parametrize("source", ["duckdb", "trino", "spark", "bigquery"])
def test_duckdb_shows_the_rows_of_the_author(engine: duckdb.DuckDBPyConnection, source: str) -> None:
    dice = random.Random(f"portable {source}")
    data, used = rows(), 0
    for _ in range(120):
        text, oracle = generated(dice)
        sql = rewritten(text, source, "duckdb")
        if sql is None:
            continue
        used += 1
        wanted = [row["id"] for row in data if oracle(row, source) is True]
        assert sorted(row[0] for row in engine.execute(sql).fetchall()) == wanted, (source, text, sql)
    assert used > 50, used


LEAKS = [
    ("f <= 0.1", "spark", "duckdb"),
    ("f NOT IN (0.1)", "duckdb", "spark"),
    ("d > 1000", "trino", "duckdb"),
    ("NOT (d > 1000)", "spark", "trino"),
]


@pytest.mark.parametrize(("text", "source", "target"), LEAKS)
def test_a_comparison_that_differs_is_not_printed_as_written(text: str, source: str, target: str) -> None:
    sql = rewritten(text, source, target)
    assert sql is None or f"WHERE {text})" not in sql


@pytest.mark.parametrize(
    "text",
    [
        "i = 5 BETWEEN FALSE AND TRUE", "ts < '2024-01-01'", "ts = '2024-01-01'", "i = TRUE", "b = 1", "s = 1", "i = '1'",
        "i = s", "f = d", "d = i", "b > i", "1 = '1'", "i IN (1, 'a')", "g = 99999999999999999999", "f = 16777217",
        "i IN (1, 1e0)", "f BETWEEN 0.1 AND 1e0", "ch = 'EU'", "fl = 0.1", "f = 1.00000000000000000001", "i = 1 IS NULL", "day < '2024-1-1'",
    ],
)  # fmt: skip
def test_what_engines_read_in_two_ways_is_refused_abroad(text: str) -> None:
    types = TYPES | {"ts": "TIMESTAMP", "day": "DATE", "ch": "CHAR(5)", "fl": "FLOAT64_OR_32"}
    for source, target in itertools.permutations(("trino", "spark", "duckdb", "bigquery"), 2):
        assert rewritten(text, source, target, types) is None, (source, target)


def test_trino_gets_the_types_of_files() -> None:
    assert translate_filter("f <= 0.1", "spark", {"f": "REAL"}) == "CAST(f AS DOUBLE) <= 0.1E0"
    assert translate_filter("d > 1", "duckdb", {"d": "DOUBLE"}) == "(NOT (d <= 1))"
    assert translate_filter("d > 1", "bigquery", {"d": "DOUBLE"}) == "d > 1"
    assert translate_filter("i > 1", "spark", {"i": "INTEGER"}) == "i > 1"
    with pytest.raises(UntranslatableSql, match="read in two ways"):
        translate_filter("ts < '2024-01-01'", "spark", {"ts": "TIMESTAMP"})


LOOKUPS = ["s IN (SELECT x FROM m)", "EXISTS (SELECT 1 FROM m WHERE m.x = s)", "i = (SELECT MAX(m.n) FROM m)"]
KINDS = [
    {"kind": "null"}, {"kind": "constant", "expression": "x"}, {"kind": "hash"}, {"kind": "partial"},
    {"kind": "expression", "expression": "upper(s)", "dialect": "home"},
]  # fmt: skip


def answer_of(policies: list[dict[str, Any]], masks: list[dict[str, Any]], target: str, sql: str) -> dict[str, Any]:
    tables = {"t": {"columns": {"id": "INTEGER", **TYPES}}, "m": {"columns": {"x": "VARCHAR", "n": "INTEGER"}}}
    entries = [{"id": f"e{at}", "table": "t", **entry} for at, entry in enumerate(policies)]
    hidden = [
        {"id": f"e{at}", "table": "t", "column": "s", "grantees": ["allUsers"], **one} for at, one in enumerate(masks)
    ]
    body = {"default": ["lake", "s"], "tables": tables, "policies": entries, "masks": hidden}
    document = parse_document(body).document
    catalog = catalog_of([document])
    service = LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))
    found: dict[str, Any] = service.answer(
        json.dumps({"sql": sql, "dialect": target, "principal": "user:a@x.example"}).encode()
    )
    return found


@pytest.mark.parametrize("target", ["duckdb", "trino", "spark", "bigquery"])
def test_a_filter_with_a_lookup_lives_beside_a_mask_and_another_filter(
    engine: duckdb.DuckDBPyConnection, target: str
) -> None:
    engine.execute("create or replace table m(x VARCHAR, n INTEGER)")
    engine.execute("insert into m values ('EU', 5), ('', 1)")
    for lookup in LOOKUPS:
        for mask in KINDS:
            masks = [{**mask, "dialect": target} if mask["kind"] == "expression" else mask]
            other = [{"filter": lookup, "dialect": target}, {"filter": "g = 5", "dialect": target}]
            for policies in (other[:1], other):
                for sql in (
                    "SELECT id, s FROM t",
                    "SELECT id FROM t WHERE id IN (SELECT id FROM t)",
                    "SELECT s FROM t AS a",
                ):
                    answer = answer_of(policies, masks, target, sql)
                    assert "sql" in answer, (lookup, mask, answer)
                    if target == "duckdb" and sql.startswith("SELECT id"):
                        wanted = engine.execute(
                            f"SELECT id FROM t WHERE {' OR '.join('(' + one['filter'] + ')' for one in policies)}"
                        ).fetchall()
                        found = engine.execute(answer["sql"]).fetchall()
                        assert sorted(row[0] for row in found) == sorted(row[0] for row in wanted)


@pytest.mark.parametrize("dialect", ["duckdb", "trino", "spark", "bigquery"])
@pytest.mark.parametrize(
    "text", ["s = 'x' OR 1", "NOT i", "s = 'x' OR 'a'", "CASE WHEN i THEN TRUE ELSE FALSE END", "i IN (SELECT n FROM m WHERE 1)"]
)  # fmt: skip
def test_a_value_in_the_place_of_a_condition_shows_no_row_at_home(dialect: str, text: str) -> None:
    """DuckDB takes any number but 0 for TRUE. A store may have such a filter of an older version."""
    answer = answer_of([{"filter": text, "dialect": dialect}], [], dialect, "SELECT id FROM t")
    assert answer["error"]["code"] == "RAP_FILTER_INVALID", answer
    sound = answer_of([{"filter": "NOT (i = 1) OR NULL", "dialect": dialect}], [], dialect, "SELECT id FROM t")
    assert "sql" in sound


FOUR = [
    {"filter": "reverse(s) = 'duck'", "dialect": "duckdb"},
    {"filter": "reverse(s) = 'trino'", "dialect": "trino"},
    {"filter": "reverse(s) = 'spark'", "dialect": "spark"},
    {"filter": "REVERSE(s) = 'big'", "dialect": "bigquery"},
]


@pytest.mark.parametrize("target", ["duckdb", "trino", "spark", "bigquery"])
def test_each_engine_uses_its_own_of_four_policies_and_masks(target: str) -> None:
    words = {
        "duckdb": "s || 'd'",
        "trino": "concat(s, 't')",
        "spark": "concat_ws('-', s, 's')",
        "bigquery": "REPLACE(s, 'b', '')",
    }
    masks = [{"kind": "expression", "expression": text, "dialect": dialect} for dialect, text in words.items()]
    own = next(policy["filter"] for policy in FOUR if policy["dialect"] == target)
    answer = answer_of(FOUR, masks, target, "SELECT s FROM t")
    assert own in answer["sql"], answer
    assert words[target] in answer["sql"], answer
    alone = [policy for policy in FOUR if policy["dialect"] != target]
    assert answer_of(alone, [], target, "SELECT s FROM t")["error"]["code"] == "RAP_FILTER_INVALID"


@pytest.mark.parametrize("dialect", ["databricks", "snowflake", "athena", "presto", "hive"])
@pytest.mark.parametrize("target", ["duckdb", "trino", "spark", "bigquery"])
def test_a_policy_in_a_dialect_without_an_engine_is_used_by_way_of_trino(dialect: str, target: str) -> None:
    for text, shown in (("s = 'EU' AND i > 1", "s = 'EU' AND i > 1"), ("s = current_user()", "s = 'a@x.example'")):
        answer = answer_of([{"filter": text, "dialect": dialect}], [], target, "SELECT id FROM t")
        assert f"WHERE {shown})" in answer["sql"], answer
    answer = answer_of([{"filter": "TRUE", "dialect": dialect}], [], target, "SELECT id FROM t")
    assert answer["sql"] == "SELECT id FROM t"
    answer = answer_of([{"filter": "lower(s) = 'eu'", "dialect": dialect}], [], target, "SELECT id FROM t")
    assert answer["error"]["code"] == "RAP_FILTER_INVALID"
