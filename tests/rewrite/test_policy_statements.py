"""Statements on row access policies: every form is read to a value or refused, and none changes files."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from support.rewriting import code_of, recorded_service

from pdp.engines.row_access.policies import PolicyBody, read_documents
from pdp.engines.row_access.validation import compile_policies
from pdp.errors import PolicyError
from pdp.rewrite import errors
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.policy_statements import (
    CreatePolicy,
    DropAllPolicies,
    DropPolicy,
    PolicyStatement,
    read_policy_statement,
)
from pdp.rewrite.process.local import RewriteRequest, service_of_files

EU = "region = 'EU'"


def body(table: str, filter: str, *grantees: str) -> PolicyBody:
    return PolicyBody("p", table, filter, grantees, "bigquery")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "CREATE ROW ACCESS POLICY p ON ds.t GRANT TO ('user:a@x.example', \"group:g@x.example\") FILTER USING (region = 'EU')",
            CreatePolicy(body("ds.t", EU, "user:a@x.example", "group:g@x.example")),
        ),
        (
            "create or replace row access policy `p` on `my-project.ds.t` filter using (region = 'EU');",
            CreatePolicy(body("my-project.ds.t", EU, "allAuthenticatedUsers"), replace=True),
        ),
        (
            "CREATE ROW ACCESS POLICY IF NOT EXISTS p ON my-project.`ds`.t -- why\n FILTER USING ((a > 1) OR (b < 2))",
            CreatePolicy(body("my-project.ds.t", "(a > 1) OR (b < 2)", "allAuthenticatedUsers"), unless_exists=True),
        ),
        ("DROP ROW ACCESS POLICY p ON ds.t", DropPolicy("p", ("ds", "t"))),
        ("DROP ROW ACCESS POLICY IF EXISTS p ON ds.t;", DropPolicy("p", ("ds", "t"), if_exists=True)),
        ("DROP ALL ROW ACCESS POLICIES ON `ds.t`", DropAllPolicies(("ds", "t"))),
        ("SELECT 'CREATE ROW ACCESS POLICY p ON t'", None),
        ("SELECT policy FROM policies", None),
    ],
)
def test_a_statement_is_read(text: str, wanted: PolicyStatement | None) -> None:
    assert read_policy_statement(text) == wanted


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE OR REPLACE ROW ACCESS POLICY IF NOT EXISTS p ON t FILTER USING (TRUE)", errors.PARSE_ERROR),
        ("CREATE ROW ACCESS POLICY p ON t", errors.PARSE_ERROR),
        ("CREATE ROW ACCESS POLICY a.p ON t FILTER USING (TRUE)", errors.PARSE_ERROR),
        ("CREATE ROW ACCESS POLICY p ON t GRANT TO () FILTER USING (TRUE)", errors.PARSE_ERROR),
        ("CREATE ROW ACCESS POLICY p ON t GRANT TO (user) FILTER USING (TRUE)", errors.PARSE_ERROR),
        ("CREATE ROW ACCESS POLICY p ON t FILTER USING (TRUE) AND MORE", errors.PARSE_ERROR),
        ("CREATE ROW ACCESS POLICY p ON t FILTER USING (FALSE) OR (1=1)", errors.FILTER_INVALID),
        ("DROP ALL ROW ACCESS POLICIES", errors.PARSE_ERROR),
        ("DROP ROW ACCESS POLICY p", errors.PARSE_ERROR),
        ("DROP ROW ACCESS POLICY p ON t; DROP TABLE t", errors.MULTI_STATEMENT),
    ],
)
def test_an_unknown_form_is_refused(text: str, code: str) -> None:
    with pytest.raises(RewriteRefused) as refused:
        read_policy_statement(text)
    assert refused.value.rap == code


def test_without_a_store_a_statement_is_refused_loudly() -> None:
    request = RewriteRequest("DROP ALL ROW ACCESS POLICIES ON orders", "bigquery", "user:a@x.example")
    assert code_of(recorded_service(), request) == errors.NO_STORE


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("SELECT 'it\\' AS policy FROM orders", "duckdb"), ("SELECT \"a'b\" AS policy FROM orders", "trino"),
        ("SELECT '#' AS policy, id AS x FROM orders", "duckdb"), ("SELECT 'policy \\'' AS x FROM orders", "spark"),
        ("SELECT 'don''t' AS policy FROM orders", "trino"),
    ],
)  # fmt: skip
def test_a_word_about_policies_is_read_by_the_rules_of_its_dialect(text: str, dialect: str) -> None:
    """The same code as without the word: each text is quoted as its own dialect quotes."""
    service = recorded_service()
    other = text.replace("policy", "polish")
    found = [code_of(service, RewriteRequest(one, dialect, "user:bob@example.com")) for one in (text, other)]
    assert found[0] == found[1]
    assert found == ["", ""]


@pytest.mark.parametrize("dialect", ["bigquery", "trino", "spark", "duckdb"])
def test_a_statement_on_policies_is_refused_in_every_dialect(dialect: str) -> None:
    for text in ("DROP ALL ROW ACCESS POLICIES ON orders", "CREATE ROW ACCESS POLICY p ON orders FILTER USING (TRUE)"):
        assert code_of(recorded_service(), RewriteRequest(text, dialect, "user:a@x.example")) == errors.NO_STORE


@pytest.mark.parametrize(
    "table", ["orders$20240101", "lake.sales.orders$2024010123", "table:lake/sales/orders$__NULL__"]
)
@pytest.mark.parametrize("kind", ["policies", "masks"])
def test_a_partition_is_no_table_of_a_file(table: str, kind: str, tmp_path: Path) -> None:
    """Such a policy would cover nothing: statements name the partition, and rows are those of the table."""
    values = {"policies": {"filter": "TRUE"}, "masks": {"column": "id", "kind": "null"}}
    entry = {"id": "p", "table": table, "grantees": ["allUsers"], **values[kind]}
    path = tmp_path / "rows.json"
    for name, is_wrong in ((table, True), ("table:lake/sales/orders%2420240101", False)):
        path.write_text(json.dumps({"default": ["lake", "sales"], kind: [entry | {"table": name}]}))
        for read in (lambda: service_of_files([path]), lambda: compile_policies(read_documents([path]))):
            with (
                pytest.raises(PolicyError, match="is a partition: a policy covers the whole table")
                if is_wrong
                else nullcontext()
            ):
                read()
