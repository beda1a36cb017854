"""Filters with functions, what each dialect means by them, and the rows to try them on.

The meanings are plain Python, from the manuals of the engines. Tests run the forms as filters of DuckDB, Spark 4.1.4 and
Trino 476, and so prove what is said of these three on the rows below. No test runs BigQuery. What is said of it is
assumed from GoogleSQL's source, `functions/string.cc` (full case mapping of ICU, TRIM by Unicode's white space, SUBSTR
that begins at 1 for a place before the text), and from the pages on string and date functions.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.policy_set import Policy
from pdp.engines.row_access.trino import CallerValues
from pdp.rewrite.catalog import Catalog, Relation, catalog_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.filters import FilterCompiler

Row: TypeAlias = Mapping[str, Any]
DIALECTS: Final = ("bigquery", "trino", "spark", "duckdb")
CALLER: Final = "a@x.example"
TYPES: Final = {
    "id": "INTEGER", "s": "VARCHAR", "t": "VARCHAR", "i": "INTEGER", "g": "BIGINT", "k": "SMALLINT", "d": "DOUBLE",
    "c": "DECIMAL(18,2)", "b": "BOOLEAN", "day": "DATE",
}  # fmt: skip
TEXTS: Final = [
    None, "", " ", "  ", "EU", "eu", "Eu", " EU", "EU ", "\tEU\n", "\u00a0EU\u2003", "EU\u2028", "\x85EU", "\x1cEU",
    "a", "ab", "abc", "abcd", "ABC", "\u0130", "i", "I", "\u0131", "i\u0307", "\u0130T", "it", "\u00df", "ss", "SS",
    "pa\u00df", "pass", "PASS", "\ufb01x", "FIX", "fix", "\ufb05", "st", "\u1e9a", "\u03a3\u0391\u03a3",
    "\u03c3\u03b1\u03c2", "\u212a", "k", "K", "\u017f", "e\u0301", "\u00e9", "\u00c9", "\U0001f600", "\U0001f600b",
    "a\U0001f600", "%", "_", "a%b", "a_b", "axb", "a\\b", "a\\", "\\", "${x}", "$", "a'b", 'a"b', "a-b", "x-", "--",
    "a@x.example", "A@X.EXAMPLE", "user@eu.example", "5", "-5", "007", " 5", "E", "U", "ab\n", "ab\r\n", "ab\u2028", "a\nb", "a\rb", "a\x85b", "\u01f0", "J\u030c", "null",
]  # fmt: skip
INTS: Final = [None, 0, 1, -1, 2, 5, -5, 7, 2**31 - 1, -(2**31)]
LONGS: Final = [None, 0, 1, -1, 3, 2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**31]
SMALLS: Final = [None, 0, 1, -7, 2**15 - 1, -(2**15), 100]
DOUBLES: Final = [None, 0.0, -0.0, 5.5, -5.5, 1e300, "nan", "inf", "-inf"]
DECIMALS: Final = [None, "0.00", "5.00", "-0.01", "9999999999999999.99"]
DAYS: Final = [
    None, "2024-02-29", "2024-01-31", "2023-12-31", "1970-01-01", "1969-12-31", "1582-10-04", "1582-10-15", "0001-01-01",
    "9999-12-24", "2024-03-01",
]  # fmt: skip


def rows() -> list[dict[str, Any]]:
    """Return rows with each edge of each column beside changing values of the others."""
    edges: list[list[Any]] = [INTS, LONGS, SMALLS, DOUBLES, DECIMALS, [None, True, False], DAYS]
    cycles = zip(*(itertools.cycle(some) for some in edges), strict=False)
    made = []
    for at, (rest, (one, two)) in enumerate(zip(cycles, itertools.product(TEXTS, range(2)), strict=False)):
        other = TEXTS[(at * 7 + 3 * two) % len(TEXTS)]
        made.append(dict(zip(TYPES, (at, one, other, *rest), strict=True)))
    return made


class Meaning(NamedTuple):
    """What a dialect means by functions."""

    lower: Callable[[str], str]
    upper: Callable[[str], str]
    blanks: str
    short: str
    skips_null: bool = False


def _lower(text: str) -> str:
    return "".join("i" if sign == "\u0130" else sign.lower() for sign in text)


def _upper(text: str) -> str:
    return "".join(sign.upper() if len(sign.upper()) == 1 else sign for sign in text)


def _dotted(text: str) -> str:
    return text.lower()


_SEPARATORS: Final = "".join(map(chr, filter(lambda code: unicodedata.category(chr(code)) == "Zs", range(0x10000))))
_JAVA: Final = "".join(sign for sign in _SEPARATORS if sign not in "\u00a0\u2007\u202f")
MEANINGS: Final = {
    "trino": Meaning(_lower, _upper, f"{_JAVA}\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\u2028\u2029", "nothing"),
    "duckdb": Meaning(_lower, _upper, _SEPARATORS, "rest", skips_null=True),
    "spark": Meaning(_dotted, str.upper, " ", "rest"),
    "bigquery": Meaning(_dotted, str.upper, f"{_SEPARATORS}\t\n\x0b\x0c\r\x85\u2028\u2029", "whole"),
}


def part(meaning: Meaning, text: str | None, start: int, size: int | None = None) -> str | None:
    """Return what SUBSTR of a dialect returns, for a start other than 0."""
    if text is None:
        return None
    first = start - 1 if start > 0 else len(text) + start
    if first < 0:
        if meaning.short == "nothing":
            return ""
        size = size if size is None or meaning.short == "whole" else max(size + first, 0)
        first = 0
    return text[first:] if size is None else text[first : first + size]


def joined(meaning: Meaning, *parts: str | None) -> str | None:
    """Return what CONCAT of a dialect returns."""
    if meaning.skips_null:
        return "".join(part or "" for part in parts)
    return None if None in parts else "".join(map(str, parts))


Oracle: TypeAlias = Callable[[Row, Meaning], Any]


class Form(NamedTuple):
    """Form of filters: its name in the documents, its texts by dialect, and its value on a row."""

    name: str
    texts: str | Mapping[str, str]
    oracle: Oracle
    overflows: bool = False
    """The author's engine fails on some of the rows."""

    def text(self, dialect: str) -> str | None:
        """Return the filter in a dialect; None if the dialect has no such form."""
        return self.texts if isinstance(self.texts, str) else self.texts.get(dialect)


def of(column: str, function: Callable[[Any], Any]) -> Oracle:
    """Return an oracle of one column, which is NULL for NULL."""
    return lambda row, meaning: None if row[column] is None else function(row[column])


def with_meaning(column: str, function: Callable[[Meaning, Any], Any]) -> Oracle:
    """Return an oracle of one column by a meaning, which is NULL for NULL."""
    return lambda row, meaning: None if row[column] is None else function(meaning, row[column])


def day_of(value: str) -> dt.date:
    """Return a date."""
    return dt.date.fromisoformat(value)


def equals(one: Any, other: Any) -> bool | None:
    """Return SQL's comparison."""
    return None if one is None or other is None else one == other


def plus_days(value: str, days: int) -> int:
    """Return the number of a day after another, beyond Python's last day, too."""
    return day_of(value).toordinal() + days


def by_dialect(*, bigquery: str, trino: str, spark: str, duckdb: str) -> Mapping[str, str]:
    """Return the texts of a form."""
    return {"bigquery": bigquery, "trino": trino, "spark": spark, "duckdb": duckdb}


def _failing(text: str) -> Mapping[str, str]:
    """Return the texts of a form that fails on some rows: Spark may be set to wrap there, so Spark has no such form."""
    return {dialect: text for dialect in DIALECTS if dialect != "spark"}


_ENDS: Final = {"bigquery": r"\Z", "duckdb": r"\Z", "trino": r"\Z", "spark": "(?:\r\n|[\n\r\x85\u2028\u2029])?\\Z"}
ANY: Final = {"bigquery": r"[^\n]", "duckdb": r"[^\n]", "trino": r"[^\n]", "spark": "[^\n\r\x85\u2028\u2029]"}


def regular(pattern: str, find: str | None) -> Form:
    """Return a form with a regular expression. `find` is Python's; made of the dialect's `.` and `$` without it."""
    names = dict(
        zip(
            DIALECTS,
            ("REGEXP_CONTAINS(s, r'{}')", "regexp_like(s, '{}')", "s RLIKE '{}'", "regexp_matches(s, '{}')"),
            strict=True,
        )
    )

    def oracle(row: Row, meaning: Meaning) -> bool | None:
        dialect = next(name for name, one in MEANINGS.items() if one is meaning)
        python = find or "".join({".": ANY[dialect], "$": _ENDS[dialect]}.get(sign, sign) for sign in pattern)
        return None if row["s"] is None else re.search(python, row["s"]) is not None

    return Form(
        f"regular expression `{pattern}`".replace("|", "\\|"),
        {d: name.format(pattern) for d, name in names.items() if d != "trino" or "$" not in pattern},
        oracle,
    )


_DAY: Final = day_of("2024-02-01")
FORMS: Final = [
    Form("`LOWER(s) = 'eu'`", "LOWER(s) = 'eu'", with_meaning("s", lambda m, s: m.lower(s) == "eu")),
    Form("`LOWER(s) IN (..)`", "LOWER(s) IN ('it', 'i', 'k', 'pass')", with_meaning("s", lambda m, s: m.lower(s) in ("it", "i", "k", "pass"))),
    Form("`NOT LOWER(s) = ..`", "NOT LOWER(s) = 'i'", with_meaning("s", lambda m, s: m.lower(s) != "i")),
    Form("`LOWER(s) LIKE ..`", "LOWER(s) LIKE '%i_%'", with_meaning("s", lambda m, s: "i" in m.lower(s)[:-1])),
    Form("`LOWER(s) = LOWER(caller)`", {d: f"LOWER(s) = LOWER({u})" for d, u in zip(DIALECTS, ("SESSION_USER()", "current_user", "current_user()", "current_user"), strict=True)}, with_meaning("s", lambda m, s: m.lower(s) == CALLER)),
    Form("`UPPER(s) = 'EU'`", "UPPER(s) = 'EU'", with_meaning("s", lambda m, s: m.upper(s) == "EU")),
    Form("`UPPER(s) IN (..)`", "UPPER(s) IN ('PASS', 'SS', 'FIX', 'ST', 'I')", with_meaning("s", lambda m, s: m.upper(s) in ("PASS", "SS", "FIX", "ST", "I"))),
    Form("`UPPER(s) LIKE 'A%'`", "UPPER(s) LIKE 'A%'", with_meaning("s", lambda m, s: m.upper(s).startswith("A"))),
    Form("`STARTS_WITH(UPPER(s), ..)`", {d: f"{n}(UPPER(s), 'S')" for d, n in zip(DIALECTS, ("STARTS_WITH", "starts_with", "startswith", "starts_with"), strict=True)}, with_meaning("s", lambda m, s: m.upper(s).startswith("S"))),
    Form("`LENGTH(LOWER(s))`", "LENGTH(LOWER(s)) = 2", with_meaning("s", lambda m, s: len(m.lower(s)) == 2)),
    Form("`TRIM(s) = 'EU'`", "TRIM(s) = 'EU'", with_meaning("s", lambda m, s: s.strip(m.blanks) == "EU")),
    Form("`LTRIM(s)`", "LTRIM(s) = 'EU'", with_meaning("s", lambda m, s: s.lstrip(m.blanks) == "EU")),
    Form("`RTRIM(s)`", "RTRIM(s) = 'EU'", with_meaning("s", lambda m, s: s.rstrip(m.blanks) == "EU")),
    Form("`TRIM(.. FROM s)`", by_dialect(bigquery="TRIM(s, 'a-') = 'b'", trino="TRIM(BOTH 'a-' FROM s) = 'b'", spark="TRIM(BOTH 'a-' FROM s) = 'b'", duckdb="TRIM(s, 'a-') = 'b'"), of("s", lambda s: s.strip("a-") == "b")),
    Form("`LOWER(TRIM(s))`", "LOWER(TRIM(s)) = 'eu'", with_meaning("s", lambda m, s: m.lower(s.strip(m.blanks)) == "eu")),
    Form("`LENGTH(s) > 2`", "LENGTH(s) > 2", of("s", lambda s: len(s) > 2)),
    Form("`CHAR_LENGTH(s)`", by_dialect(bigquery="CHAR_LENGTH(s) = 2", trino="length(s) = 2", spark="CHAR_LENGTH(s) = 2", duckdb="CHAR_LENGTH(s) = 2"), of("s", lambda s: len(s) == 2)),
    Form("`SUBSTR(s, 1, 2)`", "SUBSTR(s, 1, 2) = 'ab'", of("s", lambda s: s[:2] == "ab")),
    Form("`SUBSTRING(s, 2)`", "SUBSTRING(s, 2) IN ('b', 'bc', '')", of("s", lambda s: s[1:] in ("b", "bc", ""))),
    Form("`SUBSTR(s, -2)`", "SUBSTR(s, -2) IN ('bc', 'a', '')", lambda row, m: None if row["s"] is None else part(m, row["s"], -2) in ("bc", "a", "")),
    Form("`SUBSTR(s, -3, 3)`", "SUBSTR(s, -3, 3) IN ('abc', 'ab', 'a', '')", lambda row, m: None if row["s"] is None else part(m, row["s"], -3, 3) in ("abc", "ab", "a", "")),
    Form("`SUBSTR(s, STRPOS(..) + 1)`", {d: f"SUBSTR(s, {n}(s, '@') + 1) = 'x.example'" for d, n in zip(DIALECTS, ("STRPOS", "strpos", "instr", "strpos"), strict=True)}, of("s", lambda s: s[s.find("@") + 1 :] == "x.example")),
    Form("`LEFT(s, 2)`, `RIGHT(s, 2)`", {d: "LEFT(s, 2) = 'ab' OR RIGHT(s, 2) = 'bc' OR RIGHT(s, 2) = 'a'" for d in DIALECTS if d != "trino"}, of("s", lambda s: s[:2] == "ab" or s[-2:] in ("bc", "a"))),
    Form("`CONCAT(s, t)`", "CONCAT(s, '-', t) IN ('a-b', '-', 'a-', '-a', '-EU')", lambda row, m: None if (j := joined(m, row["s"], "-", row["t"])) is None else j in ("a-b", "-", "a-", "-a", "-EU")),
    Form("`s || t`", "(s || '-' || t) IN ('a-b', '-', '-a', 'a-')", lambda row, m: None if None in (row["s"], row["t"]) else f"{row['s']}-{row['t']}" in ("a-b", "-", "-a", "a-")),
    Form("`REPLACE(s, '-', '')`", "REPLACE(s, '-', '') IN ('ab', '')", of("s", lambda s: s.replace("-", "") in ("ab", ""))),
    Form("`STARTS_WITH(s, 'a')`", {d: f"{n}(s, 'a')" for d, n in zip(DIALECTS, ("STARTS_WITH", "starts_with", "startswith", "starts_with"), strict=True)}, of("s", lambda s: s.startswith("a"))),
    Form("`STARTS_WITH(s, t)`", {d: f"{n}(s, t)" for d, n in zip(DIALECTS, ("STARTS_WITH", "starts_with", "startswith", "starts_with"), strict=True)}, lambda row, m: None if None in (row["s"], row["t"]) else row["s"].startswith(row["t"])),
    Form("`ENDS_WITH(s, 'b')`", {d: f"{n}(s, 'b')" for d, n in zip(DIALECTS, ("ENDS_WITH", "", "endswith", "ends_with"), strict=True) if n}, of("s", lambda s: s.endswith("b"))),
    Form("`ENDS_WITH(s, t)`", {d: f"{n}(s, t)" for d, n in zip(DIALECTS, ("ENDS_WITH", "", "endswith", "ends_with"), strict=True) if n}, lambda row, m: None if None in (row["s"], row["t"]) else row["s"].endswith(row["t"])),
    Form("`STRPOS(s, '@') > 0`", {d: f"{n}(s, 'b') > 1" for d, n in zip(DIALECTS, ("STRPOS", "strpos", "instr", "strpos"), strict=True)}, of("s", lambda s: s.find("b") > 0)),
    Form("`POSITION('@' IN s)`", {d: "POSITION('b' IN s) = 2" for d in DIALECTS if d != "bigquery"}, of("s", lambda s: s.find("b") == 1)),
    Form("`CONTAINS(s, 'b')`", dict.fromkeys(("spark", "duckdb"), "contains(s, 'b')"), of("s", lambda s: "b" in s)),
    Form("`COALESCE(s, 'EU')`", "COALESCE(s, t, 'EU') = 'EU'", lambda row, m: next(x for x in (row["s"], row["t"], "EU") if x is not None) == "EU"),
    Form("`IFNULL(s, '')`", {d: "IFNULL(s, '') = ''" for d in DIALECTS if d != "trino"}, lambda row, m: (row["s"] or "") == ""),
    Form("`COALESCE(i, 0)`", "COALESCE(i, 0) = 0 AND COALESCE(c, 0) < 5", lambda row, m: (row["i"] or 0) == 0 and float(row["c"] or 0) < 5),
    Form("`COALESCE(b, FALSE)`", "COALESCE(b, FALSE)", lambda row, m: bool(row["b"])),
    Form("`NULLIF(s, '') IS NULL`", "NULLIF(s, '') IS NULL", lambda row, m: row["s"] in (None, "")),
    Form("`NULLIF(i, 0) = 5`", "NULLIF(i, 0) = 5 OR NULLIF(i, 0) IS NULL", lambda row, m: row["i"] in (5, None, 0)),
    Form("`CASE WHEN .. THEN .. END`", "CASE WHEN s = 'EU' THEN i > 0 WHEN LENGTH(s) = 1 THEN TRUE END", lambda row, m: (None if row["i"] is None else row["i"] > 0) if row["s"] == "EU" else (True if row["s"] is not None and len(row["s"]) == 1 else None)),
    Form("`CASE s WHEN .. THEN .. END`", "CASE s WHEN 'EU' THEN 1 WHEN 'eu' THEN 2 ELSE 0 END > 0", lambda row, m: row["s"] in ("EU", "eu")),
    Form("`IF(a, b, c)`", dict.fromkeys(DIALECTS, "IF(s = 'EU', i, g) = 1"), lambda row, m: equals(row["i"] if row["s"] == "EU" else row["g"], 1)),
    Form("`(..) IS TRUE`", {d: "(s = 'EU' OR b) IS TRUE" for d in DIALECTS if d != "trino"}, lambda row, m: row["s"] == "EU" or row["b"] is True),
    Form("`b IS NOT FALSE`", {d: "b IS NOT FALSE" for d in DIALECTS if d != "trino"}, lambda row, m: row["b"] is not False),
    Form("`b IS FALSE`", {d: "b IS FALSE OR (i > 0) IS NOT TRUE" for d in DIALECTS if d != "trino"}, lambda row, m: row["b"] is False or not (row["i"] is not None and row["i"] > 0)),
    Form("`s IS DISTINCT FROM t`", dict.fromkeys(DIALECTS, "s IS DISTINCT FROM 'EU' AND i IS NOT DISTINCT FROM 0"), lambda row, m: row["s"] != "EU" and row["i"] == 0),
    Form("`s LIKE 'a%'`", "s LIKE 'a%' AND s NOT LIKE '%b'", of("s", lambda s: s.startswith("a") and not s.endswith("b"))),
    Form("`s LIKE '_b'`", "s LIKE '_b'", of("s", lambda s: len(s) == 2 and s[1] == "b")),
    Form("`s LIKE .. ESCAPE`", {d: "s LIKE 'a!%%' ESCAPE '!' OR s LIKE 'a!_b' ESCAPE '!'" for d in DIALECTS if d != "bigquery"}, of("s", lambda s: s.startswith("a%") or s == "a_b")),
    Form("`s LIKE` with a backslash", by_dialect(bigquery="s LIKE '%\\\\\\\\%'", trino="s LIKE '%\\%'", spark="s LIKE '%\\\\\\\\%'", duckdb="s LIKE '%\\%'"), of("s", lambda s: "\\" in s)),
    Form("`s LIKE` with `\\\\%`", dict.fromkeys(("bigquery", "spark"), "s LIKE '%\\\\%b'"), of("s", lambda s: s.endswith("%b"))),
    Form("`UPPER(s) LIKE` with many letters", "UPPER(s) LIKE 'J%' OR UPPER(s) LIKE '%FILTNHWYA%' OR UPPER(s) LIKE 'S%S'", with_meaning("s", lambda m, s: m.upper(s).startswith("J") or (m.upper(s).startswith("S") and m.upper(s).endswith("S") and len(m.upper(s)) > 1))),
    Form("`s IN UNNEST([..])`", {"bigquery": "s IN UNNEST(['EU', 'a'])"}, of("s", lambda s: s in ("EU", "a"))),
    Form("`r'..'`", {"bigquery": "s = r'a\\b'"}, of("s", lambda s: s == "a\\b")),
    Form("`LENGTH(s) + 1`", "LENGTH(s) + 1 > 3 OR MOD(i, 10) * 2 - 1 = 9", lambda row, m: three_or(None if row["s"] is None else len(row["s"]) > 2, None if row["i"] is None else row["i"] == 5)),
    Form("`i + 1`, `i - 1`, `i * 2`", _failing("i + 1 > 2147483647 OR i * 2 = 10 OR i - 1 < -2147483648"), of("i", lambda i: i + 1 > 2**31 - 1 or i * 2 == 10 or i - 1 < -(2**31)), overflows=True),
    Form("`g + 1`", _failing("g + 1 > 9007199254740993 OR g * g = 9"), of("g", lambda g: g + 1 > 2**53 + 1 or g * g == 9), overflows=True),
    Form("`k * k + i`", _failing("k * k + i = 10004"), lambda row, m: None if None in (row["k"], row["i"]) else row["k"] ** 2 + row["i"] == 10004, overflows=True),
    Form("`MOD(i, 2)`", "MOD(i, 2) = 1 OR MOD(g, 10) = -8", lambda row, m: three_or(of("i", lambda i: (abs(i) % 2) * (1 if i > 0 else -1) == 1)(row, m), of("g", lambda g: (abs(g) % 10) * (1 if g > 0 else -1) == -8)(row, m))),
    Form("`ABS(i)`", _failing("ABS(i) > 4 AND ABS(g) > 2"), lambda row, m: three_and(of("i", lambda i: abs(i) > 4)(row, m), of("g", lambda g: abs(g) > 2)(row, m)), overflows=True),
    Form("`CAST(i AS text)`", {d: f"CAST(i AS {n}) IN ('5', '-1')" for d, n in zip(DIALECTS, ("STRING", "VARCHAR", "STRING", "VARCHAR"), strict=True)}, of("i", lambda i: str(i) in ("5", "-1"))),
    Form("`DATE '2024-02-01'`", "day >= DATE '2024-02-01'", of("day", lambda d: day_of(d) >= _DAY)),
    Form("`day + 7 days`", by_dialect(bigquery="DATE_ADD(day, INTERVAL 7 DAY) > DATE '2024-02-01'", trino="day + INTERVAL '7' DAY > DATE '2024-02-01'", spark="date_add(day, 7) > DATE '2024-02-01'", duckdb="day + INTERVAL 7 DAY > DATE '2024-02-01'"), of("day", lambda d: plus_days(d, 7) > _DAY.toordinal())),
    Form("`day - 7 days`", by_dialect(bigquery="DATE_SUB(day, INTERVAL 7 DAY) < DATE '2024-02-01'", trino="date_add('day', -7, day) < DATE '2024-02-01'", spark="day - INTERVAL '7' DAY < DATE '2024-02-01'", duckdb="day - 7 < DATE '2024-02-01'"), of("day", lambda d: plus_days(d, -7) < _DAY.toordinal())),
    Form("`EXTRACT(YEAR FROM day)`", "EXTRACT(YEAR FROM day) = 2024 AND EXTRACT(MONTH FROM day) <> 3 OR EXTRACT(DAY FROM day) = 1", of("day", lambda d: (day_of(d).year == 2024 and day_of(d).month != 3) or day_of(d).day == 1)),
    Form("`YEAR(day)`", {d: "year(day) = 2024 OR month(day) = 10" for d in DIALECTS if d != "bigquery"}, of("day", lambda d: day_of(d).year == 2024 or day_of(d).month == 10)),
    Form("`DATE_TRUNC` to a month", by_dialect(bigquery="DATE_TRUNC(day, MONTH) = DATE '2024-02-01'", trino="date_trunc('month', day) = DATE '2024-02-01'", spark="trunc(day, 'MM') = DATE '2024-02-01'", duckdb="date_trunc('month', day) = DATE '2024-02-01'"), of("day", lambda d: day_of(d).replace(day=1) == _DAY)),
    Form("SHA-256 of `s`", by_dialect(bigquery="TO_HEX(SHA256(s)) = '28e66175821bf0ad8d7c8008061930de7daf248c28814ad41a0541449257bcf7'", trino="lower(to_hex(sha256(to_utf8(s)))) = '28e66175821bf0ad8d7c8008061930de7daf248c28814ad41a0541449257bcf7'", spark="sha2(s, 256) = '28e66175821bf0ad8d7c8008061930de7daf248c28814ad41a0541449257bcf7'", duckdb="sha256(s) = '28e66175821bf0ad8d7c8008061930de7daf248c28814ad41a0541449257bcf7'"), of("s", lambda s: s == "a\U0001f600")),
    *(regular(pattern, find) for pattern, find in [
        ("^E", r"\AE"), ("^a.*[a-z]b?$", None), ("x", "x"), ("[^a-z ]", "[^a-z ]"), ("(?:EU|eu)", "EU|eu"), ("^.{2}$", None), ("a-b|[%_]", "a-b|[%_]"),
        ("^(?:a|b)?[0-9]{1,3}$", None), ("@[a-z]+[.]example", "@[a-z]+[.]example"),
    ]),
    Form("regular expression `^.b\\z`", by_dialect(bigquery=r"REGEXP_CONTAINS(s, r'^.b\z')", trino=r"regexp_like(s, '^.b\z')", spark=r"s RLIKE '^.b\\z'", duckdb=r"regexp_matches(s, '^.b\z')"), with_meaning("s", lambda m, s: len(s) == 2 and s[1] == "b")),
]  # fmt: skip
"""Common forms. A form without a text of a dialect is none of that dialect."""


def three_or(one: bool | None, other: bool | None) -> bool | None:
    """Return SQL's OR."""
    return True if True in (one, other) else None if None in (one, other) else False


def three_and(one: bool | None, other: bool | None) -> bool | None:
    """Return SQL's AND."""
    return False if False in (one, other) else None if None in (one, other) else True


class Printer:
    """Filters on the table of the rows, as the rewriter prints them."""

    def __init__(self, types: Mapping[str, str] = TYPES) -> None:
        body = {"default": ["lake", "s"], "tables": {"t": {"columns": types}, "m": {"columns": {"x": "VARCHAR"}}}}
        document = parse_document(body).document
        self._catalog: Catalog = catalog_of([document])
        found = self._catalog.get(["t"], "trino", ("lake", "s"))
        assert found is not None
        self._relation: Relation = found
        self._compiler = FilterCompiler(self._catalog)

    def refusal(self, text: str, source: str, target: str, caller: str = CALLER) -> str:
        """Return why a filter is refused; empty for a usable one."""
        try:
            self._printed(text, source, target, caller)
        except RewriteRefused as error:
            return str(error)
        return ""

    def condition(self, text: str, source: str, target: str) -> str | None:
        """Return a filter of a dialect as SQL of another; None if it is refused."""
        try:
            return self._printed(text, source, target)
        except RewriteRefused:
            return None

    def _printed(self, text: str, source: str, target: str, caller: str = CALLER) -> str:
        policy = Policy("p", (), text, source)
        found = self._compiler.compile(policy, self._relation, target, lambda key: False)
        return found.bind(CallerValues(caller, caller, ()), target, "author")


def local(condition: str) -> str:
    """Return a condition that reads a lookup table by its name alone."""
    return re.sub(r"""([`"])lake\1\.\1s\1\.""", "", condition)


def wanted(form: Form, dialect: str, data: list[dict[str, Any]]) -> list[int]:
    """Return the rows that a dialect shows under a form."""
    return [row["id"] for row in data if form.oracle(row, MEANINGS[dialect]) is True]


def printed(
    target: str, forms: Sequence[Form] = FORMS, types: Mapping[str, str] = TYPES
) -> list[tuple[Form, str, str]]:
    """Return the usable forms of each dialect as conditions of a dialect; at home those on which it never fails."""
    printer = Printer(types)
    return [
        (form, source, condition)
        for form in forms
        for source in DIALECTS
        if (text := form.text(source)) is not None
        and not (source == target and form.overflows)
        and (condition := printer.condition(text, source, target)) is not None
    ]
