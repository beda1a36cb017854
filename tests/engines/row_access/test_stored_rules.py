"""Rules of the store: the same restrictions as files give, joined with those, and closed in every doubt."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.oracles.rows import MASK, POLICY, load

from pdp.decision.active_policies import ActivePolicies
from pdp.engines.row_access.engine import NO_ROWS, UNRESTRICTED, Restriction, find_doubled_ids
from pdp.engines.row_access.mask_kinds import MASK_KINDS
from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.validation import compile_policies
from pdp.facts.objects import Grant, GrantAdded, RowPolicy, RowPolicyPut, RowPolicyRemoved
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal, Resource
from pdp.offline.row_policies.changes import stored_findings

TABLE = ("lake", "s", "t")
PEOPLE = [
    Principal("user", "oidc~alice@example.com", groups=("eu",)),
    Principal("user", "oidc~bob@example.com"),
    Principal("user", "corp~bob@example.com", groups=("eu",)),
    Principal("role", "etl"),
    Principal("anonymous", ""),
]
GRANTEES = ["user:alice@example.com", "group:eu", "domain:example.com", "role:etl", "allAuthenticatedUsers", "allUsers"]
FILTERS = ["x = 1", "TRUE", "false", "y IN (1, 2)", "current_user = c"]


def facts_of(*rules: RowPolicy) -> Facts:
    member = Grant(("role", ("etl",)), "assignee", "user:oidc~bob@example.com")
    return Facts.from_changes("e", 1, [*map(RowPolicyPut, rules), GrantAdded(member)])


def rule_of(entry: dict[str, Any]) -> RowPolicy:
    return RowPolicy(
        tuple(entry["table"].split(".")),
        entry["id"],
        tuple(entry["grantees"]),
        str(entry.get("filter", entry.get("expression", ""))),
        entry.get("dialect", "trino"),
        entry.get("column", ""),
        entry.get("kind", ""),
        tuple(entry.get("except", ())),
    )


def restrict(bundle: ActivePolicies, who: Principal, facts: Facts, *path: str, stale: bool = False) -> Restriction:
    table = Resource("table", "lake", path or ("s", "t"))
    return bundle.row_access.restrict(who, table, facts, stale=stale)


def generated(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Some policies and masks, in the form of a file."""
    pick = random.Random(seed)
    few = range(pick.randrange(4))
    policies = [
        POLICY | {"id": f"p{n}", "grantees": pick.sample(GRANTEES, pick.randrange(3)), "filter": pick.choice(FILTERS)}
        for n in few
    ]
    masks = []
    for n in range(pick.randrange(4)):
        kind = pick.choice(list(MASK_KINDS))
        more = {"expression": pick.choice(["1", "'x'", "upper(c)"])} if kind in ("constant", "expression") else {}
        grantees, exempt = pick.sample(GRANTEES, 1 + pick.randrange(2)), pick.sample(GRANTEES, pick.randrange(2))
        names = {"id": f"m{n}", "column": pick.choice(["c", "C", "d"]), "grantees": grantees, "except": exempt}
        masks.append(MASK | names | {"kind": kind} | more)
    return policies, masks


@pytest.mark.parametrize("seed", range(60))
def test_the_store_restricts_as_files_do(tmp_path: Path, seed: int) -> None:
    """Each entry is in a file or in the store, and nobody sees the difference."""
    policies, masks = generated(seed)
    pick = random.Random(seed)
    entries = [("policies", entry) for entry in policies] + [("masks", entry) for entry in masks]
    stored = [bool(pick.randrange(2)) for _ in entries]
    filed: dict[str, list[Any]] = {"policies": [], "masks": []}
    for (section, entry), is_stored in zip(entries, stored, strict=True):
        if not is_stored:
            filed[section].append(entry)
    split = load(tmp_path, filed)
    whole = load(tmp_path, {"policies": policies, "masks": masks})
    facts = facts_of(*(rule_of(entry) for (_, entry), is_stored in zip(entries, stored, strict=True) if is_stored))
    for who, path in itertools.product(PEOPLE, [("s", "t"), ("S", "T"), ("s.t",), ("s", "u")]):
        wanted = restrict(whole, who, facts_of(), *path)
        assert restrict(split, who, facts, *path) == wanted, (who, path)


def test_a_change_of_rules_counts_at_once(tmp_path: Path) -> None:
    bundle, alice = load(tmp_path, {}), PEOPLE[0]
    assert restrict(bundle, alice, facts_of()) == UNRESTRICTED
    facts = facts_of(RowPolicy(TABLE, "p", ("allUsers",), "x = 1"))
    for sequence, text in enumerate(["x = 2", "x = 3", "TRUE"], 2):
        facts = facts.apply(sequence, [RowPolicyPut(RowPolicy(TABLE, "p", ("allUsers",), text))])
        found = restrict(bundle, alice, facts)
        assert (found.rows.expression if found.rows else "TRUE") == text
    facts = facts.apply(9, [RowPolicyRemoved((TABLE, "", "p"))])
    assert restrict(bundle, alice, facts) == UNRESTRICTED


@pytest.mark.parametrize(
    "rule",
    [
        RowPolicy(TABLE, "p", ("allUsers",), "x ="),
        RowPolicy(TABLE, "p", ("allUsers",), "FALSE) OR (1=1"),
        RowPolicy(TABLE, "p", ("allUsers",), "count(*) > 0"),
        RowPolicy(TABLE, "p", ("allUsers",), "x = 1", "no_dialect"),
        RowPolicy(TABLE, "p", ("allUsers",), "x % 2 = 1", "bigquery"),
        RowPolicy(TABLE, "p", ("everyone",), "TRUE"),
        RowPolicy(TABLE, "p", ("allUsers",), "TRUE", tombstone=True),
        RowPolicy(TABLE, "p", (), "TRUE"),
    ],
)
def test_an_unusable_rule_shows_no_row(tmp_path: Path, rule: RowPolicy) -> None:
    """A store can hold what an older version, or another hand, has written."""
    found = restrict(load(tmp_path, {}), PEOPLE[0], facts_of(rule))
    assert found.rows is not None
    assert found.rows.expression == NO_ROWS.expression


@pytest.mark.parametrize(
    "rule",
    [
        RowPolicy(TABLE, "m", ("everyone",), column="c", kind="hash"),
        RowPolicy(TABLE, "m", ("allUsers",), "x)", column="c", kind="expression"),
        RowPolicy(TABLE, "m", ("allUsers",), "upper(c)", "no_dialect", column="c", kind="expression"),
        RowPolicy(TABLE, "m", ("user:nobody",), column="c", kind="hash", exempt=("allUsers",), tombstone=True),
    ],
)
def test_an_unusable_mask_shows_no_value(tmp_path: Path, rule: RowPolicy) -> None:
    found = restrict(load(tmp_path, {}), PEOPLE[0], facts_of(rule))
    assert found.masks["c"].kind == "null"
    assert found.shows_rows != rule.tombstone


def test_a_filter_of_the_store_never_runs_as_the_user_of_a_file(tmp_path: Path) -> None:
    """Trino evaluates the joined filters as one user. A file names the user, and `current_user` would be that one."""
    bundle = load(tmp_path, {"policies": [POLICY | {"id": "z", "identity": "svc"}]})
    found = restrict(bundle, PEOPLE[0], facts_of(RowPolicy(TABLE, "a", ("allUsers",), "c = current_user")))
    assert found.rows is not None
    assert (found.rows.expression, found.rows.identity) == ("(false) OR (x = 1)", "svc")


@pytest.mark.parametrize(
    ("grantee", "binds"),
    [(" user:alice@example.com", True), ("user: alice@example.com", True), ("user:alice\u200b@example.com", False)],
)
def test_a_grantee_that_was_stored_with_blanks_keeps_its_meaning(tmp_path: Path, grantee: str, binds: bool) -> None:
    """The store refuses new ones. No other reader gains by the old text, and lint names it."""
    bundle, rule = load(tmp_path, {}), RowPolicy(TABLE, "a", (grantee,), "x = 1")
    rows = [restrict(bundle, who, facts_of(rule)).rows for who in PEOPLE]
    assert [found is not None and found.expression == "x = 1" for found in rows] == [binds, *[False] * 4]
    for stored in (rule, replace(rule, column="c", kind="null", text="")):
        documents, findings = stored_findings([stored])
        assert ("write `user:alice@example.com`" in findings[0].message, len(documents)) == (True, 1)
        assert "for everybody" not in findings[0].message


def test_stale_facts_show_nothing_of_a_table_with_stored_rules(tmp_path: Path) -> None:
    """A policy may have been revoked since. Tables of files alone are as before."""
    bundle = load(tmp_path, {"policies": [POLICY]})
    facts = facts_of(RowPolicy(("lake", "s", "u"), "p", ("allUsers",), "TRUE"))
    assert restrict(bundle, PEOPLE[0], facts, "s", "u", stale=True).blank
    assert not restrict(bundle, PEOPLE[0], facts, "s", "t", stale=True).blank


def test_containers_know_the_rules_of_the_store_below(tmp_path: Path) -> None:
    access, facts = load(tmp_path, {}).row_access, facts_of(RowPolicy(TABLE, "p", ("role:etl",), "x = 1"))
    schema, other = Resource("namespace", "lake", ("S",)), Resource("namespace", "lake", ("z",))
    assert access.tables_below(schema, facts) == [("s", "t")]
    assert access.tables_below(schema) == access.tables_below(other, facts) == []
    assert access.reason_below(PEOPLE[0], schema, facts) == "row_access:no_policy"
    assert access.reason_below(PEOPLE[0], Resource("warehouse", "lake"), facts) == "row_access:no_policy"
    assert access.reason_below(PEOPLE[0], other, facts) is None
    assert access.covers(Resource("view", "lake", ("s", "T")), facts)


@pytest.mark.parametrize("table", ["lake.s.t", "lake.S.T"])
@pytest.mark.parametrize("column", ["", "c", "C"])
@pytest.mark.parametrize("change", [{}, {"id": "x"}, {"table": ("lake", "s", "u")}, {"tombstone": True}])
def test_an_id_that_files_and_the_store_give_is_found(table: str, column: str, change: dict[str, Any]) -> None:
    """Names of tables and columns fold, and ids do not. A tombstone is the policy of another table."""
    entry = {"id": "x", "table": table, "grantees": ["allUsers"]}
    filed = {"masks": [entry | {"column": "c", "kind": "null"}]} if column else {"policies": [entry | {"filter": True}]}
    tables = compile_policies([parse_document(filed)]).tables
    rule = replace(RowPolicy(("lake", "s", "t"), "x", (), "TRUE", column=column), **change)
    others = [
        RowPolicy(("lake", "s", "t"), "x", (), column="" if column else "c"),
        RowPolicy(("lake", "s", "t"), "X", ()),
    ]
    found = list(find_doubled_ids(tables, [rule, *others]))
    assert bool(found) == (change in ({}, {"id": "x"})), found
