"""Filters with casts, DIV and ROUND, what each dialect means by them, and the rows to try them on.

The meanings are plain Python. DuckDB, Spark 4.1.4, Trino 476 and GoogleSQL's evaluator were asked first.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from typing import Any, Final

from support.oracles.functions_abroad import DIALECTS, MEANINGS, Form, Meaning, Oracle, Row, by_dialect, of, three_or

TYPES: Final = {
    "id": "INTEGER", "s": "VARCHAR", "i": "INTEGER", "g": "BIGINT", "c": "DECIMAL(18,2)", "d": "DOUBLE", "b": "BOOLEAN",
    "day": "DATE",
}  # fmt: skip
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "duckdb": {}, "trino": {}, "spark": {"s": "STRING"},
    "bigquery": {
        "id": "INT64", "s": "STRING", "i": "INT64", "g": "INT64", "c": "NUMERIC", "d": "FLOAT64", "b": "BOOL",
    },
}  # fmt: skip
TEXTS: Final = [
    None, "", "5", " 5 ", "\t5\n", "\r5", "5\x0b", "5\x0c", "\x1c5", "5\x1f", "5\x7f", "\x855", "\u00a05", "\u20035", "+5", "-5", "--5",
    "+-5", "- 5", "5.", "5.5", ".5", "1e3", "1E3", "0x10", "0X1f", "-0x10", "+0x10", "0x", "0x0000000000000000000010", "0b11", "1_000", "-", "007",
    "99999999999", "9007199254740993", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "2147483647", "2147483648", "-2147483648",
    "00000000000000000000000005", "\u0665", "\uff15", "5\u0665", "\U0001d7d3", "5a", "5L", "1,000", "NaN", "true", "t", "T", "TRUE", "tRuE", "yes",
    "y", "Y", "on", "off", "1", "0", "2", "01", "f", "F", "false", "no", "n", " true ", "\ttrue", "true\x7f", "true\u00a0", "1.0", "-1", "YE\u017f", "\u0130",
    "2024-01-05", "2024-1-5", " 2024-01-05 ", "2024/01/05", "2024-01-05 10:00", "20240105", "2024-01", "2024", "2024-02-30", "2024-02-29",
    "0001-01-01", "0000-01-01", "10000-01-01", "24-01-05", "2024-01-05x", "2024-001-05", "2024-01-005", "2024-01-05\n", "2024-13-01", "9999-12-31", "%", "${x}",
]  # fmt: skip
INTS: Final = [None, 0, 1, -1, 5, -5, 7, 2**31 - 1, -(2**31)]
LONGS: Final = [None, 0, 1, -1, -7, 2**24 + 1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
DECIMALS: Final = [
    None, "0.00", "0.50", "-0.50", "1.50", "2.50", "-2.50", "2.49", "2.45", "-2.45", "2147483647.49", "2147483647.50", "9999999999999999.99",
    "-9999999999999999.99",
]  # fmt: skip
DOUBLES: Final = [
    None, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, "nan", "inf", "-inf", -0.0, 2.0**53 + 2, 9.3e18, -9223372036854775808.0, 1e300,
    4503599627370497.5, 2147483647.5, -2147483648.5,
]  # fmt: skip
DAYS: Final = [None, "2024-01-05", "0001-01-01", "9999-12-31", "1970-01-01", "1582-10-10"]


def rows() -> list[dict[str, Any]]:
    """Return rows with each edge of each column beside changing values of the others."""
    edges: list[list[Any]] = [INTS, LONGS, DECIMALS, DOUBLES, [None, True, False], DAYS]
    cycles = zip(*(itertools.cycle(some) for some in edges), strict=False)
    return [
        dict(zip(TYPES, (at, text, *rest), strict=True))
        for at, (text, rest) in enumerate(zip(TEXTS, cycles, strict=False))
    ]


def dialect_of(meaning: Meaning) -> str:
    """Return the dialect of a meaning."""
    return next(name for name, one in MEANINGS.items() if one is meaning)


def number_in(text: str, dialect: str, bits: int) -> int | None:
    """Return the whole number that a cast finds in a text."""
    controls = "".join(map(chr, range(33)))
    text = text.strip({"bigquery": " \t\n\x0b\x0c\r", "trino": controls, "spark": f"{controls}\x7f"}[dialect])
    if dialect == "bigquery" and re.fullmatch("[+-]?0[xX][0-9a-fA-F]+", text):
        number = int(text, 16)
    elif re.fullmatch("[+-]?[0-9]+" if dialect != "trino" else r"[+-]?\d+", text) and max(map(ord, text)) < 0x10000:
        number = int(text)
    else:
        return None
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


def in_text(bits: int, test: Callable[[int | None], bool | None]) -> Oracle:
    """Return an oracle of the number in a text, which is NULL where there is none. BigQuery has 64 bits."""

    def oracle(row: Row, meaning: Meaning) -> bool | None:
        dialect = dialect_of(meaning)
        text = row["s"]
        return test(None if text is None else number_in(text, dialect, 64 if dialect == "bigquery" else bits))

    return oracle


def known(test: Callable[[Any], bool]) -> Callable[[Any], bool | None]:
    """Return a test that is NULL for NULL."""
    return lambda value: None if value is None else test(value)


_WORDS: Final = {
    "bigquery": (("true",), ("false",)), "trino": (("true", "t", "1"), ("false", "f", "0")),
    **dict.fromkeys(("spark", "duckdb"), (("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0"))),
}  # fmt: skip


def truth_in(row: Row, meaning: Meaning) -> bool | None:
    """Return the boolean that a cast finds in a text."""
    dialect, text = dialect_of(meaning), row["s"]
    if text is None:
        return None
    text = text.strip("".join(map(chr, range(33))) + "\x7f") if dialect == "spark" else text
    yes, no = _WORDS[dialect]
    folded = text.lower() if text.isascii() else text
    return True if folded in yes else False if folded in no else None


def day_in(row: Row) -> dt.date | None:
    """Return the date that BigQuery finds in a text."""
    found = re.fullmatch("([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})", row["s"] or "")
    try:
        return dt.date(*map(int, found.groups())) if found else None
    except ValueError:
        return None


def whole(value: str | float, meaning: Meaning) -> int | None:
    """Return the whole number of a cast: Spark cuts off, others round a half away from zero."""
    if not math.isfinite(float(value)):
        return None
    mode = ROUND_DOWN if dialect_of(meaning) == "spark" else ROUND_HALF_UP
    return int(Decimal(value).to_integral_value(mode))


def as_whole(column: str, bits: int, test: Callable[[int | None], bool | None]) -> Oracle:
    """Return an oracle of a number as a whole one, NULL where that has more bits."""

    def oracle(row: Row, meaning: Meaning) -> bool | None:
        found = None if row[column] is None else whole(row[column], meaning)
        size = 64 if dialect_of(meaning) == "bigquery" else bits
        return test(found if found is not None and -(2 ** (size - 1)) <= found < 2 ** (size - 1) else None)

    return oracle


def casts(text: str, *, without: str = "") -> Mapping[str, str]:
    """Return the texts of a form whose types have the names of a dialect."""
    types = {"INT64": "BIGINT", "STRING": "VARCHAR", "BOOL": "BOOLEAN", "FLOAT64": "DOUBLE", "SAFE_CAST": "TRY_CAST"}
    plain = text
    for name, other in types.items():
        plain = re.sub(rf"\b{name}\b", other, plain)
    found = by_dialect(bigquery=text, trino=plain, spark=plain.replace("VARCHAR", "STRING"), duckdb=plain)
    return {dialect: one for dialect, one in found.items() if dialect not in without.split()}


def rounded(value: str, places: int) -> Decimal:
    """Return a decimal number with some digits behind the point."""
    return Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


def half_away(value: float) -> float:
    """Return a rounded double."""
    return value if not math.isfinite(value) else float(Decimal(value).to_integral_value(ROUND_HALF_UP))


_NUMBERS: Final = (5, -5, 7, 16, -16, 31, 99999999999, 2**53 + 1, 55)
_SIGNS: Final = ", ".join(map(str, _NUMBERS))
FORMS: Final = [
    Form("`SAFE_CAST(s AS INT64)`, `TRY_CAST(s AS BIGINT)`", casts(f"SAFE_CAST(s AS INT64) IN ({_SIGNS})", without="duckdb"), in_text(64, known(lambda n: n in _NUMBERS))),
    Form("`SAFE_CAST(s AS INT64) IS NULL`", casts("SAFE_CAST(s AS INT64) IS NULL OR SAFE_CAST(s AS INT64) > 9223372036854774000", without="duckdb"), in_text(64, lambda n: n is None or n > 9223372036854774000)),
    Form("`TRY_CAST(s AS INTEGER)`", dict.fromkeys(("trino", "spark"), "TRY_CAST(s AS INTEGER) >= 5 OR TRY_CAST(s AS SMALLINT) = -5 OR COALESCE(TRY_CAST(s AS INTEGER), -7) = -2147483648"), in_text(32, lambda n: n is not None and (n >= 5 or n in (-5, -(2**31))))),
    Form("`CAST(s AS INT64)`", casts("CAST(s AS INT64) > 4 OR i = 0", without="duckdb"), lambda row, m: three_or(in_text(64, known(lambda n: n > 4))(row, m), None if row["i"] is None else row["i"] == 0), overflows=True),
    Form("`NOT CAST(s AS INT64) = 5`", casts("NOT (CAST(s AS INT64) = 5 AND i <> 1)", without="duckdb"), lambda row, m: not_and(in_text(64, known(lambda n: n == 5))(row, m), None if row["i"] is None else row["i"] != 1), overflows=True),
    Form("`SAFE_CAST(s AS BOOL)`", casts("SAFE_CAST(s AS BOOL)"), truth_in),
    Form("`SAFE_CAST(s AS BOOL) = FALSE`", casts("SAFE_CAST(s AS BOOL) = FALSE OR SAFE_CAST(s AS BOOL) IS NULL"), lambda row, m: truth_in(row, m) is not True),
    Form("`SAFE_CAST(s AS DATE)`", {"bigquery": "SAFE_CAST(s AS DATE) >= DATE '2024-01-05'"}, lambda row, m: None if (day := day_in(row)) is None else day >= dt.date(2024, 1, 5)),
    Form("`SAFE_CAST(s AS DATE) IS NULL`", {"bigquery": "SAFE_CAST(s AS DATE) IS NULL"}, lambda row, m: day_in(row) is None),
    Form("`CAST(b AS INT64)`", casts("CAST(b AS INT64) = 1"), of("b", lambda b: b)),
    Form("`CAST(i AS BOOL)`", casts("CAST(i AS BOOL) OR CAST(g AS BOOL) = FALSE"), lambda row, m: three_or(None if row["i"] is None else row["i"] != 0, None if row["g"] is None else row["g"] == 0)),
    Form("`CAST(g AS FLOAT64)`", casts("CAST(g AS FLOAT64) >= 900000000000000 OR CAST(g AS FLOAT64) = 16777217"), of("g", lambda g: float(g) >= 9e14 or g == 16777217)),
    Form("`CAST(g AS NUMERIC)`", {d: f"CAST(g AS {n}) = 16777217 OR CAST(i AS {n}) < -1" for d, n in zip(DIALECTS, ("NUMERIC", "DECIMAL(38, 2)", "DECIMAL(30, 5)", "DECIMAL(20, 0)"), strict=True)}, lambda row, m: three_or(None if row["g"] is None else row["g"] == 16777217, None if row["i"] is None else row["i"] < -1)),
    Form("`CAST(c AS INT64)`", casts("CAST(c AS INT64) IN (0, 1, 2, -3, 10000000000000000)"), as_whole("c", 64, known(lambda n: n in (0, 1, 2, -3, 10**16)))),
    Form("`TRY_CAST(c AS INTEGER)`", {d: "TRY_CAST(c AS INTEGER) = 2147483647 OR TRY_CAST(c AS INTEGER) IS NULL" for d in DIALECTS if d != "bigquery"}, as_whole("c", 32, lambda n: n is None or n == 2**31 - 1)),
    Form("`CAST(c AS INTEGER)`", {d: "CAST(c AS INTEGER) < 1" for d in DIALECTS if d != "bigquery"}, as_whole("c", 32, known(lambda n: n < 1)), overflows=True),
    Form("`CAST(c AS NUMERIC)`", {d: f"CAST(c AS {n}) IN (2.5, -2.5, -0.5)" for d, n in zip(DIALECTS, ("NUMERIC(20, 1)", "DECIMAL(20, 1)", "DECIMAL(18, 1)", "DECIMAL(18, 1)"), strict=True)}, of("c", lambda c: rounded(c, 1) in (Decimal("2.5"), Decimal("-2.5"), Decimal("-0.5")))),
    Form("`CAST(d AS INT64)`", casts("CAST(d AS INT64) IN (0, 1, 3, -3, 9007199254740994, 4503599627370498)", without="duckdb"), as_whole("d", 64, known(lambda n: n in (0, 1, 3, -3, 2**53 + 2, 4503599627370498))), overflows=True),
    Form("`SAFE_CAST(d AS INT64) IS NULL`", casts("SAFE_CAST(d AS INT64) IS NULL", without="duckdb"), as_whole("d", 64, lambda n: n is None)),
    Form("`ROUND(d)`", casts("ROUND(d) IN (0, 1, 3, -3, 2147483648) OR ROUND(d) < -9"), of("d", lambda d: half_away(float(d)) in (0, 1, 3, -3, 2.0**31) or half_away(float(d)) < -9)),
    Form("`CAST(day AS STRING)`", casts("CAST(day AS STRING) IN ('2024-01-05', '0001-01-01', '9999-12-31')"), of("day", lambda day: day in ("2024-01-05", "0001-01-01", "9999-12-31"))),
    Form("`CAST(day AS STRING) LIKE '2024-%'`", casts("CAST(day AS STRING) LIKE '2024-%' OR SUBSTR(CAST(day AS STRING), 1, 4) = '1582'"), of("day", lambda day: day[:4] in ("2024", "1582"))),
    Form("`CAST(s AS BOOL)`", casts("CAST(s AS BOOL) AND b"), lambda row, m: True if truth_in(row, m) and row["b"] else None, overflows=True),
    Form("`TRY_CAST(g AS INTEGER)`", {d: "TRY_CAST(g AS INTEGER) IS NULL OR TRY_CAST(i AS SMALLINT) = -5" for d in DIALECTS if d != "bigquery"}, lambda row, m: row["g"] is None or not -(2**31) <= row["g"] < 2**31 or row["i"] == -5),
    Form("`CAST(b AS STRING)`", casts("CAST(b AS STRING) = 'true'"), of("b", lambda b: b)),
    Form("`ROUND(c)`", "ROUND(c) IN (3, -3, -1, 10000000000000000)", of("c", lambda c: rounded(c, 0) in (3, -3, -1, 10**16))),
    Form("`ROUND(c, 1)`", "ROUND(c, 1) = 2.5 OR ROUND(c, 2) = 2.45 OR ROUND(c, 1) < -9", of("c", lambda c: rounded(c, 1) == Decimal("2.5") or c == "2.45" or rounded(c, 1) < -9)),
    Form("`ROUND(i)`", {d: "ROUND(i) = 5 OR ROUND(g, 1) = 9007199254740993" for d in DIALECTS if d != "bigquery"}, lambda row, m: three_or(None if row["i"] is None else row["i"] == 5, None if row["g"] is None else row["g"] == 2**53 + 1)),
    Form("`DIV(g, 2)`", by_dialect(bigquery="DIV(g, 2) = -3 OR DIV(i, 2) = -2", trino="g / 2 = -3 OR i / 2 = -2", spark="g DIV 2 = -3 OR i DIV 2 = -2", duckdb="g // 2 = -3 OR i // 2 = -2"), lambda row, m: three_or(None if row["g"] is None else int(row["g"] / 2) == -3, None if row["i"] is None else int(row["i"] / 2) == -2)),
]  # fmt: skip


PARTLY: Final = [
    Form("`CAST(c AS STRING)`", casts("CAST(c AS STRING) IN ('0.00', '-0.50', '2.45', '9999999999999999.99')", without="bigquery"), of("c", lambda c: c in ("0.00", "-0.50", "2.45", "9999999999999999.99"))),
]  # fmt: skip
"""Forms that some pairs of dialects refuse: BigQuery writes no zeros at the end."""


def not_and(one: bool | None, other: bool | None) -> bool | None:
    """Return SQL's NOT of AND."""
    return True if False in (one, other) else None if None in (one, other) else False
