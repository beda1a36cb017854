"""Pieces, patterns, lists and Spark's arithmetic of one dialect in another: refused, or closed where engines differ."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import duckdb
import pytest
from support.oracles import typed_abroad
from support.oracles.functions_abroad import DIALECTS, TYPES, Printer, rows


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute(f"create table t({', '.join(f'{name} {kind}' for name, kind in TYPES.items())})")
        con.executemany(f"insert into t values ({', '.join('?' * len(TYPES))})", [list(row.values()) for row in rows()])
        yield con


@pytest.fixture(scope="module")
def printer() -> Printer:
    return Printer()


REFUSED_CALLS = [
    ("bigquery", "REGEXP_EXTRACT(s, r'(a)(b)') = 'a'", "write one group"),
    ("bigquery", "REGEXP_EXTRACT(s, r'a', 2) = 'a'", "places"),
    ("trino", "regexp_extract(s, '(a)b', 2) = 'a'", "write one group"),
    ("trino", "regexp_extract(s, t) = 'a'", "literal"),
    ("spark", "regexp_extract(s, '(a)$', 1) = 'a'", "z"),
    ("spark", "regexp_extract(s, 'a') = 'a'", "write one group"),
    ("spark", "regexp_replace(s, 'a$', 'b') = 'a'", "z"),
    ("spark", "regexp_replace(s, 'a', 'b', 2) = 'a'", "places"),
    ("duckdb", "regexp_extract(s, 'a', 0, 'i') = 'a'", "flags"),
    ("duckdb", "regexp_replace(s, 'a', 'b', 'gi') = 'a'", "flags"),
    ("duckdb", "regexp_replace(s, 'a*', 'b', 'g') = 'a'", "match nothing"),
    ("bigquery", "REGEXP_REPLACE(s, r'a|b?', 'c') = 'a'", "match nothing"),
    ("bigquery", "REGEXP_REPLACE(s, r'^', 'c') = 'a'", "match nothing"),
    ("trino", "regexp_replace(s, '(a?)(?:b*|c)', 'c') = 'a'", "match nothing"),
    ("duckdb", "regexp_replace(s, 'a', '\\x', 'g') = 'a'", "write .+1 for"),
    ("duckdb", "regexp_replace(s, '(a)', '\\2', 'g') = 'a'", "does not have"),
    ("bigquery", "REGEXP_REPLACE(s, 'a', r'a\\x') = 'a'", "write .+1 for"),
    ("trino", "regexp_replace(s, '(a)', '$') = 'a'", "write .1"),
    ("trino", "regexp_replace(s, '(a)', '$12') = 'a'", "write .1"),
    ("spark", "regexp_replace(s, '(a)', '$n') = 'a'", "write .1"),
    ("spark", "regexp_replace(s, 'a', t) = 'a'", "literal"),
    ("spark", "split(s, '.')[0] = 'a'", "SPLIT_PART"),
    ("spark", "split(s, 'a|b')[0] = 'a'", "SPLIT_PART"),
    ("spark", "split(s, '-', 2)[0] = 'a'", "limit"),
    ("spark", "COALESCE(split(s, '-')[1], 'a') = 'a'", "can fail"),
    ("bigquery", "SPLIT(s, '-')[OFFSET(1)] IS NULL", "can fail"),
    ("bigquery", "SPLIT(s, '')[OFFSET(0)] = 'a'", "not empty"),
    ("bigquery", "SPLIT(s, t)[OFFSET(0)] = 'a'", "literal"),
    ("bigquery", "ARRAY_LENGTH(SPLIT(s, '-')) = 2", "ARRAY_SIZE|one piece"),
    ("trino", "split_part(s, '-', 0) = 'a'", "first"),
    ("trino", "split_part(s, '-', i) = 'a'", "first"),
    ("duckdb", "split_part(s, '-', -1) = 'a'", "first"),
    ("duckdb", "string_split(s, '-')[-1] = 'a'", "first"),
    ("duckdb", "split_part(UPPER(s), 'A', 1) = 'a'", "write LOWER"),
    ("trino", "contains(ARRAY['a', NULL], s)", "literals"),
    ("trino", "contains(ARRAY[0.0], d)", "literals"),
    ("trino", "contains(ARRAY[t], s)", "literals"),
    ("trino", "contains(s, 'a')", "ARRAY<STRING>"),
    ("bigquery", "'a' IN UNNEST(s)", "ARRAY<STRING>"),
    ("spark", "COALESCE(i + 1, 0) = 1", "AS BIGINT"),
    ("spark", "(i * 2 > 1) IS NULL", "AS BIGINT"),
    ("spark", "ABS(g) IS NOT DISTINCT FROM NULL", "AS BIGINT"),
    ("spark", "CASE WHEN k * k > 1 THEN TRUE ELSE FALSE END", "AS BIGINT"),
    ("spark", "2147483647 + 1 > i", "AS BIGINT"),
]


@pytest.mark.parametrize(("source", "text", "cause"), REFUSED_CALLS)
def test_a_call_that_engines_read_differently_is_refused(printer: Printer, source: str, text: str, cause: str) -> None:
    for target in set(DIALECTS) - {source}:
        refusal = printer.refusal(text, source, target)
        assert re.search(cause, refusal), (target, refusal)


@pytest.mark.parametrize("call", ["contains(tags, 'a')", "contains(tags, s)"])
def test_a_member_of_a_column_counts_where_null_counts_as_false(call: str) -> None:
    printer = Printer({**TYPES, "tags": "ARRAY(VARCHAR)", "rows": "ARRAY(INTEGER)"})
    for text in ("{}", "{} OR b", "(b AND ({}))", "CASE WHEN {} THEN b END", "IF({} OR b, TRUE, FALSE)"):
        assert printer.refusal(text.format(call), "trino", "duckdb") == "", text
    for text in ("NOT {}", "{} IS NULL", "COALESCE({}, TRUE)", "{} = TRUE", "NOT (b AND {})", "NULLIF({}, b)"):
        assert "below AND, OR and CASE WHEN" in printer.refusal(text.format(call), "trino", "duckdb"), text
    assert "ARRAY<STRING>" in printer.refusal("contains(rows, 'a')", "trino", "duckdb")


def test_zero_and_lists_are_compared_where_engines_agree() -> None:
    """Trino's lists of numbers of 32 bits with 0 miss -0.0, and engines differ on NULL in compared lists."""
    printer = Printer(typed_abroad.TYPES)
    for text in ("f = 0", "f <> 0.0", "f IN (0, 1)", "NOT f IN (1, -0.0)", "f = 1 OR 0 = f"):
        for target in ("bigquery", "spark", "duckdb"):
            assert "-0.0" in printer.refusal(text, "trino", target), text
        for source in ("spark", "duckdb"):
            assert "(f + 0)" in str(printer.condition(text, source, "trino")), text
    assert printer.refusal("f >= 0 AND d IN (0, 1)", "trino", "duckdb") == ""
    for source, target in itertools.permutations(DIALECTS, 2):
        assert "lists" in printer.refusal("tags = tags", source, target)


WRAPPED = [
    "i + 1 < -2147483647", "i - 1 > 2147483646", "i * 2 = 0 AND i <> 0", "i * 2 = -2 AND i > 0", "g + 1 < 0 AND g > 0", "g * 2 = 0 AND g <> 0",
    "k * k = 0 AND k <> 0", "ABS(i) < 0", "ABS(g) < 0", "ABS(k) < 0", "(k + k) * k = 0 AND k > 1", "ABS(i + 1) < 0", "NOT (i + 1 >= -2147483647)",
]  # fmt: skip


@pytest.mark.parametrize("text", WRAPPED)
def test_a_number_that_spark_could_wrap_shows_no_row(
    engine: duckdb.DuckDBPyConnection, printer: Printer, text: str
) -> None:
    """Each is true for a wrapped number alone, which is none where ANSI is on."""
    condition = printer.condition(text, "spark", "duckdb")
    assert condition is not None
    assert engine.execute(f"SELECT id FROM t WHERE {condition}").fetchall() == []


NESTED = [
    ("duckdb", "SUBSTR({}, -2)", "s = 'a'"), ("duckdb", "SPLIT_PART({}, '-', 1)", "s = 'a'"), ("duckdb", "regexp_extract({}, 'a', 0)", "s = 'a'"),
    ("spark", "split_part({}, '-', 1)", "s = 'a'"), ("spark", "SUBSTR({}, -2)", "s = 'a'"), ("spark", "ABS({} + 1)", "i = 1"),
    ("trino", "regexp_extract({}, 'a*')", "s = 'a'"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "call", "text"), NESTED)
def test_functions_within_functions_stay_short(printer: Printer, source: str, call: str, text: str) -> None:
    """Some print a part twice, so that 20 of them would take hours."""
    name, sign, rest = text.split()
    for _ in range(20):
        name = call.format(name)
    found = [printer.refusal(f"{name} {sign} {rest}", source, target) for target in DIALECTS if target != source]
    assert any("too long in another engine" in one for one in found)
    assert all(one == "" or "too long in another engine" in one for one in found), found
