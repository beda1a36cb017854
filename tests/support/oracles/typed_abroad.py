"""Filters made of each function and each type of column, to compare an author's engine with another one.

Needs no meaning: the rows of the author's engine are the meaning. A filter that another engine does not take is
refused, and one that fails at home has no rows to compare with.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import duckdb
from support.oracles.functions_abroad import Printer, by_dialect, local
from support.oracles.pieces_abroad import LOOKUP

TYPES: Final = {
    "id": "INTEGER", "s": "VARCHAR", "t": "VARCHAR", "i": "INTEGER", "g": "BIGINT", "k": "SMALLINT", "d": "DOUBLE", "f": "REAL",
    "c": "DECIMAL(18,2)", "b": "BOOLEAN", "day": "DATE", "ts": "DATETIME", "tags": "VARCHAR[]",
}  # fmt: skip
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "duckdb": {"ts": "TIMESTAMP"},
    "trino": {"ts": "TIMESTAMP(6)", "tags": "ARRAY(VARCHAR)"},
    "spark": {"s": "STRING", "t": "STRING", "f": "FLOAT", "ts": "TIMESTAMP_NTZ", "tags": "ARRAY<STRING>"},
    "bigquery": {
        "id": "INT64", "s": "STRING", "t": "STRING", "i": "INT64", "g": "INT64", "k": "INT64", "d": "FLOAT64", "f": "FLOAT64",
        "c": "NUMERIC", "b": "BOOL", "tags": "ARRAY<STRING>",
    },
}  # fmt: skip
_VALUES: Final[dict[str, list[Any]]] = {
    "s": [
        None, "", " ", "a", "ab", "EU", "eu", "eu ", " EU", "\tEU", "%", "_", "a%b", "${x}", "$", "a'b", 'a"b', "a\\b", "e\u0301", "\u00e9",
        "\U0001f600", "a\U0001f600b", "5", " 5", "5.5", "true", "2024-02-29", "NaN", "\u0130", "\u00df", "a-b", "-", "ab-12@x", "a\nb", "0x1F", "\u0665",
    ],
    "t": [None, "a", "", "EU", "b", "-", "\u00e9", "%"],
    "i": [None, 0, 1, -1, 5, 2**24 + 1, 2**31 - 1, -(2**31), -7],
    "g": [None, 0, 1, -1, 5, 2**24 + 1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 7],
    "k": [None, 0, 1, -1, 5, 2**15 - 1, -(2**15), 100],
    "d": [None, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, "nan", "inf", "-inf", 16777217.0, 9007199254740994.0, 1e300, 0.1],
    "f": [None, 0.0, -0.0, 0.5, -1.5, "nan", "inf", "-inf", 16777216.0, 0.10000000149011612, 5.0],
    "c": [None, "0.00", "0.50", "-0.50", "1.50", "2.50", "-2.50", "9999999999999999.99", "5.00", "0.10"],
    "b": [None, True, False],
    "day": [None, "2024-02-29", "2024-03-10", "0001-01-01", "9999-12-31", "1969-12-31", "1582-10-10", "2024-01-31"],
    "ts": [
        None, "2024-02-29 12:00:00.000000", "2024-03-10 02:30:00.000000", "2024-03-31 02:30:00.000000", "1969-12-31 23:59:59.999999",
        "2024-11-03 01:30:00.000000", "0001-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999", "2024-02-29 00:00:00.000000",
    ],
    "tags": [None, [], ["a"], ["EU", "a"], [None], [None, "a"], ["%"]],
}  # fmt: skip
_LITERALS: Final[dict[str, list[str]]] = {
    "s": ["'a'", "'EU'", "''", "'%'", "'5'", "' EU'", "'\u00e9'", "'a-b'"],
    "i": ["0", "5", "-1", "16777217", "2147483647"],
    "g": ["0", "5", "-1", "16777217", "9007199254740993"],
    "k": ["0", "5", "-1", "32767"],
    "d": ["0", "0.5", "-1", "16777217", "0.1", "1e300"],
    "f": ["0", "0.5", "-1", "16777216", "0.1"],
    "c": ["0", "0.5", "2.50", "-1", "5"],
    "b": ["TRUE", "FALSE"],
    "day": ["DATE '2024-02-29'", "DATE '1969-12-31'", "DATE '9999-12-30'"],
    "ts": ["DATETIME '2024-02-29 12:00:00'", "DATETIME '2024-03-10 02:30:00'"],
    "tags": ["'a'"],
}
_LITERALS["t"] = _LITERALS["s"]
_COMMON: Final = [
    "{c} = {v}", "{c} <> {v}", "{c} < {v}", "{c} >= {v}", "NOT {c} > {v}", "{c} IN ({v}, {w})", "{c} NOT IN ({v}, {w})", "{c} BETWEEN {v} AND {w}",
    "{c} IS NULL", "{c} = {e}", "{c} < {e}", "{c} = 0 OR {c} = {v}", "{c} <> 0 AND NOT {c} = {v}", "{c} IS DISTINCT FROM {v}", "{c} IS NOT DISTINCT FROM {e}", "COALESCE({c}, {v}) = {v}", "COALESCE({c}, {e}) < {w}",
    "NULLIF({c}, {v}) IS NULL", "CASE WHEN {c} > {v} THEN TRUE ELSE FALSE END", "CASE {c} WHEN {v} THEN 'x' ELSE 'y' END = 'x'",
    "IF({c} = {v}, 1, 2) = 1", "CASE WHEN b THEN {c} ELSE {e} END = {v}", "ABS({c}) >= {v}", "MOD({c}, 3) = 1", "MOD({c}, 3) <> -1", "ROUND({c}) = {v}",
    "ROUND({c}, 1) = {v}", "{c} + 1 > {v}", "{c} - 1 < {v}", "{c} * 2 = {v}", "{c} * {c} >= {v}", "{c} + {e} = {v}", "LOWER({c}) = 'eu'",
    "UPPER({c}) IN ('EU', 'SS')", "TRIM({c}) = 'EU'", "LTRIM({c}) = 'EU'", "LENGTH({c}) > 1", "SUBSTR({c}, 1, 2) = 'ab'", "SUBSTR({c}, -1) = 'b'",
    "CONCAT({c}, 'x') = 'ax'", "({c} || {e}) = 'aa'", "REPLACE({c}, 'a', '%') = '%b'", "{c} LIKE 'a%'", "{c} LIKE '_'", "NOT {c} LIKE '%b'", "{c} LIKE '%$%'",
    "EXTRACT(YEAR FROM {c}) = 2024", "EXTRACT(MONTH FROM {c}) = 3", "EXTRACT(DAY FROM {c}) > 28", "EXTRACT(HOUR FROM {c}) = 2",
    "CAST({c} AS DATE) = DATE '2024-02-29'", "EXISTS (SELECT 1 FROM m WHERE m.x = {c})", "{c} IN (SELECT x FROM m)",
]  # fmt: skip
_OWN: Final = [
    by_dialect(bigquery="CAST({c} AS STRING) = '5'", trino="CAST({c} AS VARCHAR) = '5'", spark="CAST({c} AS STRING) = '5'", duckdb="CAST({c} AS VARCHAR) = '5'"),
    by_dialect(bigquery="CAST({c} AS INT64) = 2", trino="CAST({c} AS BIGINT) = 2", spark="CAST({c} AS BIGINT) = 2", duckdb="CAST({c} AS BIGINT) = 2"),
    by_dialect(bigquery="SAFE_CAST({c} AS INT64) >= 5", trino="TRY_CAST({c} AS INTEGER) >= 5", spark="TRY_CAST({c} AS INT) >= 5", duckdb="TRY_CAST({c} AS BIGINT) >= 5"),
    by_dialect(bigquery="SAFE_CAST({c} AS BOOL)", trino="TRY_CAST({c} AS BOOLEAN)", spark="TRY_CAST({c} AS BOOLEAN)", duckdb="TRY_CAST({c} AS BOOLEAN)"),
    by_dialect(bigquery="CAST({c} AS NUMERIC) = 5", trino="CAST({c} AS DECIMAL(38, 2)) = 5", spark="CAST({c} AS DECIMAL(38, 2)) = 5", duckdb="CAST({c} AS DECIMAL(30, 2)) = 5"),
    by_dialect(bigquery="CAST({c} AS FLOAT64) > 0", trino="CAST({c} AS DOUBLE) > 0", spark="CAST({c} AS DOUBLE) > 0", duckdb="CAST({c} AS DOUBLE) > 0"),
    by_dialect(bigquery="STARTS_WITH({c}, 'a')", trino="starts_with({c}, 'a')", spark="startswith({c}, 'a')", duckdb="starts_with({c}, 'a')"),
    by_dialect(bigquery="ENDS_WITH({c}, {e})", trino="{c} LIKE '%b'", spark="endswith({c}, {e})", duckdb="ends_with({c}, {e})"),
    by_dialect(bigquery="STRPOS({c}, 'b') = 2", trino="strpos({c}, 'b') = 2", spark="instr({c}, 'b') = 2", duckdb="strpos({c}, 'b') = 2"),
    by_dialect(bigquery="SPLIT({c}, '-')[SAFE_OFFSET(1)] = 'b'", trino="split_part({c}, '-', 2) = 'b'", spark="split_part({c}, '-', 2) = ''", duckdb="split_part({c}, '-', 2) = ''"),
    by_dialect(bigquery="REGEXP_CONTAINS({c}, r'^[a-z]+$')", trino="regexp_like({c}, '^[a-z]+\\z')", spark="{c} RLIKE '^[a-z]+$'", duckdb="regexp_matches({c}, '^[a-z]+$')"),
    by_dialect(bigquery="REGEXP_EXTRACT({c}, r'([0-9]+)') = '5'", trino="regexp_extract({c}, '([0-9]+)', 1) = '5'", spark="regexp_extract({c}, '([0-9]+)', 1) IN ('5', '')", duckdb="regexp_extract({c}, '([0-9]+)', 1) IN ('5', '')"),
    by_dialect(bigquery="REGEXP_REPLACE({c}, r'(.)b', r'\\1-') = 'a-'", trino="regexp_replace({c}, '(.)b', '$1-') = 'a-'", spark="regexp_replace({c}, '(.)b', '$1-') = 'a-'", duckdb="regexp_replace({c}, '(.)b', '\\1-', 'g') = 'a-'"),
    by_dialect(bigquery="TO_HEX(SHA256({c})) = {c}", trino="lower(to_hex(sha256(to_utf8({c})))) < 'a'", spark="sha2({c}, 256) < 'a'", duckdb="sha256({c}) < 'a'"),
    by_dialect(bigquery="DATE_ADD({c}, INTERVAL 7 DAY) > DATE '2024-03-07'", trino="{c} + INTERVAL '7' DAY > DATE '2024-03-07'", spark="date_add({c}, 7) > DATE '2024-03-07'", duckdb="{c} + 7 > DATE '2024-03-07'"),
    by_dialect(bigquery="DATE_TRUNC({c}, MONTH) = DATE '2024-03-01'", trino="date_trunc('month', {c}) = DATE '2024-03-01'", spark="trunc({c}, 'MM') = DATE '2024-03-01'", duckdb="date_trunc('month', {c}) = DATE '2024-03-01'"),
    by_dialect(bigquery="DIV({c}, 2) = -3", trino="{c} / 2 = -3", spark="{c} DIV 2 = -3", duckdb="{c} // 2 = -3"),
    by_dialect(bigquery="'a' IN UNNEST({c})", trino="contains({c}, 'a')", spark="array_contains({c}, 'a')", duckdb="list_contains({c}, 'a')"),
    by_dialect(bigquery="{c} IN UNNEST([{v}, {w}])", trino="contains(ARRAY[{v}, {w}], {c})", spark="array_contains(array({v}, {w}), {c})", duckdb="list_contains([{v}, {w}], {c})"),
    by_dialect(bigquery="{c} IS TRUE", trino="{c} IS NOT DISTINCT FROM TRUE", spark="{c} IS NOT TRUE", duckdb="{c} IS NOT TRUE"),
]  # fmt: skip


def rows() -> list[dict[str, Any]]:
    """Return rows with each value of each column, beside values of the others that change."""
    count = max(map(len, _VALUES.values()))
    return [
        {"id": at, **{name: some[(at * (1 + place % 3) + place) % len(some)] if at >= len(some) else some[at]
                      for place, (name, some) in enumerate(_VALUES.items())}}
        for at in range(count)
    ]  # fmt: skip


class TypedFilter(NamedTuple):
    """Filter of an author, and its condition in another engine."""

    text: str
    condition: str


def filters(source: str, target: str) -> Iterator[TypedFilter]:
    """Yield the usable filters of each function over each column, with some of the literals."""
    printer, dice = Printer(TYPES), random.Random(f"{source} {target}")
    templates = [*_COMMON, *(own[source] for own in _OWN)]
    for template in templates:
        for column in _VALUES:
            for _ in range(2 if "{v}" in template else 1):
                text = _filled(template, column, source, dice)
                condition = printer.condition(text, source, target)
                if condition is not None:
                    yield TypedFilter(text, condition)


def _filled(template: str, column: str, dialect: str, dice: random.Random) -> str:
    one, other = (dice.choice(_LITERALS[column]) for _ in range(2))
    beside = {"s": "t", "t": "s", "i": "k", "g": "i", "k": "g", "d": "f", "f": "d"}.get(column, column)
    text = template.format(c=column, v=one, w=other, e=beside)
    name = {"bigquery": "DATETIME", "spark": "TIMESTAMP_NTZ"}.get(dialect, "TIMESTAMP")
    return re.sub(r"\bDATETIME '", f"{name} '", text)


Run = Callable[[Sequence[str]], list[list[int] | None]]
"""Engine: conditions -> the rows that each shows, or None where the engine fails."""


def differences(source: str, target: str, home: Run, abroad: Run) -> list[str]:
    """Return the filters that show other rows in another engine, or fail there; raise if few can be compared."""
    some = list(dict.fromkeys(filters(source, target)))
    found, compared = [], 0
    for filter, wanted, shown in zip(
        some, home([one.text for one in some]), abroad([one.condition for one in some]), strict=True
    ):
        compared += wanted is not None
        if shown is None or (wanted is not None and shown != wanted):
            rows = "fails" if shown is None else sorted(set(shown) ^ set(wanted or ()))
            found.append(f"{source} {filter.text} -> {target} {filter.condition}: {rows}")
    assert compared > len(some) * 0.7, (compared, len(some))
    return found


def fill_duckdb(con: duckdb.DuckDBPyConnection) -> None:
    """Make the table of the rows, and the lookup table."""
    kinds = ", ".join(f"{name} {COLUMNS['duckdb'].get(name, kind)}" for name, kind in TYPES.items())
    con.execute(f"CREATE TABLE t ({kinds})")
    con.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(TYPES))})", [list(row.values()) for row in rows()])
    con.execute("CREATE TABLE m AS SELECT unnest(?) AS x", [LOOKUP])


def shown_by_duckdb(con: duckdb.DuckDBPyConnection, conditions: Sequence[str]) -> list[list[int] | None]:
    """Return the rows that DuckDB shows under each condition; None where it fails."""
    found: list[list[int] | None] = []
    for condition in conditions:
        try:
            shown = con.execute(f"SELECT id FROM t WHERE {local(condition)} ORDER BY id").fetchall()
            found.append([row[0] for row in shown])
        except duckdb.Error:
            found.append(None)
    return found
