"""Functions with a prefix: those of BigQuery itself pass in BigQuery alone, those of any schema nowhere."""

from __future__ import annotations

import duckdb
import pytest
from support.oracles.equivalence import service_of
from support.rewriting import code_of

from pdp.rewrite.errors import FILTER_INVALID, UNSUPPORTED_FUNCTION
from pdp.rewrite.process.local import RewriteRequest

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
