"""Rules of facts in the rewriter: the same SQL as from files, and one set as long as no rule changes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.rewriting import known_rows

from pdp.engines.row_access.policies import MaskBody, PolicyBody, parse_document, rule_of
from pdp.engines.row_access.policy_set import StoredPolicySets
from pdp.facts.objects import Grant, GrantAdded, RowPolicy, RowPolicyPut, RowPolicyRemoved
from pdp.facts.snapshot import Facts
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.identity import CallerIdentity
from pdp.rewrite.rewriter import Rewriter

TABLES = {"lake.sales.t": {"columns": {"a": "INTEGER", "b": "VARCHAR"}}, "lake.sales.u": {"columns": {"a": "INTEGER"}}}
GRANTEES = ["user:alice@example.com", "user:bob@example.com", "group:eu", "allUsers"]
QUERIES = [
    "SELECT * FROM lake.sales.t",
    "SELECT a FROM lake.sales.u JOIN lake.sales.t USING (a)",
    "DELETE FROM lake.sales.u",
]
CALLERS = [CallerIdentity("user:alice@example.com"), CallerIdentity("user:bob@example.com", ("eu",))]


def stored(body: PolicyBody | MaskBody) -> RowPolicy:
    table = tuple(body.table.split("."))
    return rule_of(body, table)


def facts_of(*rules: RowPolicy, sequence: int = 1) -> Facts:
    return Facts.from_changes("e", sequence, map(RowPolicyPut, rules))


def answer(policies: Any, rewriter: Rewriter, caller: CallerIdentity, text: str) -> str:
    try:
        return known_rows(rewriter.rewrite(text, "duckdb", caller, policies).sql)
    except RewriteRefused as error:
        return error.rap


@pytest.mark.parametrize("seed", range(40))
def test_rules_of_facts_rewrite_as_files_do(seed: int) -> None:
    pick = random.Random(seed)
    bodies: list[PolicyBody | MaskBody] = [
        PolicyBody(
            f"p{n}",
            f"lake.sales.{pick.choice('tu')}",
            pick.choice(["a = 1", "TRUE", "a > 5"]),
            (pick.choice(GRANTEES),),
            "duckdb",
        )
        for n in range(pick.randrange(4))
    ]
    bodies += [
        MaskBody(
            f"m{n}",
            "lake.sales.t",
            pick.choice("ab"),
            (pick.choice(GRANTEES),),
            pick.choice(["null", "hash", "partial"]),
        )
        for n in range(pick.randrange(3))
    ]
    chosen = [body for body in bodies if pick.randrange(2)]
    others = [body for body in bodies if body not in chosen]

    def document(some: list[PolicyBody | MaskBody]) -> Any:
        plain = parse_document({"tables": TABLES}).document
        policies = tuple(body for body in some if isinstance(body, PolicyBody))
        masks = tuple(body for body in some if isinstance(body, MaskBody))
        return type(plain)(plain.default, plain.tables, {}, policies, masks)

    catalog = catalog_of([document([])])
    rewriter = Rewriter(catalog)
    whole, sets = policy_set_of([document(bodies)]), StoredPolicySets(policy_set_of([document(others)]))
    for caller in CALLERS:
        for text in QUERIES:
            wanted = answer(whole, rewriter, caller, text)
            assert answer(sets.at(facts_of(*map(stored, chosen))), rewriter, caller, text) == wanted, (
                caller.member,
                text,
            )


def test_a_set_lives_as_long_as_its_rules() -> None:
    sets = StoredPolicySets(policy_set_of([]))
    assert sets.at(Facts.empty()) is sets.at(Facts.empty())
    facts = facts_of(RowPolicy(("lake", "sales", "t"), "p", ("allUsers",), "a = 1"))
    first = sets.at(facts)
    grants = facts.apply(2, [GrantAdded(Grant(("table", ("lake", "s", "t")), "select", "user:oidc~x"))])
    assert sets.at(grants) is first
    assert first.protects(("lake", "sales.t"))
    assert not sets.at(grants.apply(3, [RowPolicyRemoved((("lake", "sales", "t"), "", "p"))])).protects(
        ("lake", "sales.t")
    )


@pytest.mark.parametrize(
    "rule",
    [
        RowPolicy(("lake", "sales", "t"), "p", ("allUsers",), "TRUE", "duckdb", tombstone=True),
        RowPolicy(("lake", "sales", "t"), "p", ("everyone",), "TRUE", "duckdb"),
        RowPolicy(("lake", "sales", "t"), "m", ("allUsers",), column="b", kind="hash", tombstone=True),
    ],
)
def test_an_unusable_rule_shows_no_row(rule: RowPolicy) -> None:
    policies = StoredPolicySets(policy_set_of([])).at(facts_of(rule))
    assert policies.protects(("lake", "sales.t"))
    assert policies.of(("lake", "sales.t")).matching(CALLERS[0]) == []
