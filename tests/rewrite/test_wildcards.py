"""Wildcards of BigQuery: no table with policies is behind one, whether the rewriter knows the table or not."""

from __future__ import annotations

from typing import Any

import pytest
from support.rewriting import code_of

from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.policy_set import PolicySet
from pdp.rewrite import errors
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter

ALICE, BOB = "user:alice@example.com", "user:bob@example.com"
POLICY = {"id": "p", "table": "p.ds.opensecret", "grantees": [ALICE], "filter": "a = 1"}
TEXTS = [
    "SELECT * FROM `p.ds.open*`",
    "SELECT * FROM `p.ds.*`",
    "SELECT * FROM `p.ds.openS*`",
    "SELECT * FROM p.ds.`open*`",
    "SELECT * FROM `ds.open*`",
    "SELECT * FROM `open*`",
    "SELECT 1 FROM `p.ds.open2024` AS a, `p.ds.open*` AS b",
    "SELECT (SELECT COUNT(*) FROM `p.ds.open*`)",
]


def body_of(policies: list[dict[str, Any]], masks: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    columns = {"columns": {"a": "INT64"}}
    tables = {"open2024": columns, "p.ds.open2025": columns, "p.ds.other": columns, "p.ds.openSx": columns}
    return {"default": ["p", "ds"], "tables": tables, "policies": policies, "masks": masks or [], **more}


def service_of(*bodies: list[dict[str, Any]], **more: Any) -> LocalRewriter:
    document = parse_document(body_of(*bodies, **more)).document
    catalog = catalog_of([document])
    return LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("who", [ALICE, BOB])
def test_a_policy_on_an_unknown_table_closes_the_wildcard(text: str, who: str) -> None:
    assert code_of(service_of([POLICY]), RewriteRequest(text, "bigquery", who)) == errors.WILDCARD_TABLE


@pytest.mark.parametrize("text", TEXTS)
def test_a_mask_on_an_unknown_table_closes_the_wildcard(text: str) -> None:
    mask = {"id": "m", "table": "p.ds.opensecret", "column": "a", "kind": "null", "grantees": ["allUsers"]}
    assert code_of(service_of([], [mask]), RewriteRequest(text, "bigquery", BOB)) == errors.WILDCARD_TABLE


def test_a_wildcard_with_one_known_table_is_no_table() -> None:
    policy = {**POLICY, "table": "p.ds.other"}
    assert (
        code_of(service_of([policy]), RewriteRequest("SELECT * FROM `p.ds.oth*`", "bigquery", ALICE))
        == errors.WILDCARD_TABLE
    )


@pytest.mark.parametrize("above", [("p", ""), ("p", "ds"), ("p", "ds.openx")])
def test_a_protected_container_closes_the_wildcard(above: tuple[str, str]) -> None:
    catalog = catalog_of([parse_document(body_of([])).document])
    request = RewriteRequest("SELECT * FROM `p.ds.open*`", "bigquery", BOB)
    service = LocalRewriter(catalog, PolicySet({}, [above]), Rewriter(catalog))
    assert code_of(service, request) == errors.WILDCARD_TABLE


def test_a_wildcard_in_an_expanded_view_stays_a_wildcard() -> None:
    views = {"v": {"sql": "SELECT a FROM `p.ds.open20*` UNION ALL SELECT a FROM p.ds.other"}}
    service = service_of([{**POLICY, "table": "p.ds.other"}], views=views)
    sql = service.rewrite(RewriteRequest("SELECT * FROM v", "bigquery", ALICE))
    assert "`p`.`ds`.`open20*`" in sql


@pytest.mark.parametrize("text", TEXTS[:1])
def test_a_wildcard_without_policies_behind_stays(text: str) -> None:
    for policy in (
        {**POLICY, "table": "p.ds.other"},
        {**POLICY, "table": "p.ds2.opensecret"},
        {**POLICY, "filter": "TRUE"},
    ):
        service = service_of([policy])
        assert service.rewrite(RewriteRequest(text, "bigquery", ALICE)) == text


@pytest.mark.parametrize("text", ["SELECT * FROM v", "SELECT a FROM w", "SELECT (SELECT COUNT(*) FROM w)"])
@pytest.mark.parametrize("sql", TEXTS)
@pytest.mark.parametrize("kind", ["policy", "mask"])
def test_a_view_opens_no_wildcard(sql: str, text: str, kind: str) -> None:
    views = {"v": {"sql": sql}, "w": {"sql": "SELECT * FROM v"}}
    mask = {"id": "m", "table": "p.ds.opensecret", "column": "a", "kind": "null", "grantees": ["allUsers"]}
    service = service_of([POLICY], views=views) if kind == "policy" else service_of([], [mask], views=views)
    assert code_of(service, RewriteRequest(text, "bigquery", BOB)) in (errors.WILDCARD_TABLE, errors.VIEW_CYCLE)


def test_a_view_of_a_wildcard_is_not_replaced() -> None:
    service = service_of([POLICY], views={"v": {"sql": "SELECT 1 AS a"}})
    request = RewriteRequest("CREATE OR REPLACE VIEW v AS SELECT * FROM `p.ds.open*`", "bigquery", BOB)
    assert code_of(service, request)
