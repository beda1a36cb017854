"""Restrictive policies: rows need them besides any other, in every engine, from files and from a store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdp.engines.row_access.engine import RowAccessEngine
from pdp.engines.row_access.entries import NO_ROW_NAMES
from pdp.engines.row_access.explain import explain_restriction
from pdp.engines.row_access.members import Members
from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.policy_set import PolicySet, StoredPolicySets
from pdp.engines.row_access.validation import compile_policies
from pdp.errors import InvalidArgument
from pdp.facts.objects import RowPolicy, RowPolicyPut
from pdp.facts.snapshot import Facts
from pdp.management.row_policies import _rule_entry
from pdp.management.row_policy_codec import make_rule, rule_body
from pdp.model.question import Principal, Resource
from pdp.offline.row_policies.changes import row_changes
from pdp.offline.row_policies.lint import lint_rows
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.identity import PrincipalCaller
from pdp.rewrite.rewriter import Rewriter
from pdp.surfaces.grpc.management import _policy, _rule
from pdp.surfaces.wire import decision_pb2 as wire

TABLES = {"lake.s.t": {"columns": {"a": "INTEGER", "b": "INTEGER"}}}
TABLE = Resource("table", "lake", ("s", "t"))
MEMBERS = Members("user:{subject}", "oidc")
ROWS = [(a, b) for a, b in product((1, 2, None), repeat=2)]
TESTS = {
    "TRUE": lambda a, b: True, "FALSE": lambda a, b: False, "a = 1": lambda a, b: a == 1, "b = 2": lambda a, b: b == 2,
    "a = 1 OR b = 1": lambda a, b: 1 in (a, b), "a IS NULL": lambda a, b: a is None,
}  # fmt: skip
ANN = Principal("user", "oidc~ann")
READERS = {
    "ann": ANN, "eu": Principal("user", "oidc~eve", groups=("eu",)), "bob": Principal("user", "oidc~bob"),
    "bare": Principal("user", "oidc~ann", bare=True), "nobody": Principal("anonymous", ""),
    "unknown": Principal("user", "oidc~bob", unknown=("groups",)),
}  # fmt: skip
CERTAIN = {
    "user:ann": {"ann", "bare"}, "group:eu": {"eu"}, "allUsers": set(READERS),
    "allAuthenticatedUsers": set(READERS) - {"nobody"},
}  # fmt: skip
POSSIBLE = CERTAIN | {"group:eu": {"eu", "bare", "unknown"}}
ENTRY: dict[str, Any] = {"id": "p", "table": "lake.s.t"}


def policy(id: str, filter: Any, *grantees: str, restrictive: bool = False, **more: Any) -> dict[str, Any]:
    named = {"grantees": list(grantees)} if grantees else {}
    return ENTRY | {"id": id, "filter": filter} | named | ({"restrictive": True} if restrictive else {}) | more


def limit(id: str, filter: Any, *grantees: str, **more: Any) -> dict[str, Any]:
    return policy(id, filter, *grantees, restrictive=True, **more)


def facts_of(entries: Iterable[dict[str, Any]]) -> Facts:
    """Return the facts of a store that wrote and read each policy as JSON."""
    rules = [msgspec.json.decode(msgspec.json.encode(make_rule(entry)), type=RowPolicy) for entry in entries]
    return Facts.from_changes("e", 1, map(RowPolicyPut, rules))


def access(*entries: dict[str, Any]) -> RowAccessEngine:
    document = parse_document({"tables": TABLES, "policies": list(entries)})
    return compile_policies([document]).build_engine(MEMBERS, (), NO_ROW_NAMES)


def policy_set(filed: list[dict[str, Any]], stored: list[dict[str, Any]]) -> PolicySet:
    return StoredPolicySets(policy_set_of([parse_document({"policies": filed}).document])).at(facts_of(stored))


def rewritten(policies: PolicySet, reader: Principal, dialect: str = "duckdb") -> str:
    """Return the condition in front of a rewritten table; empty for every row."""
    rewriter = Rewriter(catalog_of([parse_document({"tables": TABLES}).document]))
    caller = PrincipalCaller(reader, MEMBERS)
    return rewriter.visible(("lake", "s", "t"), dialect, caller, policies.written_for(dialect))[0]


def visible_by_oracle(entries: Iterable[dict[str, Any]], reader: str) -> list[tuple[Any, Any]]:
    shows: list[Any] = []
    limits: list[Any] = []
    for one in entries:
        grantees = one.get("grantees") or (["allUsers"] if "restrictive" in one else ["allAuthenticatedUsers"])
        if any(reader in (POSSIBLE if "restrictive" in one else CERTAIN)[name] for name in grantees):
            (limits if "restrictive" in one else shows).append(TESTS[one["filter"]])
    return [row for row in ROWS if any(test(*row) for test in shows) and all(test(*row) for test in limits)]


def visible(condition: str | None) -> list[tuple[Any, Any]]:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (a, b)")
    database.executemany("INSERT INTO t VALUES (?, ?)", ROWS)
    return database.execute(f"SELECT a, b FROM t WHERE {condition or 'TRUE'}").fetchall()


GRANTEES = st.sampled_from([(), *((name,) for name in CERTAIN), ("user:ann", "group:eu")])
ENTRIES = st.lists(
    st.tuples(st.sampled_from(list(TESTS)), GRANTEES, st.booleans(), st.booleans()), min_size=1, max_size=4
)


@given(ENTRIES)
def test_rows_need_every_restrictive_policy_and_one_other(drawn: list[tuple[str, tuple[str, ...], bool, bool]]) -> None:
    filed: list[dict[str, Any]] = []
    stored: list[dict[str, Any]] = []
    for number, (text, grantees, restrictive, is_stored) in enumerate(drawn):
        entry = policy(f"p{number}", text, *grantees, restrictive=restrictive)
        (stored if is_stored else filed).append(entry)
    engine, facts, policies = access(*filed), facts_of(stored), policy_set(filed, stored)
    for name, reader in READERS.items():
        wanted = visible_by_oracle([*filed, *stored], name)
        rows = engine.restrict(reader, TABLE, facts).rows
        assert visible(rows.expression if rows else None) == wanted, (name, rows)
        condition = rewritten(policies, reader)
        assert visible(condition) == wanted, (name, condition)


def test_the_reason_names_both_kinds() -> None:
    engine = access(policy("all", True, "allUsers"), policy("one", "a = 1", "allUsers"), limit("few", "b = 2"))
    found = engine.restrict(ANN, TABLE, Facts.empty())
    assert (found.rows and found.rows.expression, found.by) == ("b = 2", "row_access:all,few")
    engine = access(policy("one", "a = 1", "allUsers"), policy("two", "a = 2", "allUsers"), limit("few", "b = 2"))
    found = engine.restrict(ANN, TABLE, Facts.empty())
    assert found.rows
    assert found.rows.expression == "((a = 1) OR (a = 2)) AND (b = 2)"
    explained = explain_restriction(engine, ANN, TABLE, Facts.empty())
    assert {entry.id: (entry.counts, entry.why.startswith("restrictive: ")) for entry in explained.policies} == {
        "few": (True, True), "one": (True, False), "two": (True, False),
    }  # fmt: skip


def test_alone_it_shows_nothing() -> None:
    found = access(limit("few", "b = 2")).restrict(ANN, TABLE, Facts.empty())
    assert (found.shows_rows, found.by) == (False, "row_access:no_policy")
    assert rewritten(policy_set([limit("few", True)], []), ANN) == "FALSE"


def test_policies_of_one_id_in_files_and_store_both_count() -> None:
    engine = access(limit("p", "b = 2"), policy("all", True, "allUsers"))
    rows = engine.restrict(ANN, TABLE, facts_of([limit("p", "a = 1")])).rows
    assert rows
    assert rows.expression == "(b = 2) AND (a = 1)"


@pytest.mark.parametrize(
    "change",
    [
        {"grantees": ("nobody at all",)},
        {"grantees": ()},
        {"text": "a ="},
        {"text": "reverse(x) = 1", "dialect": "mysql"},
    ],
)
def test_an_unusable_one_of_the_store_hides_every_row(change: dict[str, Any]) -> None:
    rule = msgspec.structs.replace(make_rule(limit("few", "b = 2", "allUsers")), **change)
    facts = Facts.from_changes("e", 1, map(RowPolicyPut, (rule, make_rule(policy("all", True, "allUsers")))))
    rows = access().restrict(ANN, TABLE, facts).rows
    assert rows
    assert rows.expression == "false"
    policies = StoredPolicySets(PolicySet({})).at(facts)
    with suppress(RewriteRefused):
        assert "FALSE" in rewritten(policies, ANN)


def test_one_without_a_meaning_in_a_dialect_is_refused_there() -> None:
    policies = policy_set([policy("all", True, "allUsers"), limit("few", "reverse(CAST(a AS varchar)) = '1'")], [])
    with pytest.raises(RewriteRefused, match="few"):
        rewritten(policies, ANN, "spark")
    assert "reverse" in rewritten(policies, ANN, "trino")


def test_the_store_gives_back_what_it_got() -> None:
    rule = make_rule(limit("few", "b = 2"))
    assert rule.restrictive
    assert rule.grantees == ("allUsers",)
    assert rule_body(rule)["restrictive"] is True
    assert _rule_entry(rule)["restrictive"] is True
    message = _policy(rule)
    assert message.restrictive
    assert _rule(message) == rule
    assert make_rule(limit("few", "b = 2", "allAuthenticatedUsers")).grantees == ("allAuthenticatedUsers",)
    plain = make_rule(policy("some", "b = 2"))
    assert "restrictive" not in rule_body(plain)
    assert "restrictive" not in _rule_entry(plain)
    assert plain.grantees == ("allAuthenticatedUsers",)
    assert not _policy(plain).restrictive


def test_the_field_of_the_message_has_a_number_of_its_own() -> None:
    older = wire.RowPolicy(id="p", table="lake.s.t", filter="a = 1")
    assert wire.RowPolicy.DESCRIPTOR.fields_by_name["restrictive"].number == 16
    assert not _rule(wire.RowPolicy.FromString(older.SerializeToString())).restrictive
    mask = wire.RowPolicy(id="p", table="lake.s.t", column="a", kind="null", grantees=["allUsers"], restrictive=True)
    with pytest.raises(InvalidArgument, match="restrictive"):
        _rule(mask)


def lint(*entries: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (found.code, found.rule) for found in lint_rows([parse_document({"tables": TABLES, "policies": list(entries)})])
    ]


def test_lint_knows_what_a_restrictive_policy_does() -> None:
    every = policy("all", True, "allUsers")
    assert lint(every, limit("few", "b = 2")) == []
    assert lint(limit("few", "b = 2")) == [("row-restrictive-alone", "few")]
    assert lint(every, limit("none", "a = 1 AND a = 2")) == [("row-never-true", "none")]
    assert lint(every, limit("few", "a = 1"), limit("wide", "a = 1 OR a = 2")) == [("row-shadowed", "wide")]
    assert lint(policy("one", "a = 1", "allUsers"), limit("few", "a = 1")) == []


def test_a_dry_run_tells_fewer_rows() -> None:
    before, after = (
        parse_document({"tables": TABLES, "policies": some})
        for some in ([policy("all", True, "allUsers")], [policy("all", True, "allUsers"), limit("few", "a = 1")])
    )
    assert {change.rows for change in row_changes([before], [after], {})} == {"fewer"}
    assert {change.rows for change in row_changes([after], [before], {})} == {"more"}
