"""Filters for StarRocks show no row that the filter itself hides: both are run on the same rows."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from pdp.dialects.starrocks.sql import starrocks_filter, starrocks_mask

TYPES = {"a": "VARCHAR", "b": "varchar", "n": "INTEGER", "m": "bigint", "d": "DATE", "t": "BOOLEAN", "f": "DOUBLE", "c": "CHAR(3)"}  # fmt: skip
TEXTS = ("'x'", "'y'", "'it''s'", "''", "'1'", "'true'")
NUMBERS = ("0", "1", "-2", "1.5")
DAYS = ("DATE '2024-01-01'", "DATE '2023-12-31'", "DATE '0001-01-01'")
COMPARED = st.one_of(
    st.tuples(st.sampled_from(["a", "b", "u"]), st.sampled_from(TEXTS)),
    st.tuples(st.sampled_from(["n", "m", "v"]), st.sampled_from(NUMBERS)),
    st.tuples(st.just("d"), st.sampled_from(DAYS)),
    st.tuples(st.sampled_from(["f"]), st.sampled_from(NUMBERS)),
    st.just(("a", "b")), st.just(("n", "m")), st.just(("'x'", "'y'")), st.just(("t", "TRUE")),
)  # fmt: skip
ATOMS = st.one_of(
    st.builds(lambda pair, sign: f"{pair[0]} {sign} {pair[1]}", COMPARED, st.sampled_from(["=", "<>", "<", "<=", ">", ">="])),
    st.builds(lambda pair, no: f"{pair[0]} {no}IN ({pair[1]}, {pair[1]})", COMPARED, st.sampled_from(["", "NOT "])),
    st.builds(lambda pair, no: f"{pair[0]} {no}BETWEEN {pair[1]} AND {pair[1]}", COMPARED, st.sampled_from(["", "NOT "])),
    st.builds(lambda name, no: f"{name} IS {no}NULL", st.sampled_from([*TYPES, "u"]), st.sampled_from(["", "NOT "])),
    st.sampled_from(["t", "NOT t", "TRUE", "FALSE", "lower(a) = 'x'", "a LIKE 'x%'", "NULL", "length(a) = 1"]),
)  # fmt: skip
FILTERS = st.recursive(
    ATOMS,
    lambda inner: st.builds(lambda one, sign, other: f"({one}) {sign} ({other})", inner, st.sampled_from(["AND", "OR"]), inner)
    | inner.map(lambda one: f"NOT ({one})"),
    max_leaves=6,
)  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("CREATE TABLE r (id INT, a TEXT, b TEXT, u TEXT, n INT, m BIGINT, v INT, d DATE, t BOOLEAN, f DOUBLE, c TEXT)")  # fmt: skip
    texts, numbers = ["x", "y", "it's", "", "1", None], [0, 1, -2, 5, None, 2]
    days, flags = ["2024-01-01", "2023-12-31", "0001-01-01", None], [True, False, None]
    for id in range(72):
        row: list[Any] = [id, texts[id % 6], texts[id // 6 % 6], texts[id % 5], numbers[id % 6], numbers[id // 5 % 6]]
        row += [numbers[id % 4], days[id % 4], flags[id % 3], numbers[id // 7 % 6], texts[id // 3 % 6]]
        database.execute(f"INSERT INTO r VALUES ({', '.join('?' * len(row))})", row)
    return database


def shown(database: duckdb.DuckDBPyConnection, text: str, dialect: str) -> set[int]:
    sql = sqlglot.transpile(f"SELECT id FROM r WHERE ({text})", read=dialect, write="duckdb")[0]
    return {id for (id,) in database.execute(sql).fetchall()}


@given(FILTERS)
def test_no_row_is_shown_that_the_filter_hides(rows: duckdb.DuckDBPyConnection, text: str) -> None:
    found = starrocks_filter(text, TYPES)
    assert shown(rows, found, "starrocks") <= shown(rows, text, "trino"), found
    if "FALSE" not in found:
        assert shown(rows, found, "starrocks") == shown(rows, text, "trino"), found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("region = 'EU'", "(`region` = 'EU')"), ("region <> 'EU'", "FALSE"), ("region = '01'", "FALSE"), ("region = 'NaN'", "FALSE"),
        ("region IN ('EU', 'US')", "(`region` IN ('EU', 'US'))"), ("NOT region = 'EU'", "FALSE"), ("a = 'x\\y'", "FALSE"), ("a = 'x`y'", "(`a` = 'x`y')"),
        ('"a`" = \'x\'', "FALSE"), ("r.a = 'x'", "FALSE"), ("a = 'x' OR n = '1'", "((`a` = 'x') OR FALSE)"), ("a IN (SELECT b FROM r)", "FALSE"),
        ("contains(CAST(ARRAY['x', 'y'] AS array(varchar)), a)", "(`a` IN ('x', 'y'))"), ("contains(CAST(ARRAY[] AS array(varchar)), a)", "FALSE"),
        ("NOT contains(CAST(ARRAY['x'] AS array(varchar)), a)", "(NOT (`a` IN ('x')))"), ("a = 'x', TRUE", "FALSE"), ("", "FALSE"), ("a = 'x' -- y", "(`a` = 'x')"),
        ("n = 9223372036854775808", "FALSE"), ("n = 1e3", "FALSE"), ("a = b", "(`a` = `b`)"), ("a = n", "FALSE"), ("a = U&'x'", "FALSE"), ("a = X'78'", "FALSE"),
        ("d = DATE '2024-01-01'", "(`d` = CAST('2024-01-01' AS DATE))"), ("d = DATE '1500-01-01'", "FALSE"), ("d = '2024-01-01'", "FALSE"), ("c = 'x'", "FALSE"),
        ("a = 'x' OR " * 2000 + "n = 1", None), ("(" * 5000 + "TRUE", "FALSE"), ("NOT " * 5000 + "TRUE", "FALSE"), ("a = 'x\u2028'", "FALSE"), ("n", "FALSE"),
    ],
)  # fmt: skip
def test_only_what_is_certain_is_said(text: str, wanted: str | None) -> None:
    found = starrocks_filter(text, TYPES)
    assert found == wanted if wanted is not None else len(found) > 20_000


def test_a_mask_is_a_constant_text_or_null() -> None:
    constant = "TRY_CAST(CAST({} AS varchar) AS varchar)"
    assert starrocks_mask(constant.format("'***'")) == "'***'"
    assert starrocks_mask(constant.format("'it''s'")) == "'it''s'"
    for text in ("'a\\b'", "5", "'a' || b", "'a\x00'"):
        assert starrocks_mask(constant.format(text)) == "NULL"
    assert starrocks_mask("CAST(NULL AS varchar)") == starrocks_mask("NULL") == "NULL"
