"""Functions with a prefix: those of BigQuery itself pass in BigQuery alone, those of any schema nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from support.oracles.equivalence import service_of
from support.paths import ROOT
from support.rewriting import code_of
from support.service.serving import settings_of

from pdp.app.assembly import read_row_access
from pdp.engines.row_access.policies import parse_document
from pdp.errors import PdpError
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import FILTER_INVALID, UNSUPPORTED_FUNCTION, RewriteRefused
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter

BOB = "user:bob@example.com"
POLICIES = [{"id": "p", "table": "orders", "grantees": ["allUsers"], "filter": "region = 'US'", "dialect": "duckdb"}]
SERVICE = service_of(POLICIES)
DIALECTS = ("bigquery", "trino", "spark", "duckdb")
OF_BIGQUERY = (
    "SAFE.SUBSTR(status, 1)", "safe.lower(status)", "NET.HOST(status)", "net.reg_domain(status)",
    "NET.SAFE_IP_FROM_STRING(status)", "HLL_COUNT.INIT(id)", "keys.new_keyset('AEAD_AES_GCM_256')",
    "AEAD.DECRYPT_STRING(status, status, status)",
)  # fmt: skip
OF_A_SCHEMA = (
    "{schema}.secrets(id)", "{schema}.lower(status)", "{schema}.max(id)", "{schema}.coalesce(status, 'x')",
    "lake.{schema}.secrets(id)",
)  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("call", OF_BIGQUERY)
def test_namespaces_of_bigquery_are_bigquerys_alone(call: str, dialect: str) -> None:
    found = code_of(SERVICE, RewriteRequest(f"SELECT {call} AS x FROM orders", dialect, BOB))
    assert found == ("" if dialect == "bigquery" else UNSUPPORTED_FUNCTION)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("call", OF_A_SCHEMA)
@pytest.mark.parametrize("schema", ["safe", "net", "keys", "aead", "hll_count", "sales", "SAFE"])
def test_a_function_of_a_schema_is_refused(schema: str, call: str, dialect: str) -> None:
    """The parser of BigQuery reads no third part before SAFE and NET."""
    if dialect == "bigquery" and schema.lower() in ("safe", "net") and not call.endswith("secrets(id)"):
        pytest.skip("a function of BigQuery itself, or unknown to BigQuery")
    text = f"SELECT {call.format(schema=schema)} AS x FROM items"
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) in (UNSUPPORTED_FUNCTION, "RAP_PARSE_ERROR")
    if dialect != "bigquery":
        return
    text = f"SELECT `{schema}`.secrets(id) AS x FROM items"
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) in (UNSUPPORTED_FUNCTION, "RAP_PARSE_ERROR")


@pytest.mark.parametrize("schema", ["safe", "net", "keys", "aead", "hll_count"])
def test_a_macro_that_reads_a_table_runs_in_no_statement_and_no_filter(schema: str) -> None:
    database = duckdb.connect()
    database.execute("CREATE TABLE orders AS SELECT 1 AS id, 'EU' AS region, 10 AS amount")
    database.execute(f"CREATE SCHEMA {schema}; CREATE MACRO {schema}.f(x) AS (SELECT max(amount) FROM orders)")
    assert database.execute(f"SELECT {schema}.f(1)").fetchall() == [(10,)], "the macro reads the table"
    for text in (f"SELECT {schema}.f(1) AS x", f"SELECT id FROM items WHERE {schema}.f(id) > 1"):
        assert code_of(SERVICE, RewriteRequest(text, "duckdb", BOB)) == UNSUPPORTED_FUNCTION
    filtered = service_of([{**POLICIES[0], "filter": f"amount > {schema}.f(id)"}])
    assert code_of(filtered, RewriteRequest("SELECT id FROM orders", "duckdb", BOB)) == FILTER_INVALID


@pytest.mark.parametrize(
    "call", ["NET.LOWER(status)", "NET.SECRETS(status)", "safe.secrets(status)", "safe.net.host(status)"]
)
def test_an_unknown_function_of_a_namespace_is_refused(call: str) -> None:
    found = code_of(SERVICE, RewriteRequest(f"SELECT {call} AS x FROM orders", "bigquery", BOB))
    assert found in (UNSUPPORTED_FUNCTION, "RAP_PARSE_ERROR")


SITE = {
    "default": ["lake", "sales"], "tables": {"t": {"columns": {"a": "INT", "b": "VARCHAR"}}},
    "policies": [{"id": "p", "table": "t", "grantees": ["allUsers"], "filter": "a > 1", "dialect": "duckdb"}],
    "functions": [{"name": "mozfun.map.*", "reads": "nothing"}, {"name": "Score", "reads": "nothing"}, {"name": "my-project.udf.mode", "reads": "nothing"}],
}  # fmt: skip


def site_service(document: dict[str, Any]) -> LocalRewriter:
    documents = [parse_document(document).document]
    catalog = catalog_of(documents)
    return LocalRewriter(catalog, policy_set_of(documents), Rewriter(catalog))


SITE_SERVICE = site_service(SITE)


@pytest.mark.parametrize(
    ("dialect", "call"),
    [
        *((dialect, call) for dialect in DIALECTS for call in ("mozfun.map.get_key(b, 'k')", "Score(a)", "mozfun.map.Odd(a)")),
        ("bigquery", "`mozfun`.map.get_key(b)"), ("bigquery", "`mozfun.map.get_key`(b)"), ("bigquery", "`mozfun.map`.get_key(b)"), ("bigquery", "mozfun.map.sum(a)"),
        ("bigquery", "`my-project`.udf.mode(a)"), ("trino", '"mozfun".map.f(a)'), ("spark", "score(a)"), ("duckdb", "MOZFUN.MAP.f(a)"),
        ("bigquery", "ARRAY(SELECT mozfun.map.f(x) FROM UNNEST([1]) AS x)"),
    ],
)  # fmt: skip
def test_a_declared_function_of_the_site_is_called(dialect: str, call: str) -> None:
    assert code_of(SITE_SERVICE, RewriteRequest(f"SELECT {call} AS x FROM t", dialect, BOB)) == ""


@pytest.mark.parametrize(
    ("dialect", "call"),
    [
        *((dialect, call) for dialect in DIALECTS for call in ("mozfun.other.get_key(b)", "mozfun.map.deep.f(b)", "map.get_key(b)", "x.mozfun.map.f(b)", "mozfun.map.read_csv(b)", "mozfun.score(a)", "Scores(a)")),
        ("bigquery", "score(a)"), ("bigquery", "MOZFUN.map.f(a)"), ("duckdb", '"mozfun.map".f(a)'), ("trino", '"mozfun.map.f"(a)'), ("spark", "`mozfun.map`.f(a)"), ("duckdb", "mozfun.map.sum(a)"),
        ("duckdb", "mozfun.map.getvariable('x')"), ("bigquery", "mozfun.map.external_query(b)"),
    ],
)  # fmt: skip
def test_no_other_function_is_declared_with_it(dialect: str, call: str) -> None:
    assert code_of(SITE_SERVICE, RewriteRequest(f"SELECT {call} AS x FROM t", dialect, BOB))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM mozfun.map.f(1)",
        "SELECT * FROM t, mozfun.map.f(a)",
        "SELECT * FROM Score(1)",
        "CREATE FUNCTION mozfun.map.f(x INT64) AS (x)",
        "CREATE OR REPLACE FUNCTION Score(x INT64) AS (x)",
    ],
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_declared_function_is_no_source_and_is_not_replaced(text: str, dialect: str) -> None:
    assert code_of(SITE_SERVICE, RewriteRequest(text, dialect, BOB))


@pytest.mark.parametrize(
    "name",
    [
        "*",
        "a*.b",
        "a.*.b",
        "sum",
        "LOWER",
        "read_csv",
        "system.*",
        "main.f",
        "safe.*",
        "net.host",
        "a..b",
        "a.*.*",
        "",
        "a b",
        "getvariable",
        "temp.*",
        "f()",
        "builtin.f",
    ],
)
def test_a_name_of_an_engine_is_none_of_the_site(name: str) -> None:
    with pytest.raises(RewriteRefused, match="no function of the site"):
        site_service({**SITE, "functions": [{"name": name, "reads": "nothing"}]})


@pytest.mark.parametrize(
    "body",
    [
        {"name": "f"},
        {"name": "f", "reads": "tables"},
        {"name": "f", "reads": "nothing", "raises": "never"},
        {"reads": "nothing"},
    ],
)
def test_a_declaration_says_what_a_function_reads(body: dict[str, str]) -> None:
    with pytest.raises(PdpError):
        site_service({**SITE, "functions": [body]})


def test_a_declared_macro_shows_visible_rows_alone() -> None:
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE t AS SELECT * FROM (VALUES (1, 'hidden'), (2, 'x'), (3, 'y')) v(a, b); CREATE MACRO score(x) AS x * 10"
    )
    found = SITE_SERVICE.rewrite(RewriteRequest("SELECT Score(a) AS s, b FROM t WHERE Score(a) < 30", "duckdb", BOB))
    assert database.execute(found).fetchall() == [(20, "x")]


def test_the_functions_of_the_page_are_declared() -> None:
    """docs/row-access.md has an entry of a file."""
    text = (
        (ROOT / "docs/row-access.md").read_text("utf-8").partition("# functions of rows.yaml\n")[2].partition("```")[0]
    )
    service = site_service({**SITE, **yaml.safe_load(text)})
    for call in ("mozfun.map.get_key(b, 'k')", "lake.udf.score(a)"):
        assert code_of(service, RewriteRequest(f"SELECT {call} AS x FROM t", "trino", BOB)) == ""


def test_a_wrong_declaration_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "rows.yaml").write_text("default: [lake, s]\nfunctions:\n  - {name: sum, reads: nothing}\n")
    with pytest.raises(PdpError, match=r"rows.yaml:3.*`sum` is no function of the site"):
        read_row_access(settings_of({"policies": {"row_access": ["rows.yaml"]}}, tmp_path))
