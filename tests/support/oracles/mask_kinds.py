"""Kinds of masks that mean the same in every engine: their results in plain Python, and the values to try them on.

Tests run the kinds on DuckDB, Spark 4.1.4 and Trino 476. No test runs BigQuery. What its SQL does is assumed from its
manual: SUBSTR and LENGTH count code points, RE2 matches them, CASE evaluates the branch that is taken alone.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

from support.rewriting import write_policies

from pdp.engines.row_access.mask_kinds import MASK_KINDS
from pdp.rewrite.process.local import RewriteRequest, service_of_files

DIALECTS: Final = ("bigquery", "trino", "spark", "duckdb")
TEXTS: Final = [
    None, "", "a", "7", "-", "abc", "ab1", "abcd", "1234", "abcde", "12-34", "(030) 123-45.67", "bob@example.com",
    "Bob.O'Neil@Example.com", "+49 30/1234", " ", "    ", "  a  ", "a b c d e", "trailing  ", "\t\n\r\x0b", "a\nb\nc\nd",
    "e\u0301e\u0301e\u0301", "\u00e9\u00c9\u00df\u0130", "\U0001f600", "\U0001f600" * 4, "\U0001f600" * 6,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "ab\U0001f600cd12", "\u0661\u0662\u0663\u0664\u0665", "\uff11\uff12",
    "\u00b2\u00bd\u2163", "\u4e2d\u6587\u4e2d\u6587\u4e2d", "$1\\1\\\\0", "${x}{{y}}", "'\"`;--/* */", "%_%_%", "x\x00y\x00z\x01",
    "\u2028\u2029\x85\u00a0\ufeff", "\uffff\U0010ffff\ue000", "[a-z]^$.*+?|", "n" * 300 + "9" * 300, "A-1(2),3.4@5",
]  # fmt: skip
DAYS: Final = [
    None, "2024-02-29", "2024-12-31", "2024-01-01", "2023-03-26", "1970-01-01", "1969-12-31", "1900-01-01", "1899-12-31",
    "1847-12-01", "1582-10-04", "1582-10-15", "1500-02-28", "0004-02-29", "0001-01-01", "0001-12-31", "9999-12-31", "9999-01-01",
]  # fmt: skip
TIMES: Final = [
    "00:00:00.000000",
    "00:00:00.000001",
    "01:30:00.000000",
    "12:34:56.789012",
    "23:30:00.000000",
    "23:59:59.999999",
]
MOMENTS: Final = [None, *(f"{day} {time}" for day in DAYS if day for time in TIMES)]
"""Timestamps. Those with a zone are in UTC."""


EPOCH: Final = dt.datetime.combine(dt.date(1970, 1, 1), dt.time())


class Column(NamedTuple):
    """Column of one type, spelled for each dialect in order, with its values as texts. Empty: the engine has no such."""

    types: tuple[str, str, str, str]
    values: list[str | None]
    fixed: Any

    def type(self, dialect: str) -> str:
        return self.types[DIALECTS.index(dialect)]


_ANY: Final = [None, "1"]
COLUMNS: Final[Mapping[str, Column]] = {
    "text": Column(("STRING", "VARCHAR", "STRING", "VARCHAR"), TEXTS, "XXXXXXXX"),
    "date": Column(("DATE",) * 4, DAYS, dt.date(1970, 1, 1)),
    "timestamp": Column(("DATETIME", "TIMESTAMP(6)", "TIMESTAMP_NTZ", "TIMESTAMP"), MOMENTS, EPOCH),
    "instant": Column(
        ("TIMESTAMP", "TIMESTAMP(6) WITH TIME ZONE", "TIMESTAMP", "TIMESTAMPTZ"), MOMENTS, EPOCH
    ),
    "boolean": Column(("BOOL", "BOOLEAN", "BOOLEAN", "BOOLEAN"), [None, "true", "false"], False),
    "tiny": Column(("", "TINYINT", "TINYINT", "TINYINT"), _ANY, 0),
    "small": Column(("", "SMALLINT", "SMALLINT", "SMALLINT"), _ANY, 0),
    "int": Column(("", "INTEGER", "INT", "INTEGER"), _ANY, 0),
    "long": Column(("INT64", "BIGINT", "BIGINT", "BIGINT"), _ANY, 0),
    "float": Column(("", "REAL", "FLOAT", "REAL"), _ANY, 0.0),
    "double": Column(("FLOAT64", "DOUBLE", "DOUBLE", "DOUBLE"), _ANY, 0.0),
    "decimal": Column(("NUMERIC(10, 2)", "DECIMAL(10, 2)", "DECIMAL(10, 2)", "DECIMAL(10, 2)"), _ANY, Decimal("0.00")),
    "fraction": Column(("NUMERIC(2, 2)", "DECIMAL(2, 2)", "DECIMAL(2, 2)", "DECIMAL(2, 2)"), [None, "0.5"], Decimal("0.00")),
    "time": Column(("TIME", "TIME(6)", "", "TIME"), [None, "12:34:56.789012"], dt.time()),
    "uuid": Column(("", "UUID", "", "UUID"), [None, "12345678-1234-1234-1234-123456789012"], uuid.UUID(int=0)),
    "bytes": Column(("BYTES", "VARBINARY", "BINARY", "BLOB"), [None, "secret"], b""),
    "list": Column(("ARRAY<INT64>", "ARRAY(INTEGER)", "ARRAY<INT>", "INTEGER[]"), [None], []),
    "texts": Column(("ARRAY<STRING>", "ARRAY(VARCHAR(3))", "ARRAY<VARCHAR(3)>", "VARCHAR[]"), [None], []),
    "map": Column(("", "MAP(VARCHAR, INTEGER)", "MAP<STRING, INT>", "MAP(VARCHAR, INTEGER)"), [None], {}),
    "struct": Column(
        (
            "STRUCT<a STRING, b STRUCT<c INT64, d ARRAY<BOOL>>, e DATE>",
            "ROW(a VARCHAR, b ROW(c BIGINT, d ARRAY(BOOLEAN)), e DATE)",
            "STRUCT<a: STRING, b: STRUCT<c: BIGINT, d: ARRAY<BOOLEAN>>, e: DATE>",
            "STRUCT(a VARCHAR, b STRUCT(c BIGINT, d BOOLEAN[]), e DATE)",
        ),
        [None],
        ["XXXXXXXX", [0, []], dt.date(1970, 1, 1)],
    ),
    "one": Column(("STRUCT<a BOOL>", "ROW(a BOOLEAN)", "STRUCT<a: BOOLEAN>", "STRUCT(a BOOLEAN)"), [None], [False]),
}  # fmt: skip
_TEXT_KINDS: Final = ("mask-alphanum", "show-first-4", "show-last-4")
_TIME_KINDS: Final = ("truncate-to-year", "truncate-to-month")
FAMILIES: Final = ("text", "date", "timestamp", "instant")
"""Names of columns that are families, too."""


class Pair(NamedTuple):
    """Masked column: a column of its own for each kind and type."""

    kind: str
    column: str

    @property
    def name(self) -> str:
        return f"{self.column}_{self.kind}".replace("-", "_")


def pairs(dialect: str) -> Iterator[Pair]:
    """Yield every kind with every type that it is for and that the dialect has."""
    for kind in (*_TEXT_KINDS, *_TIME_KINDS, "mask-to-fixed-value", "hash", "null"):
        names = ("text",) if kind in (*_TEXT_KINDS, "hash") else FAMILIES[1:] if kind in _TIME_KINDS else COLUMNS
        yield from (Pair(kind, name) for name in names if COLUMNS[name].type(dialect))


def document(dialect: str) -> dict[str, Any]:
    """Return a file that describes a table with a column for each pair, all masked for everybody."""
    types = {pair.name: COLUMNS[pair.column].type(dialect) for pair in pairs(dialect)}
    masks = [
        {"id": pair.name, "table": "lake.s.t", "column": pair.name, "kind": pair.kind, "grantees": ["allUsers"]}
        for pair in pairs(dialect)
    ]
    return {"tables": {"lake.s.t": {"columns": {"id": "INTEGER", **types}}}, "masks": masks}


ROWS: Final = max(len(column.values) for column in COLUMNS.values())


def rewritten(folder: Path, dialect: str, columns: str = "*") -> str:
    """Return a query of the table with the masks."""
    service = service_of_files([write_policies(folder, document(dialect))])
    return service.rewrite(RewriteRequest(f"SELECT {columns} FROM lake.s.t", dialect, "user:a@x.example"))


def value(pair: Pair, row: int) -> str | None:
    """Return the value of a column in a row. Shorter lists begin again."""
    values = COLUMNS[pair.column].values
    return values[row % len(values)]


def spelled(pair: Pair, row: int) -> str | None:
    """Return the value as a text for a cast, with the zone of an instant."""
    found = value(pair, row)
    return f"{found}+00" if found is not None and pair.column == "instant" else found


def wanted(pair: Pair, row: int) -> Any:
    """Return what a mask shows."""
    column, given = COLUMNS[pair.column], value(pair, row)
    if pair.kind == "mask-to-fixed-value":
        return column.fixed
    if given is None or pair.kind == "null":
        return None
    if pair.kind in _TIME_KINDS:
        first = _first(pair.kind, given)
        return first if pair.column == "date" else dt.datetime.combine(first, dt.time())
    return text_wanted(pair.kind, given)


def _first(kind: str, text: str) -> dt.date:
    day = dt.date.fromisoformat(text[:10])
    return day.replace(day=1) if kind == "truncate-to-month" else day.replace(month=1, day=1)


def text_wanted(kind: str, text: str) -> str:
    if kind == "hash":
        return hashlib.sha256(text.encode()).hexdigest()
    start, end = {"mask-alphanum": (0, 0), "show-first-4": (4, 0), "show-last-4": (0, 4)}[kind]
    cut = max(len(text) - end, 0)
    return text[:start] + _hidden(text[start:cut]) + text[max(cut, start) :]


def _hidden(text: str) -> str:
    return "".join("n" if sign in "0123456789" else sign if sign in "(),.@-" else "x" for sign in text)


def kinds_without_examples() -> set[str]:
    """Return the kinds that neither this file nor the tests of older kinds run."""
    return set(MASK_KINDS) - {pair.kind for pair in pairs("trino")} - {"constant", "partial", "expression"}


_SHOWN_TEXTS: Final = ("(030) 123-45.67", "Bob.O'Neil@Example.com", "e\u0301\U0001f600 12", "abcd", "")
_SHOWN_TIMES: Final = ("2024-02-29", "1899-12-31 23:30:00", "9999-12-31 23:59:59.999999")
_FIXED: Final = {
    "booleans": "boolean", "numbers": "int", "texts": "text", "`date`": "date", "`time`": "time", "timestamps": "timestamp",
    "`uuid`": "uuid", "`varbinary`, `blob`, `bytes`": "bytes", "arrays": "list", "maps": "map",
}  # fmt: skip
_WORDS: Final = {"[]": "empty", "{}": "empty", "b''": "empty", "False": "`FALSE`"}


def tables() -> str:
    """Return the tables of the documents: values and what the kinds show of them."""
    lines = [f"| text | {' | '.join(f'`{kind}`' for kind in _TEXT_KINDS)} |", "|---|---|---|---|"]
    for text in _SHOWN_TEXTS:
        shown = (text_wanted(kind, text) for kind in _TEXT_KINDS)
        lines.append(f"| {' | '.join(f'`{one}`' if one else 'empty' for one in (text, *shown))} |")
    lines += ["", "| date or timestamp | `truncate-to-year` | `truncate-to-month` |", "|---|---|---|"]
    for text in _SHOWN_TIMES:
        starts = [str(_first(kind, text)) + (" 00:00:00" if " " in text else "") for kind in _TIME_KINDS]
        lines.append(f"| {' | '.join(f'`{one}`' for one in (text, *starts))} |")
    fixed = [(words, str(COLUMNS[name].fixed)) for words, name in _FIXED.items()]
    lines += ["", "| type | `mask-to-fixed-value` |", "|---|---|"]
    lines += [f"| {words} | {_WORDS.get(text, f'`{text}`')} |" for words, text in fixed]
    return "\n".join([*lines, "| structs | the fixed values of their fields; NULL if a field has none |"])
