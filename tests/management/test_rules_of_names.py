"""Tombstones, and rules that were written before anybody knew the table: they stay on their names, whoever moves objects."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.oracles.rows import load

from pdp.engines.grants.administration import Administration
from pdp.engines.grants.edits import Actor, ObjectEdits, ObjectPatch
from pdp.errors import Forbidden, PdpError
from pdp.facts.objects import (
    Change,
    Grant,
    GrantAdded,
    Object,
    ObjectKey,
    ObjectPut,
    RowPolicy,
    RowPolicyPut,
    TablePath,
    fold_name,
)
from pdp.facts.snapshot import Facts
from pdp.management.row_policy_edits import RowPoliciesClear, RowPolicyAdministration, RowPolicyDrop, RowPolicyWrite
from pdp.model.question import Principal

EVE = Actor("user:oidc~eve", Principal("user", "oidc~eve"))
NAMES: list[ObjectKey] = [  # none in `gone`: who moved a namespace there manages it, and may end what closes its names
    *(("table", ("lake", "tmb", name)) for name in ("t", "T", "x")),
    ("view", ("lake", "tmb", "t")),
    ("table", ("lake", "mine", "t")),
    ("table", ("lake", "mine", "x")),
]
NAMESPACES: list[ObjectKey] = [("namespace", ("lake", name)) for name in ("gone", "mine", "mine2")]
KEPT: list[TablePath] = [("lake", "tmb", "t"), ("lake", "gone", "t")]
"""Tables that nobody knows, with rules that whoever manages their namespaces wrote."""


def attacked(state: str) -> Facts:
    """Return a world in which Eve creates everywhere, owns a table and a namespace, and manages nothing else."""
    held = [("create", ("namespace", ("lake", "tmb"))), ("create", ("warehouse", ("lake",)))]
    held += [("ownership", ("table", ("lake", "tmb", "x"))), ("ownership", ("namespace", ("lake", "mine")))]
    grants = [GrantAdded(Grant(key, privilege, EVE.name)) for privilege, key in held]
    mine = ("lake", "mine", "x")
    objects = [ObjectPut(Object(("warehouse", ("lake",)), "p")), ObjectPut(Object(("table", mine)))]
    rules = [RowPolicy(table, "r", ("group:a",), "x = 1", ahead=state == "ahead") for table in KEPT]
    rules += [RowPolicy(table, "m", ("allUsers",), column="c", kind="null", ahead=state == "ahead") for table in KEPT]
    closed = [RowPolicyPut(replace(rule, tombstone=state == "tombstone")) for rule in rules]
    own = [RowPolicyPut(RowPolicy(mine, "r", ("allUsers",), "TRUE"))]
    return Facts.from_changes("e", 1, [*objects, *grants, *closed, *own])


def edit(dice: random.Random, rules: RowPolicyAdministration, facts: Facts) -> Sequence[Change]:
    """Return the changes of a random edit by Eve."""
    key, other = dice.sample(NAMES, 2) if dice.random() < 0.7 else dice.sample(NAMESPACES, 2)
    table = dice.choice(NAMES)[1]
    rights = Administration()
    choices: list[Callable[[], Sequence[Change]]] = [
        lambda: rights.edit_objects(facts, EVE, ObjectEdits(put=[ObjectPatch(key)])),
        lambda: rights.edit_objects(facts, EVE, ObjectEdits(delete=[key])),
        lambda: rights.edit_objects(facts, EVE, ObjectEdits(move=[(key, other)])),
        lambda: rights.edit_objects(facts, EVE, ObjectEdits(move=[(key, other)])),
        lambda: rules.edit(facts, EVE, [RowPolicyDrop(table, dice.choice("rm"), dice.choice(["", "c"]))], 5),
        lambda: rules.edit(facts, EVE, [RowPoliciesClear(table)], 5),
        lambda: rules.edit(
            facts, EVE, [RowPolicyWrite(RowPolicy(table, "r", ("allUsers",), "TRUE"), dice.choice(["insert", "replace"]))], 5
        ),
    ]  # fmt: skip
    return dice.choice(choices)()


@pytest.mark.parametrize("state", ["tombstone", "ahead"])
@pytest.mark.parametrize("seed", range(20))
def test_nobody_carries_away_what_closes_a_name(state: str, seed: int, tmp_path: Path) -> None:
    dice, rules = random.Random(seed), RowPolicyAdministration(Administration(), load(tmp_path, {}).row_access)
    done = 0
    for _ in range(30):
        facts = attacked(state)
        before = {rule.key: rule for table in KEPT for rule in facts.rules_of(fold_name(table[0], table[1:]))}
        for _ in range(8):
            try:
                changes = edit(dice, rules, facts)
            except PdpError:
                continue
            facts = facts.apply(facts.sequence + 1, changes)
            done += 1
            left = {rule.key: rule for table in KEPT for rule in facts.rules_of(fold_name(table[0], table[1:]))}
            for key, rule in before.items():
                assert key in left, changes
                assert left[key].tombstone or left[key].text == rule.text, changes
    assert done > 30


OPERATOR = Actor("op")
T: TablePath = ("lake", "tmb", "t")
X: TablePath = ("lake", "tmb", "x")


def rules_at(facts: Facts, table: TablePath) -> list[RowPolicy]:
    return list(facts.rules_of(fold_name(table[0], table[1:])))


def moved(facts: Facts, by: Actor, source: TablePath, target: TablePath) -> Facts:
    edits = ObjectEdits(move=[(("table", source), ("table", target))])
    return facts.apply(facts.sequence + 1, Administration().edit_objects(facts, by, edits))


@pytest.fixture
def rules(tmp_path: Path) -> RowPolicyAdministration:
    return RowPolicyAdministration(Administration(), load(tmp_path, {}).row_access)


def written(rules: RowPolicyAdministration, facts: Facts, by: Actor = OPERATOR) -> Facts:
    edits = [RowPolicyWrite(RowPolicy(T, "r", ("group:a",), "x = 1"))]
    return facts.apply(facts.sequence + 1, rules.edit(facts, by, edits, 5))


def empty(*changes: Change) -> Facts:
    grants = [
        GrantAdded(Grant(key, privilege, EVE.name))
        for privilege, key in [("create", ("namespace", T[:2])), ("ownership", ("table", X))]
    ]
    return Facts.from_changes("e", 1, [ObjectPut(Object(("warehouse", ("lake",)), "p")), *grants, *changes])


def test_a_rule_written_ahead_stays_and_goes_along(rules: RowPolicyAdministration) -> None:
    facts = moved(written(rules, empty()), EVE, X, T)
    facts = moved(facts, EVE, T, X)
    assert [rule.text for table in (T, X) for rule in rules_at(facts, table)] == ["x = 1", "x = 1"]
    with pytest.raises(Forbidden, match="grant_manage_grants on namespace:lake/tmb"):
        rules.edit(facts, EVE, [RowPoliciesClear(X)], 5)


def test_whoever_manages_the_namespace_moves_it_as_any_other_rule(rules: RowPolicyAdministration) -> None:
    facts = moved(moved(written(rules, empty()), EVE, X, T), OPERATOR, T, X)
    assert [len(rules_at(facts, table)) for table in (T, X)] == [0, 1]


@pytest.mark.parametrize(
    "known", [ObjectPut(Object(("table", T))), GrantAdded(Grant(("table", T), "ownership", EVE.name))]
)
def test_a_rule_of_a_known_table_is_the_table_s(rules: RowPolicyAdministration, known: Change) -> None:
    owned = GrantAdded(Grant(("table", T), "ownership", EVE.name))
    facts = moved(written(rules, empty(known, owned), EVE), EVE, T, ("lake", "tmb", "y"))
    assert [rule.table[-1] for rule in facts.row_rules()] == ["y"]
    facts = facts.apply(facts.sequence + 1, rules.edit(facts, EVE, [RowPoliciesClear(("lake", "tmb", "y"))], 5))
    assert not list(facts.row_rules())


def test_only_a_manager_of_the_namespace_puts_a_rule_over_a_tombstone(rules: RowPolicyAdministration) -> None:
    own = RowPolicyPut(RowPolicy(X, "r", ("allUsers",), "TRUE"))
    facts = empty(own, RowPolicyPut(RowPolicy(T, "r", ("group:a",), "x = 1", tombstone=True)))
    with pytest.raises(Forbidden, match="grant_manage_grants on namespace:lake/tmb"):
        moved(facts, EVE, X, T)
    assert [rule.text for rule in rules_at(moved(facts, OPERATOR, X, T), T)] == ["TRUE"]
