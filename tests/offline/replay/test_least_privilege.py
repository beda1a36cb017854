"""Grants and rules that recorded accesses need."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from support.generators import worlds
from support.generators.generated_pdps import decide, make_pdp

from pdp.errors import PolicyError
from pdp.facts.objects import Grant
from pdp.offline.replay.least_privilege import GrantNeeds, GrantUse, alternatives, split_rules, unused_rules
from pdp.store.world import parse_world

USER = "user:oidc~a"
TABLE = "table:w/n/t"


def world(*grants: tuple[str, str, str]) -> Any:
    objects = ["project:p", {"object": "warehouse:w", "parent": "project:p"}]
    objects += [{"object": f"role:{name}", "parent": "project:p"} for name in ("r", "s", "x")]
    return parse_world(
        {
            "objects": objects,
            "grants": [{"principal": who, "privilege": what, "object": on} for who, what, on in grants],
        }
    )


def proposed(needs: GrantNeeds) -> set[tuple[str, str, str]]:
    return {
        (each.principal, each.privilege, f"{each.object[0]}:{'/'.join(each.object[1])}")
        for each in needs.proposal().facts.grants()
    }


def test_a_used_grant_becomes_the_weakest_on_the_used_object_and_unused_ones_go() -> None:
    facts = world(
        (USER, "ownership", "namespace:w/n"), (USER, "select", "namespace:w/m"), ("user:oidc~b", "modify", TABLE)
    )
    use = GrantUse(f"grants:ownership on namespace:w/n via {USER}", USER, "read_data", f"{TABLE}@main")
    needs = GrantNeeds(facts, [use])
    assert proposed(needs) == {(USER, "select", TABLE)}
    found = needs.proposal()
    assert (found.dropped, found.narrowed, found.kept) == (2, 1, 0)
    assert needs.rights(found.facts, [TABLE, "namespace:w/n"]) < needs.rights(facts, [TABLE, "namespace:w/n"])


def test_a_grant_that_is_as_narrow_as_its_use_stays() -> None:
    facts = world((USER, "select", TABLE))
    needs = GrantNeeds(facts, [GrantUse(f"grants:select on {TABLE} via {USER}", USER, "read_data", TABLE)])
    assert (proposed(needs), needs.proposal().narrowed) == ({(USER, "select", TABLE)}, 0)


def test_memberships_stay_on_the_ways_to_used_grants_alone() -> None:
    facts = world(
        (USER, "assignee", "role:r"), ("role:r", "assignee", "role:s"), (USER, "assignee", "role:x"),
        ("role:s", "select", TABLE),
    )  # fmt: skip
    needs = GrantNeeds(facts, [GrantUse(f"grants:select on {TABLE} via role:s", USER, "read_data", TABLE)])
    assert proposed(needs) == {
        (USER, "assignee", "role:r"),
        ("role:r", "assignee", "role:s"),
        ("role:s", "select", TABLE),
    }


def test_a_restored_principal_keeps_what_it_and_its_roles_have() -> None:
    grants = [(USER, "assignee", "role:r"), ("role:r", "modify", TABLE), ("user:oidc~b", "select", TABLE)]
    needs = GrantNeeds(world(*grants), [])
    assert proposed(needs) == set()
    assert needs.restore(USER)
    assert not needs.restore(USER)
    assert proposed(needs) == set(grants[:2])
    assert proposed(GrantNeeds(world(*grants), [], [USER])) == set(grants[:2])
    needs.restore_all()
    assert proposed(needs) == set(grants)


def test_a_grant_with_an_id_or_of_an_unknown_use_stays_as_it_is() -> None:
    facts = world((USER, "ownership", "namespace:w/n"))
    for action, resource in (("no_such_action", TABLE), ("read_data", "nothing")):
        use = GrantUse(f"grants:ownership on namespace:w/n via {USER}", USER, action, resource)
        assert proposed(GrantNeeds(facts, [use])) == {(USER, "ownership", "namespace:w/n")}
    held = Grant(("table", ("w", "n", "t")), "ownership", USER, "id1")
    other = type(facts).build("e", 1, facts.objects(), [held])
    use = GrantUse(f"grants:ownership on {TABLE} via {USER}", USER, "read_data", TABLE)
    assert list(GrantNeeds(other, [use]).proposal().facts.grants()) == [held]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ["a"]),
        ("a || b", ["a", "b"]),
        ("a||b && c || (d || e)", ["a", "b && c", "(d || e)"]),
        ("role in ['||'] || path == \"a||'\"", ["role in ['||']", 'path == "a||\'"']),
        ("x == 'it\\'s || ' || y", ["x == 'it\\'s || '", "y"]),
        ("a || b ? c : d", ["a || b ? c : d"]),
        ("a || b // c || d", ["a || b // c || d"]),
        ("x == r'\\' || y", ["x == r'\\' || y"]),
        ("x == '''a''' || y", ["x == '''a''' || y"]),
        ("a || 'open", ["a || 'open"]),
        ("a) || (b", ["a) || (b"]),
    ],
)
def test_alternatives_are_split_outside_of_brackets_and_texts(text: str, parts: list[str]) -> None:
    assert list(alternatives(text)) == parts


@given(worlds.rules, worlds.checks)
def test_split_rules_give_the_same_verdicts(rules: dict[str, str], checks: Any) -> None:
    joined = {"both": " || ".join(f"({text})" if "?" in text else text for text in rules.values())} if rules else {}
    try:
        whole, split = make_pdp({}, joined), make_pdp({}, split_rules(joined))
    except PolicyError:
        return
    assert decide(whole, checks).allowed == decide(split, checks).allowed


def test_rules_that_no_reason_names_are_unused() -> None:
    assert unused_rules({"a": "", "b": ""}, ["cel:b", "grants:x", "default_deny"]) == {"a"}
    assert split_rules({"a": "x || y", "a-1": "z"}) == {"a": "x || y", "a-1": "z"}
