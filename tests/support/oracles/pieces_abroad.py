"""Filters with pieces of texts, patterns, lists and Spark's arithmetic, what each dialect means by them, and the rows.

The meanings are plain Python. DuckDB, Spark 4.1.4, Trino 476 and GoogleSQL's evaluator were asked first, and tests run
the forms there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from support.oracles.functions_abroad import (
    ANY,
    DIALECTS,
    INTS,
    LONGS,
    MEANINGS,
    SMALLS,
    TEXTS,
    Form,
    Meaning,
    Oracle,
    Row,
    by_dialect,
    of,
    three_and,
    three_or,
)

TYPES: Final = {
    "id": "INTEGER", "s": "VARCHAR", "t": "VARCHAR", "i": "INTEGER", "g": "BIGINT", "k": "SMALLINT", "b": "BOOLEAN",
    "tags": "VARCHAR[]",
}  # fmt: skip
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "duckdb": {}, "trino": {"tags": "ARRAY(VARCHAR)"}, "spark": {"s": "STRING", "t": "STRING", "tags": "ARRAY<STRING>"},
    "bigquery": {
        "id": "INT64", "s": "STRING", "t": "STRING", "i": "INT64", "g": "INT64", "k": "INT64", "b": "BOOL",
        "tags": "ARRAY<STRING>",
    },
}  # fmt: skip
PIECES: Final = [
    "a-b-c", "a-b", "-b", "a--b", "---", "a.b", "a.b.c", ".", "ab12", "aab", "b", "aba", "12ab34", "5-5", "a$b", "a$1b", "a\\1b",
    "e\u0301-b", "\U0001f600-b", "a-\U0001f600", "${x}-b", "x.b@c\ny.z@d", "joe@eu.example", "Joe.Doe@eu.example", "i-\u0130",
    "\u0130-i", "a-b\n", "a-'b", "aaa", "abab", "b@", "a%-b_", " - ", "\u00e9-b", "a\nb", "\nb", "a\x85b@", "a\u2028b@", "a\r\nb@",
]  # fmt: skip
LISTS: Final[list[list[str | None] | None]] = [
    None, [], ["a"], ["eu", "a"], [None], [None, "a"], ["eu", None], ["A"], [""], ["a%"], ["e\u0301", "\U0001f600"], ["eu"],
]  # fmt: skip


def rows() -> list[dict[str, Any]]:
    """Return rows with each text beside changing values of the other columns."""
    texts = PIECES + TEXTS
    cycles = zip(*(itertools.cycle(some) for some in (INTS, LONGS, SMALLS, [None, True, False], LISTS)), strict=False)
    return [
        dict(zip(TYPES, (at, text, texts[(at * 7 + 3) % len(texts)], *rest), strict=True))
        for at, (text, rest) in enumerate(zip(texts, cycles, strict=False))
    ]


def dialect_of(meaning: Meaning) -> str:
    """Return the dialect of a meaning."""
    return next(name for name, one in MEANINGS.items() if one is meaning)


def piece(text: str | None, sign: str, place: int) -> str | None:
    """Return a piece of a text, counted from 0."""
    found = text.split(sign) if text is not None else []
    return found[place] if place < len(found) else None


def absent(value: str | None, meaning: Meaning, *, empty: str) -> bool | None:
    """Return whether a value is absent: empty for some dialects, NULL for others."""
    return value == "" if dialect_of(meaning) in empty.split() else value is None


def taken(row: Row, meaning: Meaning, pattern: str, group: int) -> str | None:
    """Return what a group of a pattern takes of `s`; Spark and DuckDB take an empty text without a match."""
    if row["s"] is None:
        return None
    dialect = dialect_of(meaning)
    found = re.search(pattern.replace(".", ANY[dialect]), row["s"])
    value = found[group] if found else None
    return "" if value is None and dialect in ("spark", "duckdb") else value


def third(row: Row, meaning: Meaning) -> bool | None:
    """Return whether `s` has no third piece: an empty one for Spark and DuckDB, NULL for others."""
    found = piece(row["s"], "-", 2)
    if dialect_of(meaning) in ("bigquery", "trino"):
        return found is None
    return None if row["s"] is None else not found


def among(values: tuple[str, ...]) -> str:
    """Return IN with a list of texts."""
    return "IN (" + ", ".join(f"'{value}'" for value in values) + ")"


def extracted(name: str, pattern: str, group: int, values: tuple[str, ...]) -> Form:
    """Return a form with REGEXP_EXTRACT."""
    rest = among(values)
    texts = by_dialect(
        bigquery=f"REGEXP_EXTRACT(s, r'{pattern}') {rest}", trino=f"regexp_extract(s, '{pattern}', {group}) {rest}",
        spark=f"regexp_extract(s, '{pattern}', {group}) {rest}", duckdb=f"regexp_extract(s, '{pattern}', {group}) {rest}",
    )  # fmt: skip
    return Form(
        name, texts, lambda row, m: None if (found := taken(row, m, pattern, group)) is None else found in values
    )


def missing(name: str, pattern: str, group: int) -> Form:
    """Return a form that asks whether REGEXP_EXTRACT takes nothing."""
    call = f"regexp_extract(s, '{pattern}', {group})"
    texts = by_dialect(
        bigquery=f"REGEXP_EXTRACT(s, r'{pattern}') IS NULL", trino=f"{call} IS NULL", spark=f"{call} = ''",
        duckdb=f"{call} = ''",
    )  # fmt: skip
    return Form(name, texts, lambda row, m: absent(taken(row, m, pattern, group), m, empty="spark duckdb"))


def replaced(name: str, pattern: str, new: str, values: tuple[str, ...], spark: str = "") -> Form:
    r"""Return a form with REGEXP_REPLACE. `new` has groups as `\1`."""
    java = re.sub(r"\\(\d)", r"$\1", new)
    rest = among(values)
    texts = by_dialect(
        bigquery=f"REGEXP_REPLACE(s, r'{pattern}', r'{new}') {rest}",
        trino=f"regexp_replace(s, '{pattern}', '{java}') {rest}",
        spark=f"regexp_replace(s, '{pattern}', '{spark or java}') {rest}",
        duckdb=f"regexp_replace(s, '{pattern}', '{new}', 'g') {rest}",
    )

    def oracle(row: Row, meaning: Meaning) -> bool | None:
        python = pattern.replace(".", ANY[dialect_of(meaning)])
        return None if row["s"] is None else substituted(python, new, row["s"]) in values

    return Form(name, texts, oracle)


def substituted(pattern: str, new: str, text: str, count: int = 0) -> str:
    r"""Return a text with its matches replaced. `\0` is the match."""
    return re.sub(pattern, new.replace("\\0", "\\g<0>"), text, count=count)


def first(pattern: str, new: str, values: tuple[str, ...]) -> Form:
    """Return a form of DuckDB, which replaces the first match alone without `g`."""
    text = f"regexp_replace(s, '{pattern}', '{new}') {among(values)}"
    return Form(
        f"`regexp_replace(s, '{pattern}', ..)` without `g`".replace("|", "\\|"),
        {"duckdb": text},
        of("s", lambda s: substituted(pattern.replace(".", "[^\n]"), new, s, 1) in values),
    )


def kept(meaning: Meaning, bits: int, number: int) -> int | None:
    """Return a number, NULL where it leaves its type in Spark."""
    is_in = -(2 ** (bits - 1)) <= number < 2 ** (bits - 1)
    return number if is_in or dialect_of(meaning) != "spark" else None


def counted(column: str, bits: int, number: Callable[[int], int], test: Callable[[int], bool]) -> Oracle:
    """Return an oracle of a number that is counted from a column."""

    def oracle(row: Row, meaning: Meaning) -> bool | None:
        value = None if row[column] is None else kept(meaning, bits, number(row[column]))
        return None if value is None else test(value)

    return oracle


def either(*oracles: Oracle) -> Oracle:
    """Return an oracle of OR."""

    def oracle(row: Row, meaning: Meaning) -> bool | None:
        found: bool | None = False
        for one in oracles:
            found = three_or(found, one(row, meaning))
        return found

    return oracle


def both(one: Oracle, other: Oracle) -> Oracle:
    """Return an oracle of AND."""
    return lambda row, meaning: three_and(one(row, meaning), other(row, meaning))


def holds(member: str) -> Oracle:
    """Return an oracle of a member in a list."""
    return lambda row, meaning: row["tags"] is not None and member in row["tags"]


def members(text: str) -> Mapping[str, str]:
    """Return the texts of a test for a member of `tags`."""
    return by_dialect(
        bigquery=f"{text} IN UNNEST(tags)", trino=f"contains(tags, {text})", spark=f"array_contains(tags, {text})",
        duckdb=f"list_contains(tags, {text})",
    )  # fmt: skip


def sized(pattern: str, sizes: tuple[int, ...]) -> Form:
    """Return a form with the length of a text whose parts before `@` are stars."""
    rest = f"IN ({', '.join(map(str, sizes))})"
    calls = by_dialect(
        bigquery=f"REGEXP_REPLACE(s, r'{pattern}', r'\\1***@')", trino=f"regexp_replace(s, '{pattern}', '$1***@')",
        spark=f"regexp_replace(s, '{pattern}', '$1***@')", duckdb=f"regexp_replace(s, '{pattern}', '\\1***@')",
    )  # fmt: skip

    def oracle(row: Row, meaning: Meaning) -> bool | None:
        python, count = pattern.replace(".", ANY[dialect_of(meaning)]), int(dialect_of(meaning) == "duckdb")
        return None if row["s"] is None else len(substituted(python, "\\1***@", row["s"], count)) in sizes

    return Form("length of `REGEXP_REPLACE`", {d: f"LENGTH({call}) {rest}" for d, call in calls.items()}, oracle)


LOOKUP: Final = ["EU", "a", "a-b", "a%b", None]
"""Texts of the table `m` of a column `x`."""
_STAR: Final = ("j***@eu.example", "J***@eu.example", "u***@eu.example", "a***@x.example")
FORMS: Final = [
    Form("`SPLIT(s, '-')` with an index", by_dialect(bigquery="SPLIT(s, '-')[SAFE_OFFSET(1)] = 'b'", trino="split_part(s, '-', 2) = 'b'", spark="split(s, '-')[1] = 'b'", duckdb="string_split(s, '-')[2] = 'b'"), lambda row, m: None if (p := piece(row["s"], "-", 1)) is None else p == "b", overflows=True),
    Form("first piece of `s`", by_dialect(bigquery="SPLIT(s, '-')[OFFSET(0)] IN ('a', '')", trino="split(s, '-')[1] IN ('a', '')", spark="split_part(s, '-', 1) IN ('a', '')", duckdb="split_part(s, '-', 1) IN ('a', '')"), of("s", lambda s: s.split("-")[0] in ("a", ""))),
    Form("missing piece of `s`", by_dialect(bigquery="SPLIT(s, '-')[SAFE_ORDINAL(3)] IS NULL", trino="element_at(split(s, '-'), 3) IS NULL", spark="split_part(s, '-', 3) = ''", duckdb="split_part(s, '-', 3) = ''"), third),
    Form("`SPLIT(s, '.')` with an index", by_dialect(bigquery="SPLIT(s, '.')[SAFE_OFFSET(1)] IN ('b', 'example')", trino="split_part(s, '.', 2) IN ('b', 'example')", spark="split_part(s, '.', 2) IN ('b', 'example')", duckdb="split_part(s, '.', 2) IN ('b', 'example')"), lambda row, m: (None if row["s"] is None or dialect_of(m) in ("bigquery", "trino") else False) if (p := piece(row["s"], ".", 1)) is None else p in ("b", "example")),
    Form("`SPLIT(LOWER(s), 'i')` with an index", by_dialect(bigquery="SPLIT(LOWER(s), 'i')[SAFE_OFFSET(1)] IN ('t', '')", trino="split_part(lower(s), 'i', 2) IN ('t', '')", spark="split(lower(s), 'i')[1] IN ('t', '')", duckdb="split(lower(s), 'i')[2] IN ('t', '')"), lambda row, m: None if row["s"] is None or (p := piece(m.lower(row["s"]), "i", 1)) is None else p in ("t", ""), overflows=True),
    extracted("`REGEXP_EXTRACT(s, '^([A-Za-z]+)@')`", "^([A-Za-z]+)@", 1, ("a", "user", "joe")),
    missing("`REGEXP_EXTRACT` without a match", "([0-9]+)-", 1),
    extracted("`REGEXP_EXTRACT` of a whole match", "[0-9]+|ab", 0, ("5", "12", "ab", "007")),
    extracted("`REGEXP_EXTRACT` of the first choice", "(a|ab|aab)", 1, ("a",)),
    extracted("`REGEXP_EXTRACT` of few signs", "(a.*?)b", 1, ("a", "aa", "a-")),
    extracted("`REGEXP_EXTRACT` of many signs", "(a.*)b", 1, ("a", "aa", "a-", "ab", "a.")),
    missing("`REGEXP_EXTRACT` of a group that may be missing", "^(a)?b", 1),
    missing("`REGEXP_EXTRACT` of a group that may be empty", "^([a-z]*)-", 1),
    missing("`REGEXP_EXTRACT` of one choice", "^(?:(a)|b)", 1),
    extracted("`REGEXP_EXTRACT` of `[^@]+`", "@([^@]+)", 1, ("eu.example", "x.example")),
    replaced("`REGEXP_REPLACE(s, '[0-9]', '')`", "[0-9]", "", ("ab", "-", "ab", "user@eu.example")),
    replaced("`REGEXP_REPLACE` with a group", "(.).*@", "\\1***@", _STAR),
    sized("(.).*@", (13, 12, 7)),
    replaced("`REGEXP_REPLACE` with two groups", "([a-z])-([a-z])", "\\2-\\1", ("b-a", "b-a-c")),
    replaced("`REGEXP_REPLACE` of a start", "^a", "x", ("xaa", "xb", "xab", "x-b", "xba")),
    replaced("`REGEXP_REPLACE` with a missing group", "a(x)?b", "[\\1]", ("[]", "[][]", "[]c", "[]12", "a[]")),
    Form("`REGEXP_REPLACE` with the match", by_dialect(bigquery="REGEXP_REPLACE(s, r'[a-z]+', r'<\\0>') IN ('<a>-<b>', '<ab>')", trino="regexp_replace(s, '[a-z]+', '<$0>') IN ('<a>-<b>', '<ab>')", spark="regexp_replace(s, '[a-z]+', '<$0>') IN ('<a>-<b>', '<ab>')", duckdb="regexp_replace(s, '[a-z]+', '<\\0>', 'g') IN ('<a>-<b>', '<ab>')"), of("s", lambda s: substituted("[a-z]+", "<\\0>", s) in ("<a>-<b>", "<ab>"))),
    Form("`REGEXP_REPLACE` with a digit behind a group", by_dialect(bigquery="REGEXP_REPLACE(s, '(a)b', r'\\12') IN ('a2', 'a2a2')", trino="regexp_replace(s, '(a)b', '$1\\2') IN ('a2', 'a2a2')", spark="regexp_replace(s, '(a)b', '$1\\\\2') IN ('a2', 'a2a2')", duckdb="regexp_replace(s, '(a)b', '\\12', 'g') IN ('a2', 'a2a2')"), of("s", lambda s: substituted("(a)b", "\\g<1>2", s) in ("a2", "a2a2"))),
    Form("`REGEXP_REPLACE` with `$` and a backslash", by_dialect(bigquery="REGEXP_REPLACE(s, '-', r'$\\\\') = r'a$\\b'", trino="regexp_replace(s, '-', '\\$\\\\') = 'a$\\b'", spark="regexp_replace(s, '-', '\\\\$\\\\\\\\') = 'a$\\\\b'", duckdb="regexp_replace(s, '-', '$\\\\', 'g') = 'a$\\b'"), of("s", lambda s: s.replace("-", "$\\") == "a$\\b")),
    first("a", "x", ("xab", "xaa", "xb", "xbab", "x", "x-b")),
    first("(.).*@", "\\1***@", _STAR),
    first("(b)|a", "<\\1\\0>", ("<a>b", "<bb>", "<a>ba")),
    Form("`b IS TRUE`", by_dialect(bigquery="b IS TRUE OR (i > 4) IS TRUE", trino="b IS NOT DISTINCT FROM TRUE OR COALESCE(i > 4, FALSE)", spark="b IS TRUE OR (i > 4) IS TRUE", duckdb="b IS TRUE OR (i > 4) IS TRUE"), lambda row, m: row["b"] is True or (row["i"] is not None and row["i"] > 4)),
    Form("`b IS NOT TRUE`", by_dialect(bigquery="b IS NOT TRUE AND b IS NOT FALSE", trino="b IS DISTINCT FROM TRUE AND b IS DISTINCT FROM FALSE", spark="b IS NOT TRUE AND b IS NOT FALSE", duckdb="b IS NOT TRUE AND b IS NOT FALSE"), lambda row, m: row["b"] is None),
    Form("`LIKE` with an escape", by_dialect(bigquery="s LIKE 'a\\\\%%'", trino="s LIKE 'a!%%' ESCAPE '!'", spark="s LIKE 'a\\\\%%'", duckdb="s LIKE 'a!%%' ESCAPE '!'"), of("s", lambda s: s.startswith("a%"))),
    Form("text that ends with `b`", by_dialect(bigquery="ENDS_WITH(s, 'b')", trino="s LIKE '%b'", spark="endswith(s, 'b')", duckdb="ends_with(s, 'b')"), of("s", lambda s: s.endswith("b"))),
    Form("text with a backslash", by_dialect(bigquery="s = r'a\\b'", trino="s = 'a\\b'", spark="s = 'a\\\\b'", duckdb="s = 'a\\b'"), of("s", lambda s: s == "a\\b")),
    Form("`s IN (..)`", "s IN ('EU', 'a%b', 'it')", of("s", lambda s: s in ("EU", "a%b", "it"))),
    Form("`EXISTS` over a lookup table", "EXISTS (SELECT 1 FROM m WHERE m.x = s)", lambda row, m: row["s"] in LOOKUP and row["s"] is not None),
    Form("`IN` over a lookup table", "s IN (SELECT x FROM m WHERE x <> 'a')", lambda row, m: row["s"] in LOOKUP and row["s"] not in (None, "a")),
    Form("member of a list", by_dialect(bigquery="s IN UNNEST(['EU', 'a'])", trino="contains(ARRAY['EU', 'a'], s)", spark="array_contains(array('EU', 'a'), s)", duckdb="list_contains(['EU', 'a'], s)"), of("s", lambda s: s in ("EU", "a"))),
    Form("number in a list", by_dialect(bigquery="NOT g IN UNNEST([0, 9007199254740993])", trino="NOT contains(ARRAY[0, 9007199254740993], g)", spark="NOT array_contains(array(0, 9007199254740993), g)", duckdb="NOT list_contains([0, 9007199254740993], g)"), of("g", lambda g: g not in (0, 2**53 + 1))),
    Form("member of a column of lists", members("'a'"), holds("a")),
    Form("two members of a column of lists", {d: f"({one} OR i = 0) AND ({two} OR b)" for d, one, two in ((d, members("'eu'")[d], members("'a'")[d]) for d in DIALECTS)}, both(either(holds("eu"), of("i", lambda i: i == 0)), either(holds("a"), of("b", bool)))),
    Form("`s` in a column of lists", members("s"), lambda row, m: row["s"] is not None and row["tags"] is not None and row["s"] in row["tags"]),
    Form("`i + 1`", "i + 1 > 5 OR i + 1 < -5", counted("i", 32, lambda i: i + 1, lambda n: n > 5 or n < -5), overflows=True),
    Form("`i - 1`", "i - 1 > 5 OR i - 1 < -5", counted("i", 32, lambda i: i - 1, lambda n: n > 5 or n < -5), overflows=True),
    Form("`i * 2`", "NOT i * 2 = 10 AND i * 2 IN (4, 10, 14, -10, 4294967294)", counted("i", 32, lambda i: i * 2, lambda n: n in (4, 14, -10, 4294967294)), overflows=True),
    Form("`g + 1`", "g + 1 > 9007199254740993 OR g * g = 9", either(counted("g", 64, lambda g: g + 1, lambda n: n > 2**53 + 1), counted("g", 64, lambda g: g * g, lambda n: n == 9)), overflows=True),
    Form("`k * k`", "k * k >= 10000 OR k - 1 < -7", either(counted("k", 16, lambda k: k * k, lambda n: n >= 10000), counted("k", 32, lambda k: k - 1, lambda n: n < -7)), overflows=True),
    Form("`ABS(i)`", "ABS(i) > 4 AND ABS(g) > 2", both(counted("i", 32, abs, lambda n: n > 4), counted("g", 64, abs, lambda n: n > 2)), overflows=True),
    Form("`LENGTH(s) * LENGTH(t)`", "LENGTH(s) * LENGTH(t) - 1 = 3", lambda row, m: None if None in (row["s"], row["t"]) else len(row["s"]) * len(row["t"]) == 4),
]  # fmt: skip
PARTLY: Final[list[Form]] = []
"""Forms that some pairs of dialects refuse."""
