"""Policies and masks with a text for each dialect: each engine gets its own, and all others the meaning of the first.

The entry is that of docs/row-access.md, with BigQuery's text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.oracles.rows import load
from support.rewriting import known_rows

from pdp.engines.row_access.engine import RowAccessEngine
from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.policy_set import PolicySet, StoredPolicySets
from pdp.errors import InvalidArgument, PolicyError
from pdp.facts.objects import RowPolicy, RowPolicyPut
from pdp.facts.snapshot import Facts
from pdp.management.row_policy_codec import make_rule, rule_body
from pdp.management.row_policy_edits import check_rule
from pdp.model.question import Principal, Resource
from pdp.offline.row_policies.lint import lint_rows
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.identity import CallerIdentity
from pdp.rewrite.rewriter import Rewriter
from pdp.surfaces.grpc.management import _policy, _rule

TEXTS = {
    "spark": "rlike(name, '^a')",
    "trino": "regexp_like(name, '^a')",
    "duckdb": "regexp_matches(name, '^a')",
    "bigquery": "REGEXP_CONTAINS(name, r'^a')",
}
TABLES = {"lake.s.t": {"columns": {"id": "INTEGER", "name": "VARCHAR"}}}
ENTRY: dict[str, Any] = {"id": "p", "table": "lake.s.t", "grantees": ["allUsers"]}
POLICY = ENTRY | {"filter": TEXTS}
MASK = ENTRY | {
    "column": "name",
    "kind": "expression",
    "expression": {"trino": "substr(name, 1, 1)", "spark": "left(name, 1)", "duckdb": "name[1]"},
}
READER = CallerIdentity("user:a@x.example")
TABLE = Resource("table", "lake", ("s", "t"))


def documents(*entries: dict[str, Any]) -> dict[str, Any]:
    masks = [entry for entry in entries if "column" in entry]
    return {"tables": TABLES, "policies": [entry for entry in entries if "filter" in entry], "masks": masks}


def filed(*entries: dict[str, Any]) -> PolicySet:
    return policy_set_of([parse_document(documents(*entries)).document])


def stored(*entries: dict[str, Any]) -> PolicySet:
    """Return the policies of a store that writes and reads each as JSON."""
    rules = [msgspec.json.decode(msgspec.json.encode(make_rule(entry)), type=RowPolicy) for entry in entries]
    return StoredPolicySets(PolicySet({})).at(Facts.from_changes("e", 1, map(RowPolicyPut, rules)))


def rewritten(policies: PolicySet, dialect: str, text: str = "SELECT * FROM lake.s.t") -> str:
    catalog = catalog_of([parse_document({"tables": TABLES}).document])
    return Rewriter(catalog).rewrite(text, dialect, READER, policies.written_for(dialect)).sql


@pytest.fixture
def access(tmp_path: Path) -> RowAccessEngine:
    return load(tmp_path, documents(POLICY | {"table": "lake.s.other"}) | {"tables": TABLES}).row_access


@pytest.mark.parametrize("make", [filed, stored])
@pytest.mark.parametrize("dialect", TEXTS)
def test_each_engine_gets_its_own_filter(dialect: str, make: Any) -> None:
    assert f"WHERE {TEXTS[dialect]}" in rewritten(make(POLICY), dialect).replace(
        "(" + TEXTS[dialect] + ")", TEXTS[dialect]
    )


@pytest.mark.parametrize("make", [filed, stored])
def test_each_engine_gets_its_own_expression(make: Any) -> None:
    for dialect, text in MASK["expression"].items():
        assert text in rewritten(make(MASK), dialect), dialect
    assert "SUBSTR(name, 1, 1)" in rewritten(make(MASK), "bigquery")
    closed = MASK | {"expression": {"trino": "reverse(name)", "spark": "left(name, 1)"}}
    assert "CASE WHEN FALSE THEN `name` END" in rewritten(make(closed), "bigquery")


@pytest.mark.parametrize("make", [filed, stored])
def test_an_engine_without_a_text_gets_the_meaning_of_the_first(make: Any) -> None:
    plain = make(POLICY | {"filter": {"spark": "rlike(name, '^a')", "bigquery": "name = 'a'"}})
    assert "name = 'a'" in rewritten(plain, "duckdb")
    assert "rlike" in rewritten(plain, "spark")
    closed = make(POLICY | {"filter": {"trino": "reverse(name) = 'a'", "spark": "name = 'a'"}})
    with pytest.raises(RewriteRefused, match="no certain meaning"):
        rewritten(closed, "bigquery")


def test_four_policies_may_have_a_text_for_each_engine() -> None:
    texts = [dict.fromkeys(TEXTS, f"id = {number}") for number in range(4)]
    policies = filed(*(POLICY | {"id": f"p{number}", "filter": text} for number, text in enumerate(texts)))
    for dialect in TEXTS:
        found = rewritten(policies, dialect)
        assert all(f"id = {number}" in found for number in range(4))


def test_trino_filters_by_its_own_text(tmp_path: Path, access: RowAccessEngine) -> None:
    engine = load(tmp_path, documents(POLICY, MASK | {"id": "m"})).row_access
    user = Principal("user", "oidc~a@x.example")
    found = engine.restrict(user, TABLE, Facts.empty(), stale=False)
    assert found.rows
    assert found.rows.expression == TEXTS["trino"]
    mask, _ = found.mask_column("name", "varchar")
    assert mask
    assert "substr(name, 1, 1)" in mask.expression
    rules = Facts.from_changes("e", 1, [RowPolicyPut(make_rule(POLICY))])
    rows = access.restrict(user, TABLE, rules, stale=False).rows
    assert rows
    assert rows.expression == TEXTS["trino"]


def test_a_policy_comes_back_as_written(access: RowAccessEngine) -> None:
    for entry in (POLICY, MASK, ENTRY | {"filter": "id = 1", "dialect": "spark"}):
        rule = make_rule(entry)
        check_rule(rule, access)
        body = {name: value for name, value in rule_body(rule).items() if name in entry}
        assert body == entry | {"table": "table:lake/s/t"}
        assert _rule(_policy(rule)) == rule


WRONG = [
    (POLICY, {"filter": {}}, "not one expression"),
    (POLICY, {"filter": {"hive": "id = 1", "spark": "id = 1"}}, "not `hive`"),
    (POLICY, {"filter": {"trino": "id = 1", "spark": "id = "}}, "in `spark`, "),
    (POLICY, {"filter": {"trino": "id = 1", "duckdb": "id + 1"}}, "in `duckdb`, it is a value"),
    (POLICY, {"filter": {"trino": "TRUE", "spark": "id = 1"}}, "write two policies"),
    (POLICY, {"filter": {"trino": "id = 1"}, "dialect": "spark"}, "leave it out"),
    (MASK, {"expression": {"trino": "max(name)", "spark": "name"}}, "in `trino`, "),
    (MASK, {"expression": {"spark": "name"}, "dialect": "duckdb"}, "leave it out"),
    (MASK, {"kind": "constant"}, "no texts by dialect"),
]


@pytest.mark.parametrize(("entry", "change", "words"), WRONG)
def test_a_wrong_text_is_refused_by_its_dialect(
    entry: dict[str, Any], change: dict[str, Any], words: str, access: RowAccessEngine, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        check_rule(make_rule(entry | change), access)
    with pytest.raises(PolicyError, match=words):
        load(tmp_path, documents(entry | change))


def test_lint_reads_each_text(tmp_path: Path) -> None:
    texts = {"trino": "id = 1", "spark": "id = 1 AND id = 2"}
    (tmp_path / "rows.yaml").write_text("")
    document = parse_document(documents(POLICY | {"filter": texts}), str(tmp_path / "rows.yaml"))
    assert [(found.code, found.rule) for found in lint_rows([document])] == [("row-never-true", "p")]


def test_nothing_changes_without_texts_by_dialect() -> None:
    policies = filed(ENTRY | {"filter": "id = 1"})
    assert policies.written_for("spark") is policies
    assert known_rows(rewritten(policies, "duckdb")) == rewritten(policies, "duckdb")
