"""Facts follow changes: whatever the changes, the result is what a rebuild gives, and earlier snapshots stay."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from spec.grant_worlds import PRINCIPALS, ask, changes, questions
from spec.grants import Spec

from pdp.engines.grants.engine import GrantsEngine
from pdp.facts.objects import (
    SERVER,
    Change,
    Grant,
    GrantAdded,
    GrantRemoved,
    Object,
    ObjectDeleted,
    ObjectKey,
    ObjectPut,
    key_from_text,
    key_text,
)
from pdp.facts.snapshot import Facts


def rebuilt(made: list[Change]) -> Facts:
    """The same world from what is left of the changes, in the plainest way."""
    objects: dict[ObjectKey, Object] = {}
    grants: set[Grant] = set()
    for change in made:
        if isinstance(change, ObjectPut):
            objects[change.object.key] = change.object
        elif isinstance(change, ObjectDeleted):
            objects.pop(change.key, None)
        elif isinstance(change, GrantAdded):
            grants.add(change.grant)
        elif isinstance(change, GrantRemoved):
            grants.discard(change.grant)
    return Facts.build("e", len(made), objects.values(), grants)


def content(facts: Facts) -> Any:
    return facts.index.objects, facts.index.grantees, facts.index.memberships


def world_of(facts: Facts) -> dict[str, Any]:
    """A world for the oracle: what counts, so an id that is not the registered one is no grant at all."""
    entries = []
    for known in facts.objects():
        entry: dict[str, Any] = {"object": key_text(known.key), "managedAccess": known.managed}
        entries.append(entry | ({"parent": f"project:{known.project}"} if known.project else {}))
    given = [
        {"object": key_text(g.object), "privilege": g.privilege, "principal": g.principal, "id": g.id}
        for g in facts.grants()
        if not g.id or facts.object(g.object).id in ("", g.id)
    ]
    return {"objects": entries, "grants": given}


@settings(max_examples=300)
@given(st.lists(changes, max_size=4))
def test_following_changes_is_rebuilding(writes: list[list[Change]]) -> None:
    facts, made, before = Facts.build("e", 0, (), ()), [], []
    for write in writes:
        before.append((facts, content(facts)))
        facts = facts.apply(facts.sequence + len(write), write)
        made += write
        assert content(facts) == content(rebuilt(made))
    for earlier, was in before:
        assert content(earlier) == was


@settings(max_examples=300)
@given(st.lists(changes, min_size=1, max_size=4), st.data())
def test_what_an_engine_keeps_across_changes_is_what_a_new_one_finds(
    writes: list[list[Change]], data: st.DataObject
) -> None:
    kept, facts = GrantsEngine(), Facts.build("e", 0, (), ())
    asked = [data.draw(questions({"grants": []})) for _ in range(4)]
    for write in writes:
        facts = facts.apply(facts.sequence + 1, write)
        asked.append(data.draw(questions(world_of(facts))))
        for principal, action, target, id in asked:
            found = ask(kept, facts, principal, action, target, id)
            assert found == ask(GrantsEngine(), facts, principal, action, target, id)
            assert found[0] == Spec(world_of(facts), principal, target, id).may(action, target)


def test_everything_known_is_found_below_the_server() -> None:
    facts = rebuilt([ObjectPut(Object(("warehouse", ("v",)), "p"))]).apply(
        1, [GrantAdded(Grant(key_from_text("table:v/a/b/t"), "select", PRINCIPALS[0]))]
    )
    below = [key_text(key) for key, _ in facts.subtree(("warehouse", ("v",)))]
    assert below == ["warehouse:v", "namespace:v/a", "namespace:v/a/b", "table:v/a/b/t"]
    assert [key_text(key) for key, _ in facts.subtree(("project", ("p",)))] == below
    assert {key_text(key) for key, _ in facts.subtree(SERVER)} >= set(below)


def test_a_grant_of_an_id_that_is_not_the_registered_one_never_counts() -> None:
    table = key_from_text("table:v/a/t")
    grant = Grant(table, "select", "user:i~x", "old")
    facts = rebuilt([ObjectPut(Object(table, id="old")), GrantAdded(grant)])
    engine = GrantsEngine()
    question = ("user:i~x", "read_data", "table:v/a/t")
    assert ask(engine, facts, *question) == (True, "grants:select on table:v/a/t via user:i~x")
    assert ask(engine, facts, *question, "old")[0]
    assert not ask(engine, facts, *question, "new")[0]
    assert ask(engine, facts, "user:i~x", "get_metadata", "warehouse:v")[0]
    again = facts.apply(9, [ObjectPut(Object(table, id="new"))])
    for id in ("", "old", "new"):
        assert not ask(engine, again, *question, id)[0]
    assert not ask(engine, again, "user:i~x", "get_metadata", "warehouse:v")[0]
    assert list(again.grants_on(table)) == [grant]
