"""Filters and masks as Iceberg's read restrictions: the rows and values that a reader by the specification shows."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec.iceberg import holds
from support.oracles.mask_kinds import TEXTS, text_wanted

from pdp.engines.row_access.dialects import translate_filter
from pdp.engines.row_access.engine import NO_ROWS, Restriction, hide_everything
from pdp.engines.row_access.mask_kinds import MASK_KINDS
from pdp.engines.row_access.policy_set import Mask
from pdp.engines.row_access.read_restrictions import read_restrictions, row_filter
from pdp.engines.row_access.trino import UntranslatableSql
from pdp.model.answer import Predicate, SchemaColumn

NAN: Final = math.nan
TYPES: Final = {
    "i": ("int", "INTEGER"), "k": ("int", "INTEGER"), "g": ("long", "BIGINT"), "s": ("string", "VARCHAR"),
    "r": ("string", "VARCHAR"), "x": ("double", "DOUBLE"), "f": ("float", "REAL"), "m": ("decimal(9, 2)", "DECIMAL(9, 2)"),
    "d": ("date", "DATE"), "t": ("timestamp", "TIMESTAMP"), "b": ("boolean", "BOOLEAN"),
}  # fmt: skip
COLUMNS: Final = [SchemaColumn(at, name, one[0], required=False) for at, (name, one) in enumerate(TYPES.items(), 11)]
IDS: Final = {column.name: column.id for column in COLUMNS}
BY_ID: Final = {column.id: column.type for column in COLUMNS}
DAY: Final = dt.date(2024, 2, 29)
VALUES: Final[dict[str, list[Any]]] = {
    "i": [None, 0, 1, 2, -5, 2**31 - 1], "k": [None, 0, 1, 2], "g": [None, 0, 2**53 + 1, 2**63 - 1, -(2**63)],
    "s": [None, "", "a", "ab", "B", "\U0001f600", "\uffff", "a%"], "r": [None, "", "a", "ab"],
    "x": [None, NAN, 0.0, -0.0, 1.5, -1.5, 0.1, math.inf, -math.inf, 2.0**53],
    "f": [None, NAN, 0.0, -0.0, 1.5, 0.10000000149011612, math.inf], "m": [None, Decimal("0.00"), Decimal("14.20"), Decimal("-1.50")],
    "d": [None, DAY, dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "t": [None, *map(dt.datetime.fromisoformat, ("2024-02-29", "2024-02-29T00:00:00.000001", "1969-12-31T23:00"))],
    "b": [None, True, False],
}  # fmt: skip


def rows_of(seed: int, count: int = 120) -> list[tuple[Any, ...]]:
    chooser = random.Random(seed)
    return [tuple(chooser.choice(VALUES[name]) for name in TYPES) for _ in range(count)]


ROWS: Final = rows_of(1)
NUMBERS: Final = [row for row in ROWS if not any(str(value) == "nan" for value in row)]
"""Rows without NaN, on which DuckDB and Trino agree."""


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        types = ", ".join(f"{name} {sql}" for name, (_, sql) in TYPES.items())
        for table, rows in (("every", ROWS), ("numbers", NUMBERS)):
            connection.execute(f"CREATE TABLE {table} (id INTEGER, {types})")
            marks = ", ".join("?" * (len(TYPES) + 1))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", [(at, *row) for at, row in enumerate(rows)])
        yield connection


def said(text: str, dialect: str = "trino", types: dict[str, str] | None = None) -> Any:
    """Return the predicate of an author's filter, by way of Trino's SQL as the engine has it."""
    try:
        sql = translate_filter(text, dialect, types)
    except UntranslatableSql:
        return False
    return True if sql is None else row_filter(sql, COLUMNS)


def shown_rows(predicate: Any, rows: list[tuple[Any, ...]], *, signed_zeros: bool = False) -> set[int]:
    typed = [dict(zip(IDS.values(), row, strict=True)) for row in rows]
    return {at for at, row in enumerate(typed) if holds(predicate, row, BY_ID, signed_zeros=signed_zeros)}


def visible(engine: duckdb.DuckDBPyConnection, table: str, text: str) -> set[int]:
    return {id for (id,) in engine.execute(f"SELECT id FROM {table} WHERE {text}").fetchall()}


SIGNS: Final = ["=", "<>", "<", "<=", ">", ">="]
LITERALS: Final = {
    "i": ["0", "1", "-5", "2147483647", "5000000000", "-2147483649"], "g": ["0", "9007199254740993", "-9223372036854775808"],
    "s": ["''", "'a'", "'ab'", "'\U0001f600'", "'it''s'", "'\uffff'"], "m": ["0", "14.2", "14.20", "-1.5", "5"],
    "d": ["DATE '2024-02-29'", "DATE '0001-01-01'"], "x": ["1.5", "-1.5", "0.1", "1", "9007199254740"], "f": ["1.5", "-2"],
    "t": ["TIMESTAMP '2024-02-29 00:00:00'", "TIMESTAMP '2024-02-29 00:00:00.000001'", "DATE '2024-02-29'"],
}  # fmt: skip
SAYABLE: Final = [
    *(f"{name} {sign} {value}" for name, values in LITERALS.items() for value in values for sign in SIGNS),
    *(f"{values[0]} {sign} {name}" for name, values in LITERALS.items() for sign in SIGNS),
    *(f"{name} {'NOT ' * no}IN ({', '.join(values)})" for name, values in LITERALS.items() for no in (0, 1)),
    *(f"{name} {'NOT ' * no}IN ({values[0]}, NULL)" for name, values in LITERALS.items() for no in (0, 1)),
    *(f"{name} {'NOT ' * no}BETWEEN {v[0]} AND {v[-1]}" for name, v in LITERALS.items() for no in (0, 1)),
    *(f"{name} IS {'NOT ' * no}NULL" for name in TYPES for no in (0, 1)),
    *(f"{one} {sign} {other}" for one, other in ("ik", "sr", "gg", "dd", "mm", "tt") for sign in SIGNS),
    "b", "b = TRUE", "b <> TRUE", "FALSE = b", "x > 0", "x <= 0", "0 < f", "0 >= f", "s LIKE 'a%'", "s NOT LIKE 'a%'",
    "s LIKE 'a'", "s LIKE '%'", "s LIKE 'ab%%'", "starts_with(s, 'a')", "starts_with(s, '')", "TRUE", "FALSE", "NULL",
    "'a' = 'a'", "'a' IN ('b', 'c')", "'b' > 'a'", "CASE WHEN s IS NOT NULL THEN s IN ('a', 'B') END",
]  # fmt: skip
UNSAYABLE: Final = [
    "x >= 0", "x = 0", "f <> 0", "x < 0e0", "f <= 0.1", "i > 1.5", "i = 1e0", "m = 14.205", "upper(s) = 'A'", "s LIKE '%a'", "s LIKE '_'",
    "s LIKE 'a!%%' ESCAPE '!'", "i + 1 = 2", "i IN (SELECT 1)", "x = f", "i = g", "every.i = 1", "i BETWEEN SYMMETRIC 5 AND 1", "(i = 1) IS NULL", "b > FALSE",
    "nosuch = 1", "CAST(i AS VARCHAR) = '1'", "m = 12345678.00", "x = 9007199254740993", "i IS DISTINCT FROM 1", "concat(s, r) = 'ab'",
    "CASE WHEN i = 1 THEN b ELSE FALSE END", "coalesce(b, TRUE)", "d = CAST(t AS DATE)", "t > CAST('2024-02-29 00:00:00.5' AS TIMESTAMP(0))",
]  # fmt: skip


def conditions(atoms: list[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(atoms),
        lambda inner: st.one_of(
            inner.map("NOT ({})".format),
            st.tuples(st.lists(inner, min_size=2, max_size=4), st.sampled_from([" AND ", " OR "])).map(
                lambda pair: pair[1].join(f"({one})" for one in pair[0])
            ),
        ),
        max_leaves=6,
    )


def test_each_form_shows_the_rows_of_sql(engine: Any) -> None:
    for text in [*SAYABLE, *(f"NOT ({text})" for text in SAYABLE)]:
        predicate, rows = said(text), visible(engine, "numbers", text)
        for signed_zeros in (False, True):
            assert shown_rows(predicate, NUMBERS, signed_zeros=signed_zeros) == rows, text


def test_what_cannot_be_said_shows_nothing() -> None:
    for text in UNSAYABLE:
        assert said(text) is said(f"NOT ({text})") is said(f"i IS NULL AND ({text})") is False, text
        assert said(f"i IS NULL OR ({text})") == said("i IS NULL"), text


@given(text=conditions(SAYABLE))
def test_what_can_be_said_shows_the_same_rows(engine: Any, text: str) -> None:
    assert shown_rows(said(text), NUMBERS) == visible(engine, "numbers", text)


@given(text=conditions([*SAYABLE[::7], *(one for one in UNSAYABLE if "nosuch" not in one and "every" not in one)]))
def test_what_cannot_be_said_hides_rows_and_shows_none(engine: Any, text: str) -> None:
    try:
        rows = visible(engine, "numbers", text)
    except duckdb.Error:
        return  # DuckDB has no such function, or other types
    assert shown_rows(said(text), NUMBERS) <= rows


OF_DUCKDB: Final = [text for text in SAYABLE if "TIMESTAMP" not in text and not text.startswith(("t ", "DATE"))]
SQL_TYPES: Final = {name: sql for name, (_, sql) in TYPES.items()}


PORTABLE: Final = [text for text in OF_DUCKDB if "-9223372036854775808" not in text]
"""Filters that have a certain meaning in Trino, where the types are known."""


@pytest.mark.parametrize("known", [True, False])
def test_each_form_of_duckdb_is_false_or_shows_the_rows_of_duckdb(engine: Any, known: bool) -> None:
    for text in [*OF_DUCKDB, *(f"NOT ({text})" for text in OF_DUCKDB)]:
        predicate = said(text, "duckdb", SQL_TYPES if known else None)
        assert predicate is False or shown_rows(predicate, ROWS) == visible(engine, "every", text), text


@given(text=conditions(PORTABLE))
def test_a_filter_of_duckdb_shows_the_rows_of_duckdb_with_nan_too(engine: Any, text: str) -> None:
    predicate, rows = said(text, "duckdb", SQL_TYPES), visible(engine, "every", text)
    for signed_zeros in (False, True):
        assert shown_rows(predicate, ROWS, signed_zeros=signed_zeros) == rows


@given(text=conditions(OF_DUCKDB))
def test_a_filter_of_duckdb_without_types_shows_no_other_row(engine: Any, text: str) -> None:
    assert shown_rows(said(text, "duckdb"), ROWS) <= visible(engine, "every", text)


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("column", ["x", "f"])
def test_nan_is_unequal_and_neither_above_nor_below_as_in_trino(column: str, sign: str) -> None:
    compared = {"=": "__eq__", "<>": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[sign]
    at = list(TYPES).index(column)
    for wanted, text in ((True, f"{column} {sign} 1.5"), (False, f"NOT {column} {sign} 1.5")):
        rows = {n for n, row in enumerate(ROWS) if row[at] is not None and getattr(row[at], compared)(1.5) is wanted}
        assert shown_rows(said(text), ROWS) == rows


def test_a_filter_in_32_bits_is_said_where_the_number_fits() -> None:
    assert said("f <= 0.1", "duckdb", {"f": "REAL"}) == said("CAST(f AS DOUBLE) <= 0.10000000149011612E0")
    assert said("f <= 0.1", "duckdb", {"f": "REAL"})["right"]["right"]["right"]["data-type"] == "float"
    assert said("f <= 0.1", "spark", {"f": "FLOAT"}) is False


def test_a_list_of_thousands_is_a_flat_tree() -> None:
    text = " OR ".join(f"s LIKE 'x{number}%'" for number in range(500))
    predicate, depth = said(text), 0
    while "left" in predicate and predicate["type"] in ("and", "or"):
        predicate, depth = predicate["left"], depth + 1
    assert depth <= 12
    assert said(f"{text} OR {text}") is False  # too long


def test_two_columns_of_one_folded_name_are_no_column_of_a_filter_and_both_masked() -> None:
    columns = [*COLUMNS, SchemaColumn(40, "S", "string", required=False)]
    assert row_filter("s = 'a'", columns) is False
    found = json.loads(read_restrictions(Restriction(None, "by", {"s": mask("null")}), columns).text)
    assert [one["field-id"] for one in found["required-column-projections"]] == [IDS["s"], 40]


FIXED: Final = {"string": "XXXXXXXX", "date": dt.date(1970, 1, 1)}


def shown(action: str, type: str, value: Any) -> Any:
    """Return what an action shows of a value."""
    if action == "mask-to-fixed-value":
        return FIXED[type]
    if value is None or action == "replace-with-null":
        return None
    if action == "sha-256-global":
        return hashlib.sha256(value.encode()).hexdigest()
    if action.startswith("truncate-to-"):
        return value.replace(day=1, **({} if action.endswith("month") else {"month": 1}))
    return text_wanted(action, value)


# --- masks ----------------------------------------------------------------------------------------------------------


def mask(kind: str, value: str = "") -> Mask:
    return Mask("m", "c", kind, (), (), value)


def action(kind: str, type: str, value: str = "", *, required: bool = False) -> str | None:
    """Return the action for a column; None if the table gets the filter `false`."""
    found = read_restrictions(
        Restriction(None, "by", {"c": mask(kind, value)}), [SchemaColumn(7, "C", type, required=required)]
    )
    if found.closed:
        assert json.loads(found.text) == {"required-row-filter": False}
        return None
    (one,) = json.loads(found.text)["required-column-projections"]
    assert one["field-id"] == 7
    return str(one["action"])


def hides_as_much(kind: str, value: Any, seen: Any) -> bool:
    """Tell whether a value that an action shows tells no more than the mask of a text or date."""
    if kind in ("hash", "mask-alphanum", "show-first-4", "show-last-4"):
        return seen is None if value is None else seen == text_wanted(kind, value)
    if kind.startswith("truncate"):
        return bool(seen == value) or seen.replace(day=1) == seen
    return seen in (None, "XXXXXXXX", dt.date(1970, 1, 1))


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("kind", list(MASK_KINDS))
def test_an_action_shows_no_more_than_the_mask(kind: str, required: bool) -> None:
    value = "'x'" if kind in ("constant", "expression") else ""
    for text in TEXTS:
        if text is not None or not required:
            found = action(kind, "string", value, required=required)
            assert found
            is_of_times = kind.startswith("truncate")
            seen = shown(found, "string", text)
            assert seen in (None, "XXXXXXXX") if is_of_times else hides_as_much(kind, text, seen), (kind, text)
    found = action(kind, "date", value, required=required)
    assert found
    for day in (dt.date(2024, 2, 29), dt.date(1, 12, 31)):
        seen = shown(found, "date", day)
        assert seen in (None, dt.date(1970, 1, 1)) or (kind.startswith("truncate") and hides_as_much(kind, day, seen))


@pytest.mark.parametrize(
    ("kind", "type", "value", "wanted"),
    [
        ("null", "string", "", "replace-with-null"),
        ("hash", "string", "", "sha-256-global"),
        ("hash", "long", "", "replace-with-null"),
        ("hash", "binary", "", "replace-with-null"),
        ("partial", "string", "", "mask-to-fixed-value"),
        ("partial", "int", "", "replace-with-null"),
        ("constant", "string", "'XXXXXXXX'", "mask-to-fixed-value"),
        ("constant", "string", "'XXXXXXX'", "replace-with-null"),
        ("constant", "int", "0", "mask-to-fixed-value"),
        ("constant", "int", "1", "replace-with-null"),
        ("constant", "boolean", "FALSE", "mask-to-fixed-value"),
        ("constant", "boolean", "TRUE", "replace-with-null"),
        ("expression", "string", "upper(c)", "replace-with-null"),
        ("mask-to-fixed-value", "decimal(38, 10)", "", "mask-to-fixed-value"),
        ("mask-to-fixed-value", "fixed[16]", "", "mask-to-fixed-value"),
        ("mask-to-fixed-value", "", "", "replace-with-null"),
        ("mask-to-fixed-value", "geometry", "", "replace-with-null"),
        ("truncate-to-year", "timestamptz_ns", "", "truncate-to-year"),
        ("truncate-to-month", "time", "", "replace-with-null"),
        ("show-last-4", "date", "", "replace-with-null"),
    ],
)
def test_an_action_is_for_its_types(kind: str, type: str, value: str, wanted: str) -> None:
    assert action(kind, type, value) == wanted
    has_fixed = type not in ("", "geometry")
    stricter = "mask-to-fixed-value" if wanted == "replace-with-null" else wanted
    assert action(kind, type, value, required=True) == (stricter if has_fixed else None)


def test_of_two_masks_on_one_field_the_one_that_hides_more_counts() -> None:
    columns = [
        SchemaColumn(1, "new", "string", required=False),
        SchemaColumn(1, "old", "string", required=False, current=False),
    ]
    for masks, wanted in (
        ({"new": mask("show-last-4"), "old": mask("hash")}, "sha-256-global"),
        ({"new": mask("mask-to-fixed-value"), "old": mask("show-first-4")}, "mask-to-fixed-value"),
        ({"old": mask("null"), "new": mask("expression", "x")}, "replace-with-null"),
    ):
        found = json.loads(read_restrictions(Restriction(None, "by", masks), columns).text)
        assert found["required-column-projections"] == [{"field-id": 1, "action": wanted}]


# --- a table --------------------------------------------------------------------------------------------------------


def test_rows_and_columns_of_a_restriction() -> None:
    rows = Predicate("i = 1")
    found = read_restrictions(
        Restriction(rows, "row_access:p", {"s": mask("null")}, more_rows=Predicate("k = 2")), COLUMNS
    )
    content = json.loads(found.text)
    assert content["required-row-filter"] == said("i = 1 AND k = 2")
    assert content["required-column-projections"] == [{"field-id": IDS["s"], "action": "replace-with-null"}]
    assert (found.by, found.masks, found.closed) == ("row_access:p", (("s", "row_access:m"),), False)


@pytest.mark.parametrize(
    "restriction",
    [
        Restriction(NO_ROWS, "by"),
        Restriction(NO_ROWS, "by", {"s": mask("hash")}),
        hide_everything("by"),
        Restriction(None, "by", {"gone": mask("null")}),
        Restriction(None, "by", {"$path": mask("null")}),
        Restriction(Predicate("i = 1"), "by", more_rows=Predicate("upper(s) = 'A'")),
        Restriction(Predicate("gone = 1"), "by"),
        Restriction(Predicate("i = "), "by"),
    ],
)
def test_a_restriction_that_cannot_be_said_hides_everything(restriction: Restriction) -> None:
    found = read_restrictions(restriction, COLUMNS)
    assert found.closed
    assert json.loads(found.text) == {"required-row-filter": False}
