"""Properties of the grants engine on generated worlds, the plain oracle among them."""

import re
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec.grant_worlds import OBJECTS, PRINCIPALS, ask, grants, group, questions, resource_of, worlds
from spec.grants import TABULAR, Spec, roles

from pdp.engines.engine import PERMIT
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.grants.model import ACTIONS, STORED
from pdp.facts.objects import GrantAdded, key_of
from pdp.model.arrays import PathArray
from pdp.model.question import Resource
from pdp.model.references import format_resource, parse_principal
from pdp.store.world import parse_world, read_grant

ENGINE = GrantsEngine()
BY = re.compile(r"grants:(?P<privilege>\w+) on (?P<object>\S+) via (?P<principal>\S+)")
NEAR = {
    "server": ("server",),
    "project:p": ("project:p", "server", "warehouse:v", "namespace:v/a", "table:v/a/t", "role:r", "tag:k"),
    "warehouse:v": ("warehouse:v", "project:p", "server", "namespace:v/a", "view:v/a/t"),
    "namespace:v/a": ("namespace:v/a", "warehouse:v", "project:p", "server", "dataset:v/a/a/t"),
    "namespace:v/a/a": ("namespace:v/a/a", "namespace:v/a", "warehouse:v", "generic_table:v/a/a/t", "table:v/a/t"),
    **{
        f"{type}:v/a/a/t": (f"{type}:v/a/a/t", "namespace:v/a/a", "warehouse:v", "project:p")
        for type in sorted(TABULAR)
    },
    "role:r": ("role:r", "project:p", "server", "table:v/a/t", "role:s"),
    "tag:k": ("tag:k", "project:p", "server", "table:v/a/t"),
    "user:i~x": ("server", "project:p"),
    "user:i~y": ("server", "project:p"),
}
"""Target -> the objects on which grants can matter to it; pairs of grants are tried on the first two."""
MISSING = re.compile(r"(?P<privilege>\w+) on (?P<object>\S+) to (?P<principal>\S+) would permit it")


def small_worlds(target: str, flagged: str) -> Iterator[dict[str, Any]]:
    """Worlds with one grant near the target, and with every pair of grants on the target and the object above."""
    objects: list[dict[str, Any]] = [
        {"object": o, "parent": "project:p"} for o in ("warehouse:v", "role:r", "tag:k") if o != flagged
    ]
    if flagged:
        parent = {"parent": "project:p"} if flagged == "warehouse:v" else {}
        objects.append({"object": flagged, "managedAccess": True} | parent)
    near = [
        {"principal": "user:i~x", "privilege": privilege, "object": o}
        for o in NEAR[target]
        for privilege in sorted(STORED[o.partition(":")[0]])
    ]
    close = [grant for grant in near if grant["object"] in NEAR[target][:2]]
    for chosen in ([], *([grant] for grant in near), *map(list, combinations(close, 2))):
        yield {"objects": objects, "grants": chosen}


@settings(max_examples=400)
@given(st.data())
def test_agrees_with_the_oracle(data: st.DataObject) -> None:
    world = data.draw(worlds())
    facts = parse_world(world)
    principal, _, target, id = data.draw(questions(world))
    spec = Spec(world, principal, target, id)
    for action in sorted(ACTIONS[target.partition(":")[0]]):
        assert ask(ENGINE, facts, principal, action, target, id)[0] == spec.may(action, target), action


@pytest.mark.parametrize(
    ("target", "flagged"),
    [
        (t, flag)
        for t in NEAR
        for flag in ("", "namespace:v/a", "namespace:v/a/a", "warehouse:v")
        if flag in ("", *NEAR[t])
    ],
)
def test_all_small_sets_of_grants_near_an_object_agree_with_the_oracle(target: str, flagged: str) -> None:
    for world in small_worlds(target, flagged):
        facts = parse_world(world)
        spec = Spec(world, "user:i~x", target)
        for action in ACTIONS[target.partition(":")[0]]:
            assert ask(ENGINE, facts, "user:i~x", action, target)[0] == spec.may(action, target), (action, world)


@settings(max_examples=300)
@given(st.data())
def test_carried_roles_are_memberships_of_that_request_alone(data: st.DataObject) -> None:
    """One engine, one user, other roles at each request, and writes in between: nobody sees another request's rights."""
    world = data.draw(worlds())
    engine, facts = GrantsEngine(), parse_world(world)
    for sequence in range(1, data.draw(st.integers(2, 4))):
        for carried in data.draw(st.permutations([(), ("r",), ("s",), ("r", "t")])):
            _, _, target, id = data.draw(questions(world))
            members = [{"principal": "user:i~x", "privilege": "assignee", "object": f"role:{role}"} for role in carried]
            spec = Spec({**world, "grants": [*world["grants"], *members]}, "user:i~x", target, id)
            who = msgspec.structs.replace(parse_principal("user:i~x"), member_of=carried)
            resource = resource_of(target, id)
            for action in sorted(ACTIONS[target.partition(":")[0]]):
                asked = group("user:i~x", action, resource)
                asked = msgspec.structs.replace(asked, question=msgspec.structs.replace(asked.question, principal=who))
                allowed = engine.decide(asked, (resource,), facts).effects[0] == PERMIT
                assert allowed == spec.may(action, target), (action, carried)
        new = data.draw(grants())
        world = {**world, "grants": [*world["grants"], new]}
        facts = facts.apply(sequence, [GrantAdded(read_grant(new, ("grants", 0)))])


@given(worlds())
def test_roles_agree_with_the_oracle(world: Any) -> None:
    facts = parse_world(world)
    for principal in PRINCIPALS:
        assert facts.roles_of(parse_principal(principal)) == roles(world, principal)


@given(st.data())
def test_a_new_grant_never_removes_access(data: st.DataObject) -> None:
    world = data.draw(worlds())
    more = {**world, "grants": [*world["grants"], data.draw(grants())]}
    before, after = parse_world(world), parse_world(more)
    for question in data.draw(st.lists(questions(more), min_size=1, max_size=10)):
        assert ask(ENGINE, after, *question)[0] >= ask(ENGINE, before, *question)[0]


@given(st.data())
def test_whoever_may_list_everything_in_a_container_lists_all_in_it(data: st.DataObject) -> None:
    """A column of tables is answered by its container: the right on it and item by item come to the same."""
    facts = parse_world(data.draw(worlds()))
    principal = data.draw(st.sampled_from(PRINCIPALS))
    for container, path in (("warehouse:v", ()), ("namespace:v/a", ("a",)), ("namespace:v/a/a", ("a", "a"))):
        everything = ask(ENGINE, facts, principal, "list_everything", container)[0]
        for type, action in product(("table", "view"), ("include_in_list", "get_metadata")):
            column = PathArray.in_one(Resource(type, "v"), path, ["t", "u", "x"])
            verdicts = ENGINE.decide(group(principal, action, column[0]), column, facts)
            singles = [ask(ENGINE, facts, principal, action, format_resource(resource)) for resource in column]
            assert [(effect == PERMIT, by) for effect, by in zip(verdicts.effects, verdicts.by, strict=True)] == singles
            if everything:
                assert all(allowed for allowed, _ in singles)


@given(st.data())
def test_a_batch_equals_its_singles_in_any_order(data: st.DataObject) -> None:
    world = data.draw(worlds())
    facts = parse_world(world)
    type = data.draw(st.sampled_from(("namespace", "table", "view", "role")))
    action = data.draw(st.sampled_from(sorted(ACTIONS[type])))
    principal = data.draw(st.sampled_from(PRINCIPALS))
    targets = data.draw(st.permutations([o for o in OBJECTS if o.startswith(f"{type}:")]))
    resources = [resource_of(target) for target in targets]
    verdicts = ENGINE.decide(group(principal, action, resources[0]), resources, facts)
    singles = [ask(ENGINE, parse_world(world), principal, action, target) for target in targets]
    assert [(effect == PERMIT, by) for effect, by in zip(verdicts.effects, verdicts.by, strict=True)] == singles


@settings(max_examples=300)
@given(st.data())
def test_by_names_a_grant_that_exists_and_counts(data: st.DataObject) -> None:
    world = data.draw(worlds())
    facts = parse_world(world)
    for principal, action, target, id in data.draw(st.lists(questions(world), min_size=1, max_size=10)):
        allowed, by = ask(ENGINE, facts, principal, action, target, id)
        if not allowed:
            assert by is None
        elif by not in ("grants:self", "grants:authenticated"):
            matched = BY.fullmatch(by or "")
            assert matched, by
            named = matched.groupdict()
            carried = id if named["object"] == target else ""
            found = [
                g
                for g in world["grants"]
                if named.items() <= g.items() and g.get("id", carried) == (carried or g.get("id", ""))
            ]
            assert found, by
            assert named["principal"] == principal or named["principal"][5:] in roles(world, principal)


@settings(max_examples=200)
@given(st.data())
def test_the_missing_grant_of_an_explanation_would_permit(data: st.DataObject) -> None:
    world = data.draw(worlds())
    facts = parse_world(world)
    principal, action, target, id = data.draw(questions(world))
    resource = resource_of(target, id)
    trace = ENGINE.explain(group(principal, action, resource), resource, facts)
    allowed, by = ask(ENGINE, facts, principal, action, target, id)
    assert (trace.outcome, trace.why if allowed else None) == ("permit" if allowed else "silent", by)
    assert len(trace.parts) == 1 + len(list(facts.ancestors(key_of(resource))))
    missing = MISSING.fullmatch(trace.why)
    if missing and missing["object"] != principal:
        more = {**world, "grants": [*world["grants"], missing.groupdict()]}
        assert ask(ENGINE, parse_world(more), principal, action, target, id)[0]
