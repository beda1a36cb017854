"""Texts of BigQuery: names cut by quotes at any dot, raw texts, and headers that ask for another language."""

from __future__ import annotations

import duckdb
import pytest
from support.rewriting import code_of

from pdp.engines.row_access.policies import parse_document
from pdp.rewrite import errors
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter

ALICE = "user:alice@example.com"
NAMES = [
    "orders", "sales.orders", "lake.sales.orders", "`lake.sales.orders`", "`lake.sales`.orders", "`lake`.`sales.orders`",
    "lake.`sales.orders`", "`lake` . `sales` . `orders`", "`lake.sales` . orders", "`sales.orders`", "lake.`sales`.orders",
]  # fmt: skip


def service() -> LocalRewriter:
    policy = {"id": "p", "table": "orders", "grantees": ["allUsers"], "filter": "id = 1", "dialect": "bigquery"}
    tables = {"orders": {"columns": {"id": "INT64", "region": "STRING"}}}
    document = parse_document({"default": ["lake", "sales"], "tables": tables, "policies": [policy]}).document
    catalog = catalog_of([document])
    return LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))


SERVICE = service()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_replaced_as_a_whole_however_quotes_cut_it(name: str) -> None:
    sql = SERVICE.rewrite(RewriteRequest(f"SELECT id FROM {name} WHERE id > 0", "bigquery", ALICE))
    assert sql.startswith(f"SELECT id FROM (SELECT * FROM {name} WHERE id = 1) AS ")
    both = SERVICE.rewrite(RewriteRequest(f"SELECT a.id FROM {name} AS a,{name} AS b", "bigquery", ALICE))
    source = f"(SELECT * FROM {name} WHERE id = 1)"
    assert both == f"SELECT a.id FROM {source} AS a,{source} AS b"


@pytest.mark.parametrize(
    "text",
    [
        r"SELECT r'\d+' AS x FROM orders", r'SELECT REGEXP_EXTRACT(region, R"^\w+") FROM orders',
        'SELECT """a""", """b \'c\' ""d"" """ FROM orders', 'SELECT """ FROM items, nosuch """ AS x, id FROM orders',
        'SELECT """a\n-- b\n/* c""" FROM orders -- """', 'SELECT """a\\"""" FROM orders', 'SELECT """"a""" FROM orders', 'SELECT b"""x""" FROM orders',
        r'SELECT r"""\d""", id FROM orders', "SELECT '''a \"b\" 'c' ''' FROM orders",
        r"SELECT b'\x00', r'\\' FROM orders", r"SELECT r'\\' AS x, id FROM orders WHERE region = r'FROM x'",
    ],
)  # fmt: skip
def test_raw_texts_stay_to_the_letter(text: str) -> None:
    sql = SERVICE.rewrite(RewriteRequest(text, "bigquery", ALICE))
    assert sql.replace("(SELECT * FROM orders WHERE id = 1) AS orders", "orders") == text != sql


@pytest.mark.parametrize(
    "text",
    [
        r"SELECT r'\'', 1 FROM orders", r"SELECT r'\', (SELECT id FROM nosuch), r'\'", r"SELECT r'''x\'''' FROM orders", "SELECT rb'x' FROM orders",
        'SELECT """a"""" FROM orders', 'SELECT """a"" " FROM orders', 'SELECT xr"""a""" FROM orders', "SELECT r'''x'''' FROM orders",
        r'''SELECT r"""a\""", (SELECT id FROM nosuch), r"""\""" FROM orders''',

        "SELECT r'a' 'b", "SELECT r'a''b' FROM orders", "SELECT xr'a' FROM orders", "SELECT r`a` FROM orders",
        r"SELECT r'a\' FROM orders",
    ],
)  # fmt: skip
def test_what_is_no_raw_text_for_certain_is_refused(text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, "bigquery", ALICE))


PREFIXES = {"spark": "rRxX", "duckdb": "eE", "trino": "xX", "bigquery": "rRbB"}


@pytest.mark.parametrize("dialect", PREFIXES)
@pytest.mark.parametrize("sign", ["r", "R", "b", "e", "E", "x", "X", "n", "U&", "rb", "_x", "z"])
def test_a_dialect_reads_its_own_prefixes_alone(dialect: str, sign: str) -> None:
    found = code_of(SERVICE, RewriteRequest(f"SELECT {sign}'0A' FROM orders", dialect, ALICE))
    assert found == ("" if sign in set(PREFIXES[dialect]) else errors.PARSE_ERROR)


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("duckdb", r"SELECT E'\'', 1 FROM orders --'"), ("duckdb", "SELECT id FROM E'a.csv'"), ("duckdb", "SELECT xE'a' FROM orders"),
        ("spark", r"SELECT r'a\', (SELECT 1 FROM nosuch), r'\' FROM orders"), ("spark", "SELECT r'a''b' FROM orders"), ("spark", "SELECT X'0G' FROM orders"),
        ("trino", "SELECT X'0A''b' FROM orders"), ("trino", "SELECT X'0A, ' FROM orders"), ("duckdb", r"SELECT e'a\' FROM orders"),
    ],
)  # fmt: skip
def test_a_text_with_an_uncertain_end_is_refused(dialect: str, text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, dialect, ALICE))


@pytest.mark.parametrize("text", [r"E'a\nb'", r"e'it''s \\'", r"E'\t' || E'\x41'", "E''", r"E'FROM nosuch \\'"])
def test_texts_with_escapes_are_those_of_duckdb(text: str) -> None:
    database = duckdb.connect()
    database.execute("CREATE TABLE orders AS SELECT 1 AS id, 'a' AS region UNION ALL SELECT 2, 'hidden'")
    found = SERVICE.rewrite(RewriteRequest(f"SELECT {text}, region FROM orders", "duckdb", ALICE))
    assert database.execute(found).fetchall() == database.execute(f"SELECT {text}, 'a'").fetchall()


@pytest.mark.parametrize(
    "header",
    [
        "#legacySQL", "# LEGACYSQL", "--legacy_sql", "-- legacySQL x", "/* legacySQL */", "/*#legacy_sql*/", "##legacySQL",
        "  #LegacySql",
    ],
)  # fmt: skip
def test_a_header_for_another_language_is_refused(header: str) -> None:
    for query in ("SELECT 1", "SELECT id FROM orders"):
        assert code_of(SERVICE, RewriteRequest(f"{header}\n{query}", "bigquery", ALICE)) == errors.PARSE_ERROR
    assert not code_of(SERVICE, RewriteRequest("#standardSQL\nSELECT id FROM orders -- no legacy", "bigquery", ALICE))


@pytest.mark.parametrize("dialect", ["duckdb", "spark", "trino", "bigquery"])
def test_the_time_is_an_ordinary_function(dialect: str) -> None:
    text = "SELECT now() AS t, id FROM orders WHERE id IS NOT NULL"
    assert "SELECT now() AS t" in SERVICE.rewrite(RewriteRequest(text, dialect, ALICE))
