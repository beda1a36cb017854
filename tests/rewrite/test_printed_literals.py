"""Literals in filters and masks: no engine replaces a part of a text or reads another text than the author's."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracles.equivalence import service_of
from support.rewriting import code_of

from pdp.engines.row_access.dialects import translate_filter
from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.trino import UntranslatableSql
from pdp.rewrite import errors
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter
from pdp.rewrite.sql import check_printed, quote_text

BOB = "user:bob@example.com"
TEXT = "SELECT email FROM lake.hr.salaries"
DIALECTS = ("bigquery", "duckdb", "spark", "trino")
SECRETS = ("'${env:NAME}'", "'a${b'", "'$${x}'", "'${spark.app.name}'", "'${system:user.home}'")


def rewritten(target: str, **entry: Any) -> str:
    """Return the text, or the code of the refusal, under one policy or mask."""
    body = {"id": "e", "table": "lake.hr.salaries", "grantees": ["allUsers"], **entry}
    service = service_of([body] if "filter" in entry else [], [] if "filter" in entry else [body])
    request = RewriteRequest(TEXT, target, BOB)
    return code_of(service, request) or service.rewrite(request)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("source", DIALECTS)
def test_spark_gets_no_variable_from_a_filter_or_mask(secret: str, source: str) -> None:
    for text in (
        f"email = {secret}",
        f"email IN ('a', {secret})",
        f"email IN (SELECT principal FROM lake.ref.user_regions WHERE region = {secret})",
    ):
        assert rewritten("spark", filter=text, dialect=source) == errors.FILTER_INVALID
    for kind in ("expression", "constant"):
        sql = rewritten("spark", column="email", kind=kind, expression=secret, dialect=source)
        assert "${" not in sql
        assert "CASE WHEN FALSE THEN `email` END AS `email`" in sql


@pytest.mark.parametrize(
    "columns", [{"email": "STRUCT<`${env:NAME}`: INT>"}, {"email": "VARCHAR", "${env:NAME}": "INT"}]
)
def test_spark_gets_no_variable_from_the_type_or_name_of_a_column(columns: dict[str, str]) -> None:
    mask = {"id": "m", "table": "t", "grantees": ["allUsers"], "column": "email", "kind": "expression"}
    body = {
        "default": ["lake", "sales"],
        "tables": {"t": {"columns": columns}},
        "masks": [{**mask, "expression": "email"}],
    }
    document = parse_document(body).document
    catalog = catalog_of([document])
    service = LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))
    assert code_of(service, RewriteRequest("SELECT email FROM t", "spark", BOB)).startswith("RAP_")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("spark", r"'100\%'"),
        ("spark", r"'a\_b'"),
        ("spark", r"'\u0041'"),
        ("spark", r"'\101'"),
        ("bigquery", r"'\x41'"),
        ("bigquery", r"'\a'"),
    ],
)
def test_an_escape_with_more_than_one_reading_is_not_printed_for_another_engine(source: str, text: str) -> None:
    for target in set(DIALECTS) - {source}:
        assert rewritten(target, filter=f"email = {text}", dialect=source) == errors.FILTER_INVALID
        sql = rewritten(target, column="email", kind="expression", expression=text, dialect=source)
        assert "CASE WHEN FALSE" in sql
    with pytest.raises(UntranslatableSql):
        translate_filter(f"email = {text}", source)


@pytest.mark.parametrize("source", ["spark", "bigquery"])
def test_a_control_character_is_not_printed_in_a_rewritten_text(source: str) -> None:
    for target in set(DIALECTS) - {source}:
        assert rewritten(target, filter=r"email = 'a\nb'", dialect=source) == errors.FILTER_INVALID


@pytest.mark.parametrize("source", ["spark", "bigquery"])
def test_an_escaped_quote_or_backslash_keeps_its_meaning(source: str) -> None:
    assert r"email = 'it''s a \'" in rewritten("duckdb", filter=r"email = 'it\'s a \\'", dialect=source)
    assert translate_filter(r"email = 'it\'s a \\'", source) == r"email = 'it''s a \'"


@pytest.mark.parametrize(
    ("dialect", "pieces"),
    [
        ("spark", ("x = '${a}'",)),
        ("spark", ("x = :name",)),
        ("spark", ("x[:name] = 1",)),
        ("duckdb", ("x = ?",)),
        ("trino", ("x = 1 -- a",)),
        ("trino", ("x = 1 /* a */",)),
        ("duckdb", ("x = '", "'")),
        ("duckdb", ("x = ''", "")),
        ("duckdb", ("x = ", "'a'")),
        ("bigquery", ("x = r", "")),
        ("spark", ("x = `a", "`")),
    ],
)
def test_a_text_that_the_engine_would_change_is_refused(dialect: str, pieces: tuple[str, ...]) -> None:
    with pytest.raises(errors.RewriteRefused):
        check_printed(pieces, dialect)


def test_a_plain_text_around_the_caller_passes() -> None:
    for dialect in DIALECTS:
        check_printed(("x IN (", ", 'a') AND y = ", ""), dialect)


@given(st.text(st.sampled_from("a'\\${}?:-/*#\"`r \u00e9\U0001f600"), max_size=12))
def test_a_literal_is_the_text_for_duckdb_or_refused(value: str) -> None:
    try:
        literal = quote_text(value, "duckdb")
    except errors.RewriteRefused:
        return
    assert duckdb.sql(f"SELECT {literal}").fetchone() == (value,)
