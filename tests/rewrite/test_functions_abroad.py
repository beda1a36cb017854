"""Functions of one dialect in another: the author's rows on a real DuckDB, or a refusal that says what to write."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata

import duckdb
import pytest
from support.oracles import casts_abroad, functions_abroad, pieces_abroad, times_abroad
from support.oracles.functions_abroad import DIALECTS, FORMS, MEANINGS, TYPES, Form, Printer, rows, wanted
from support.paths import ROOT

from pdp.engines.row_access.conditions import check_condition
from pdp.engines.row_access.dialects import translate_filter
from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.portable_values import is_certain
from pdp.engines.row_access.trino import CallerValues, UntranslatableSql, bind_caller
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.process.local import LocalRewriter
from pdp.rewrite.rewriter import Rewriter

DATA = rows()


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(f"create table t({', '.join(f'{name} {kind}' for name, kind in TYPES.items())})")
    con.executemany(f"insert into t values ({', '.join('?' * len(TYPES))})", [list(row.values()) for row in DATA])
    return con


@pytest.fixture(scope="module")
def printer() -> Printer:
    return Printer()


def shown(engine: duckdb.DuckDBPyConnection, condition: str) -> list[int]:
    return [row[0] for row in engine.execute(f"SELECT id FROM t WHERE {condition} ORDER BY id").fetchall()]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_duckdb_shows_the_rows_of_the_author(engine: duckdb.DuckDBPyConnection, printer: Printer, form: Form) -> None:
    for source in DIALECTS:
        text = form.text(source)
        if text is None:
            continue
        if source == "duckdb" and form.overflows:
            continue
        condition = printer.condition(text, source, "duckdb")
        if condition is not None:
            assert shown(engine, condition) == wanted(form, source, DATA), (source, text, condition)


SUITES = (functions_abroad, times_abroad, casts_abroad, pieces_abroad)


def pairs(form: Form) -> list[tuple[str, str]]:
    return [(source, target) for source, target in itertools.permutations(DIALECTS, 2) if form.text(source) is not None]


def table() -> str:
    """Return the table of the documents: each form, the dialects that have the form, and the pairs that refuse."""
    lines = ["| filter of | forms |", "|---|---|"]
    usable: dict[str, list[str]] = {}
    printers = [(Printer(suite.TYPES), suite.FORMS) for suite in SUITES]
    for printer, form in ((printer, form) for printer, forms in printers for form in forms):
        refused = [pair for pair in pairs(form) if printer.refusal(str(form.text(pair[0])), *pair)]
        assert not refused, (form.name, refused)
        authors = [dialect for dialect in DIALECTS if form.text(dialect) is not None]
        usable.setdefault("all four" if len(authors) == len(DIALECTS) else ", ".join(authors), []).append(form.name)
    return "\n".join([*lines, *(f"| {authors} | {', '.join(names)} |" for authors, names in usable.items())])


def test_the_documents_have_the_usable_forms() -> None:
    page = (ROOT / "docs" / "row-access.md").read_text("utf-8")
    assert table() in page, table()


REFUSED = [
    ("SUBSTR(s, i) = 'x'", "1 or more"),
    ("LOWER(s) > 'a'", "write = or IN"),
    ("LOWER(s) = t", "compare it with literals"),
    ("LOWER(s) = '\u03c3'", "LOWER"),
    ("UPPER(s) = '\u00df'", "UPPER"),
    ("UPPER(s) LIKE '_A'", "write LOWER"),
    ("UPPER(LOWER(s)) = 'A'", "write one of the two"),
    ("LENGTH(c) = 2", "kind text"),
    ("s LIKE t", "literal"),
    ("REPLACE(s, '', 'x') = 'x'", "not empty"),
    ("MOD(i, 0) = 1", "1 or more"),
    ("COALESCE(s, 1) = 'x'", "one kind"),
    ("CASE WHEN i THEN TRUE END", "kind boolean|a value stands where"),
    ("d + 1 > 2", "kind integer"),
    ("i + 1 = 1.5", "point"),
    ("NULLIF(d, 0) = 1", "CASE"),
    ("CAST(d AS DECIMAL(5, 2)) = 1", "CAST"),
    ("CAST(s AS DOUBLE) = 5", "CAST"),
    ("EXTRACT(WEEK FROM day) = 5", "EXTRACT"),
    ("i / 0 = 1", "product"),
    ("REVERSE(s) = 'x'", "REVERSE"),
    ("i + 1 IS DISTINCT FROM d", "NaN|can fail"),
    ("LENGTH(s) = 'a'", "LENGTH|text"),
    ("LENGTH(s) = d", "NaN"),
    ("STARTS_WITH(s, 'a') = 1", "number"),
    ("LOWER(s) BETWEEN 'a' AND 'b'", "write = or IN"),
    ("s IN (LOWER(t), 'a')", "compare it with literals"),
    ("LOWER(s) IN (t)", "compare it with literals"),
    ("s IN (SELECT LOWER(x) FROM m)", "compare them with literals"),
    ("s = (SELECT LOWER(x) FROM m)", "compare them with literals"),
    ("LOWER(s) IN (SELECT x FROM m)", "compare it with literals"),
    ("NULLIF(LOWER(s), 'a') = t", "compare it with literals"),
    ("CASE WHEN b THEN LOWER(s) ELSE t END = s", "compare it with literals"),
    ("(LOWER(s) || 'a') = t", "compare it with literals"),
    ("(b = TRUE) = TRUE", "binds first"),
    ("(s LIKE 'a%') = TRUE", "binds first"),
    ("(s LIKE 'a%') IN (TRUE)", "binds first"),
]


PATTERNS = [
    "(?i)eu", "a\\b", "\\p{L}", "a*+", "a**", "(?=a)", "(a)\\1", "[[:alpha:]]", "[a-z&&b]", "(ab)*", "(a|b)+", "a{2", "a|", "(|a)",
    "()", "[\u00e0-\u00ef]", "[a-Z]", "a{1001}", "^*", "[]a]", "(a", "a)", "(?P<n>a)", "a{,2}", "[z-a]", "[^]", "[a-c-e]", "\\Qa\\E",
]  # fmt: skip


CALLS = {
    "bigquery": ("REGEXP_CONTAINS(s, r'{}')", "REGEXP_EXTRACT(s, r'{}') = 'a'", "REGEXP_REPLACE(s, r'{}', 'a') = 'a'"),
    "trino": ("regexp_like(s, '{}')", "regexp_extract(s, '{}') = 'a'", "regexp_replace(s, '{}', 'a') = 'a'"),
    "duckdb": ("regexp_matches(s, '{}')", "regexp_extract(s, '{}', 0) = 'a'", "regexp_replace(s, '{}', 'a', 'g') = 'a'"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Possible")  # the parser of SQL compiles patterns of BigQuery
@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_engines_read_differently_in_a_regular_expression_is_refused(printer: Printer, pattern: str) -> None:
    for source, texts in CALLS.items():
        for target in set(DIALECTS) - {source}:
            for text in texts:
                found = printer.refusal(text.format(pattern), source, target)
                assert re.search("regular|RAP|differs", found), (source, target, text)


@pytest.mark.parametrize(("text", "cause"), REFUSED)
def test_what_engines_do_differently_is_refused_with_what_to_write(printer: Printer, text: str, cause: str) -> None:
    for source, target in itertools.permutations(DIALECTS, 2):
        refusal = printer.refusal(text, source, target)
        assert re.search(cause, refusal), (source, target, refusal)


@pytest.mark.parametrize("text", ["LOWER(x) = 'a'", "COALESCE(x, 'a') = 'a'", "x || 'a' = 'a'", "x + 1 = 2"])
def test_a_function_of_a_column_without_a_type_is_refused(text: str) -> None:
    for dialect in ("bigquery", "spark", "duckdb"):
        with pytest.raises(UntranslatableSql, match=r"`x`, which has no known type: describe its table|kind"):
            translate_filter(text, dialect)


def test_a_caller_with_other_letters_sees_no_row_of_a_folded_filter(printer: Printer) -> None:
    for source, target in itertools.permutations(DIALECTS, 2):
        name = "SESSION_USER()" if source == "bigquery" else "current_user"
        for text in (f"LOWER(s) = {name}", f"s = LOWER({name})", f"UPPER(s) = UPPER({name})"):
            assert printer.refusal(text, source, target) == ""
            assert "letter" in printer.refusal(text, source, target, "user:\u0130@x.example")
    filter = translate_filter("LOWER(s) = SESSION_USER()", "bigquery", {"s": "STRING"})
    assert filter is not None
    assert bind_caller(filter, CallerValues("\u0130@x.example", "", None)) is None
    assert bind_caller(filter, CallerValues("it's", "", None)) == "LOWER(REPLACE(s, '\u0130', 'i\u0307')) = 'it''s'"


@pytest.mark.parametrize("source", ["bigquery", "trino", "spark"])
def test_a_mask_with_functions_has_the_author_s_value(engine: duckdb.DuckDBPyConnection, source: str) -> None:
    first = {"bigquery": r"r'\1***@'", "trino": "'$1***@'", "spark": "'$1***@'"}[source]
    masks = {"CONCAT(SUBSTR(s, 1, 1), '***')": "s[1:1] || '***'", "CASE WHEN b THEN s ELSE '***' END": "IF(b, s, '***')",
             f"REGEXP_REPLACE(s, '([a-z])[a-z.]*@', {first})": r"regexp_replace(s, '([a-z])[a-z.]*@', '\1***@', 'g')",
             "LOWER(s)": "NULL"}  # fmt: skip
    for text, wanted_value in masks.items():
        mask = {"id": "m", "table": "t", "column": "s", "kind": "expression", "expression": text, "dialect": source}
        body = {
            "default": ["lake", "s"],
            "tables": {"t": {"columns": TYPES}},
            "masks": [{**mask, "grantees": ["allUsers"]}],
        }
        document = parse_document(body).document
        catalog = catalog_of([document])
        service = LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))
        asked = {"sql": "SELECT id, s FROM t ORDER BY id", "dialect": "duckdb", "principal": "user:a@x.example"}
        sql = service.answer(json.dumps(asked).encode())["sql"]
        assert (
            engine.execute(sql).fetchall() == engine.execute(f"SELECT id, {wanted_value} FROM t ORDER BY id").fetchall()
        )


LEAKS = [
    ("bigquery", "g * g * g > 1", "38 digits"),
    ("trino", "g * g * g > 1", "38 digits"),
    ("duckdb", "g * g * g > 1", "38 digits"),
    ("duckdb", "s ~ 'a'", "regexp_matches"),
    ("duckdb", "NOT s !~ 'a'", "regexp_matches"),
    ("duckdb", "s ~~ 'a'", "LIKE"),
    ("duckdb", "s !~~ 'a'", "LIKE"),
    ("duckdb", "s ~~* 'a'", "LIKE"),
    ("duckdb", "s ~* 'a'", "regexp_matches"),
    ("duckdb", "s !~* 'a'", "regexp_matches"),
    ("duckdb", "s RLIKE 'a'", "regexp_matches"),
    ("bigquery", "CONTAINS_SUBSTR(s, 'a')", "STRPOS"),
    ("bigquery", "CONTAINS_SUBSTR(s, '\u00e9')", "LOWER"),
    ("all", "s = UPPER('a' || '\u00df')", "letter"),
    ("all", "LOWER(s) = ('a' || '\u03c2')", "letter"),
    ("all", "LOWER(s) IN ('a', 'a' || '\u03c2')", "letter"),
    ("all", "LOWER(s) = (caller || '\u03c2')", "letter"),
    ("all", "s = UPPER(caller || '\u00df')", "letter"),
    ("all", "LOWER(s) LIKE ('%' || '\u03c2')", "letter"),
    ("all", "s = ('$' || '{x}')", "[$]"),
    ("all", "-i > 1", "minus"),
    ("all", "-d > 1", "minus"),
    ("all", "1 < -d", "minus"),
    ("all", "-(5) < i", "minus"),
    ("all", "d NOT IN (-d)", "minus"),
    ("all", "i BETWEEN -g AND 5", "minus"),
    ("all", "day = DATE '2024-W01-1'", "DATE"),
    ("all", "day = DATE '\u0662024-01-31'", "DATE"),
    ("all", "UPPER(s) = '\u0412'", "letter"),
    ("all", "UPPER(s) LIKE '%\u042a%'", "letter"),
    ("all", "i + 99999999999999999999 > 5", "64 bits"),
    ("trino", "regexp_like(s, 'a$')", "z"),
    ("trino", "NOT regexp_like(s, '^a$|b')", "z"),
]


@pytest.mark.parametrize(("source", "text", "cause"), LEAKS)
def test_a_filter_that_showed_other_rows_is_refused(printer: Printer, source: str, text: str, cause: str) -> None:
    for one, target in itertools.permutations(DIALECTS, 2):
        if source not in ("all", one):
            continue
        name = "SESSION_USER()" if one == "bigquery" else "current_user"
        refusal = printer.refusal(text.replace("caller", name), one, target)
        assert re.search(cause, refusal), (one, target, refusal)


@pytest.mark.parametrize("text", ["s ~ 'a'", "s !~ 'a'", "s ~~ 'a'"])
def test_trino_does_not_read_the_operators_of_duckdb(text: str) -> None:
    with pytest.raises(UntranslatableSql, match="write"):
        translate_filter(text, "duckdb", {"s": "VARCHAR"})
    assert check_condition(text, "duckdb", {"s": "VARCHAR"}).closed
    assert translate_filter("s = '~' OR regexp_matches(s, 'a')", "duckdb", {"s": "VARCHAR"})


@pytest.mark.parametrize("size", ["{999}", "{0,999}", "{2,}", "?"])
def test_no_pattern_is_too_large_for_duckdb(engine: duckdb.DuckDBPyConnection, printer: Printer, size: str) -> None:
    many = "".join(map(chr, range(0x4E01, 0x4E01 + 700, 7)))
    for item in ("a", ".", f"[^{many}]", f"[{many}]", "[0-9]"):
        for times in (1, 2, 20, 1500):
            pattern = f"{item}{size}" * times
            for source, text in (("bigquery", f"REGEXP_CONTAINS(s, r'{pattern}')"), ("spark", f"s RLIKE '{pattern}'")):
                condition = printer.condition(text, source, "duckdb") if len(text) < 10_000 else None
                if condition is not None:
                    shown(engine, condition)
                elif len(text) < 10_000:
                    assert "large" in printer.refusal(text, source, "duckdb")
    assert printer.refusal(f"REGEXP_CONTAINS(s, r'{'.{999}' * 300}')", "bigquery", "duckdb")


WIDENED = [
    "NULLIF(k, 0) * 2 > 60000", "COALESCE(k, 0) * 2 > 60000", "CASE WHEN b THEN k ELSE k END * 2 > 60000",
    "IF(b, k, k) * 2 > 60000", "(k + 0) * (k + 0) > 60000", "ABS(NULLIF(k, 0)) > 32767", "ABS(COALESCE(i, 0)) > 2147483647",
    "MOD(k, 100000) = 32767", "MOD(NULLIF(k, 0), 100000) * 100 > 60000", "2147483647 + 1 > 2147483647", "ABS(-2147483648) > 2147483647",
    "NULLIF(g, 0) + 1 > 9223372036854774000",
]  # fmt: skip


@pytest.mark.parametrize("text", WIDENED)
def test_a_value_of_few_bits_does_not_overflow(engine: duckdb.DuckDBPyConnection, printer: Printer, text: str) -> None:
    """Compare with DuckDB on columns of the widest type."""
    wide = text
    for name in "kig":
        wide = re.sub(rf"\b{name}\b", f"CAST({name} AS HUGEINT)", wide)
    wide = wide.replace("2147483647 + 1", "2147483648").replace("ABS(-2147483648)", "2147483648")
    for source in ("bigquery", "trino"):
        condition = printer.condition(text, source, "duckdb")
        assert condition is not None
        assert shown(engine, condition) == shown(engine, wide)
        if "k" in text and "NULLIF" in text:
            assert "CAST(NULLIF(" in str(printer.condition(text, source, "spark"))


@pytest.mark.parametrize("source", ["trino", "spark", "duckdb"])
def test_dates_move_in_bigquery_beside_literals_within_its_range_alone(printer: Printer, source: str) -> None:
    moved = {"trino": "date_add('day', 400, day)", "spark": "date_add(day, 400)", "duckdb": "(day + 400)"}[source]
    last, first = "DATE '9999-12-31'", "DATE '0001-01-01'"
    refused = [
        f"{moved} = {last}", f"{moved} > {last}", f"{last} < {moved}", f"{moved} <= {first}", f"{moved} IN ({last})",
        f"{moved} BETWEEN {first} AND DATE '2024-01-01'", f"{moved} = day", f"COALESCE({moved}, day) = {last}",
        f"EXTRACT(YEAR FROM {moved}) = 9999", f"{moved} IS NOT DISTINCT FROM {last}", f"NULLIF({moved}, {last}) IS NULL",
        f"CASE WHEN b THEN {moved} END = {last}", f"{moved} IN (SELECT CAST(NULL AS DATE) FROM m)",
    ]  # fmt: skip
    for text in refused:
        assert printer.refusal(text, source, "bigquery"), text
    for text in (
        f"{moved} = DATE '9999-12-30'",
        f"{moved} IS NULL",
        f"{moved} BETWEEN DATE '0001-01-02' AND DATE '2024-01-01'",
    ):
        assert printer.refusal(text, source, "bigquery") == "", text


def test_certain_letters_are_made_of_old_letters_alone() -> None:
    new = [chr(code) for code in range(0x110000) if unicodedata.ucd_3_2_0.category(chr(code)) == "Cn"]
    for sign in new:
        upper, lower = sign.upper(), sign.lower()
        assert upper == sign or not all(is_certain(one, "UPPER") for one in upper), hex(ord(sign))
        assert sign in (lower, "\u1e9e") or not all(is_certain(one, "LOWER") for one in lower), hex(ord(sign))


def test_trim_settles_with_the_signs_given(printer: Printer) -> None:
    for source, target in itertools.permutations(DIALECTS, 2):
        for name, signs in (("LOWER", "\u03c2"), ("LOWER", "a\u03c3"), ("UPPER", "A"), ("UPPER", "\u00df")):
            given = f"'{signs}'"
            call = f"TRIM(BOTH {given} FROM {name}(s))" if source in ("trino", "spark") else f"TRIM({name}(s), {given})"
            assert re.search("letter|another number", printer.refusal(f"{call} = 'x'", source, target)), (source, call)


def test_decimals_of_two_types_are_no_value_of_one_kind() -> None:
    types = {"c": "DECIMAL(38,0)", "e": "DECIMAL(38,37)"}
    for text in ("COALESCE(c, e) = 1", "IF(c > 1, c, e) = 1", "COALESCE(e, 100) = 100"):
        with pytest.raises(UntranslatableSql, match=r"kind|digits"):
            translate_filter(text, "spark", types)
    assert translate_filter("COALESCE(c, 100) = 100", "spark", types)


def test_every_letter_folds_as_the_meanings_say(engine: duckdb.DuckDBPyConnection) -> None:
    """Compare DuckDB's case of old signs with the meaning: newer letters differ by version."""
    found = engine.execute(
        "SELECT code, lower(chr(code)), upper(chr(code)) FROM "
        "(SELECT code::INTEGER AS code FROM range(1, 55296) AS low(code) UNION ALL "
        "SELECT code::INTEGER FROM range(57344, 65536) AS high(code))"
    ).fetchall()
    meaning = MEANINGS["duckdb"]
    for code, lower, upper in found:
        if unicodedata.ucd_3_2_0.category(chr(code)) != "Cn":
            assert lower == meaning.lower(chr(code)), hex(code)
            assert upper == meaning.upper(chr(code)) or (len(upper) == 1 and len(chr(code).upper()) > 1), hex(code)
