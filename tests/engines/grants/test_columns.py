"""Decisions of many objects at once: on a kept engine, between writes, and equal to the plain way object by object."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec.grant_worlds import IDS, PRINCIPALS, changes, group, resource_of, worlds

from pdp.engines.engine import PERMIT, Engine, EngineQuestion
from pdp.engines.grants import principal_grants
from pdp.engines.grants.edits import QUESTIONS
from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.grants.many_objects import decide_column
from pdp.engines.grants.model import ACTIONS
from pdp.engines.grants.principal_grants import CacheBudget
from pdp.facts.objects import Change, Grant, GrantAdded, GrantRemoved, Object, ObjectPut, key_from_text, key_of
from pdp.facts.snapshot import Facts
from pdp.model.arrays import PathArray
from pdp.model.question import Resource
from pdp.store.world import parse_world

PARENTS = ((), ("a",), ("b",), ("a", "a"), ("a", "b"), ("z",))
TYPES = ("table", "view", "generic_table", "dataset", "namespace")
ALICE = "user:i~x"


def decided(engine: Engine, asked: EngineQuestion, resources: Any, facts: Facts) -> list[tuple[bool, str | None]]:
    """Return allow or deny, and `by`, of each resource."""
    verdicts = engine.decide(asked, resources, facts)
    return [(effect == PERMIT, by) for effect, by in zip(verdicts.effects, verdicts.by, strict=True)]


def plain(asked: EngineQuestion, resource: Resource, facts: Facts) -> tuple[bool, str | None]:
    """Return the same for one resource, from all relations on its object and without any cache."""
    access = EffectiveAccess(facts, asked.principal, {})
    key = key_of(resource)
    witness = access.relations_on(key, resource.id).witness(asked.action)
    return witness is not None, witness and access.reason(key, resource.id, witness)


@st.composite
def columns(draw: st.DrawFn) -> PathArray:
    """Rows of one type in several containers, some of them twice."""
    type = draw(st.sampled_from(TYPES))
    names = ("a", "b", "z") if type == "namespace" else ("t", "a", "u")
    parents = draw(st.lists(st.sampled_from(PARENTS), min_size=1, max_size=6, unique=True))
    rows = [*range(len(parents)), *draw(st.lists(st.integers(0, len(parents) - 1), max_size=12))]
    at = draw(st.permutations(rows))
    return PathArray(Resource(type, "v"), parents, draw(st.sampled_from((list, bytes)))(at), [
        draw(st.sampled_from(names)) for _ in at
    ])  # fmt: skip


@settings(max_examples=400)
@given(worlds(), st.lists(changes, max_size=3), st.data())
def test_a_column_on_a_kept_engine_is_object_by_object_on_a_new_one(
    world: Any, writes: list[list[Change]], data: st.DataObject
) -> None:
    kept, facts = GrantsEngine(), parse_world(world)
    asked = []
    for write in [[], *writes]:
        facts = facts.apply(facts.sequence + 1, write)
        column = data.draw(columns())
        asked += [
            (column, data.draw(st.sampled_from(PRINCIPALS)), data.draw(st.sampled_from(sorted(ACTIONS[column.type]))))
        ]
        for column, principal, action in asked:
            question = group(principal, action, column[0])
            wanted = [plain(question, resource, facts) for resource in column]
            assert decided(kept, question, column, facts) == wanted
            assert decided(kept, question, list(column), facts) == wanted
            assert [pair for row in column for pair in decided(kept, question, [row], facts)] == wanted


@settings(max_examples=200)
@given(worlds(), st.data())
def test_ids_in_a_list_count_for_their_own_object(world: Any, data: st.DataObject) -> None:
    engine, facts = GrantsEngine(), parse_world(world)
    column, principal = data.draw(columns()), data.draw(st.sampled_from(PRINCIPALS))
    rows = [Resource(row.type, row.warehouse, row.path, id=data.draw(st.sampled_from(IDS))) for row in column]
    action = data.draw(st.sampled_from(sorted(ACTIONS[column.type])))
    question = group(principal, action, rows[0])
    assert decided(engine, question, rows, facts) == [plain(question, row, facts) for row in rows]


@pytest.mark.parametrize("budget", [0, 3, 1000])
@pytest.mark.parametrize("most", [0, 1000])
@settings(max_examples=40)
@given(world=worlds(), data=st.data())
def test_answers_of_containers_are_those_of_objects_with_any_bounds(
    world: Any, data: st.DataObject, budget: int, most: int
) -> None:
    facts, principal = parse_world(world), data.draw(st.sampled_from(PRINCIPALS))
    access = EffectiveAccess(facts, group(principal, "", resource_of("table:v/a/t")).principal, {}, CacheBudget(budget))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(principal_grants, "_MOST_NAMES", most)
        for _ in range(3):
            column = data.draw(columns())
            question = group(principal, data.draw(st.sampled_from(sorted(ACTIONS[column.type]))), column[0])
            verdicts = decide_column(access, QUESTIONS[question.action, column.type], column)
            found = [(effect == PERMIT, by) for effect, by in zip(verdicts.effects, verdicts.by, strict=True)]
            assert found == [plain(question, resource, facts) for resource in column]


# --- writes between reads, on one engine ----------------------------------------------------------------------------


def added(*grants: str) -> list[Change]:
    return [GrantAdded(grant_from(text)) for text in grants]


def removed(*grants: str) -> list[Change]:
    return [GrantRemoved(grant_from(text)) for text in grants]


def grant_from(text: str) -> Grant:
    """Return the grant of `<principal> <privilege> <object> [<id>]`."""
    principal, privilege, target, *id = text.split()
    return Grant(key_from_text(target), privilege, principal, *id)


def put(target: str, project: str = "", *, managed: bool = False, id: str = "") -> list[Change]:
    return [ObjectPut(Object(key_from_text(target), project, managed, id))]


def moved(grant: str, target: str) -> list[Change]:
    """Return the changes of a grant that follows its object to another name."""
    old = grant_from(grant)
    return [GrantRemoved(old), GrantAdded(Grant(key_from_text(target), old.privilege, old.principal, old.id))]


TABLES = PathArray(Resource("table", "v"), (("a",), ("b",), ("a", "a")), (0, 1, 2, 0), ["t", "t", "t", "u"])
STORY: list[tuple[list[Change], str, list[bool]]] = [
    ([], "read_data", [False, False, False, False]),
    (added(f"{ALICE} select table:v/b/t"), "read_data", [False, True, False, False]),
    (added(f"{ALICE} select namespace:v/a"), "read_data", [True, True, True, True]),
    (removed(f"{ALICE} select namespace:v/a"), "read_data", [False, True, False, False]),
    (moved(f"{ALICE} select table:v/b/t", "table:v/a/u"), "read_data", [False, False, False, True]),
    (added("role:r modify namespace:v/a/a", "role:s assignee role:r"), "read_data", [False, False, False, True]),
    (added(f"{ALICE} assignee role:s"), "read_data", [False, False, True, True]),
    (removed("role:s assignee role:r"), "read_data", [False, False, False, True]),
    (added("role:s assignee role:r", f"{ALICE} ownership table:v/a/t"), "grant_select", [True, False, False, False]),
    (put("namespace:v/a", managed=True), "grant_select", [False, False, False, False]),
    (put("namespace:v/a"), "grant_select", [True, False, False, False]),
    (put("warehouse:v", "p", managed=True), "grant_select", [False, False, False, False]),
    (put("warehouse:v", "p"), "grant_select", [True, False, False, False]),
    (added(f"{ALICE} security_admin project:p"), "grant_select", [True, True, True, True]),
    (put("warehouse:v", "q"), "grant_select", [True, False, False, False]),
    (put("table:v/a/t", id="new") + added(f"{ALICE} modify table:v/b/t old"), "drop", [True, True, True, False]),
    (put("table:v/b/t", id="new"), "drop", [True, False, True, False]),
    (put("table:v/b/t", id="old"), "drop", [True, True, True, False]),
    (removed(f"{ALICE} assignee role:s"), "drop", [True, True, False, False]),
]
"""Writes in order, an action, and the tables that Alice may then act on."""


def test_every_write_is_seen_by_the_next_question() -> None:
    engine, facts = GrantsEngine(), Facts.empty()
    for write, action, wanted in STORY:
        facts = facts.apply(facts.sequence + 1, write)
        question = group(ALICE, action, TABLES[0])
        assert [allowed for allowed, _ in decided(engine, question, TABLES, facts)] == wanted, write
        assert [allowed for allowed, _ in decided(engine, question, list(TABLES), facts)] == wanted, write


def test_an_object_with_more_grants_inside_than_rows_asked() -> None:
    facts = Facts.empty().apply(1, added(*(f"{ALICE} select table:v/a/t{number}" for number in range(50))))
    column = PathArray.in_one(Resource("table", "v"), ("a",), ["t7", "x"])
    wanted = [(True, f"grants:select on table:v/a/t7 via {ALICE}"), (False, None)]
    question = group(ALICE, "read_data", column[0])
    for asked in (column, list(column)):
        assert decided(GrantsEngine(), question, asked, facts) == wanted


def test_answers_stay_right_when_the_cache_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdp.engines.grants.engine._MAX_ENTRIES", 5)
    monkeypatch.setattr("pdp.engines.grants.engine._MAX_PRINCIPALS", 2)
    users = [f"user:i~{number}" for number in range(6)]
    facts = Facts.empty().apply(1, added(*(f"{user} select table:v/a/{user[-1]}" for user in users)))
    column = PathArray(Resource("table", "v"), (("a",), ("b",)), (0, 0, 1), ["0", "1", "1"])
    engine = GrantsEngine()
    for user in users * 3:
        question = group(user, "read_data", column[0])
        assert decided(engine, question, column, facts) == [plain(question, row, facts) for row in column]


def test_a_grant_of_its_own_on_each_table_of_a_column() -> None:
    """Names that references escape, a second grantee, ids and a stronger right above, in one container."""
    names = [f"{name}{number}" for name in ("t", "a_b", "a/b", "a@", "ä") for number in range(4)]
    tables = [("table", ("v", "a", name)) for name in names]
    facts = Facts.empty().apply(1, [GrantAdded(Grant(table, "select", ALICE)) for table in tables])
    roles = [GrantAdded(Grant(table, "ownership", "role:r")) for table in tables[::3]]
    ids = [GrantAdded(Grant(table, "modify", ALICE, "1")) for table in tables[::4]]
    above = added(f"{ALICE} assignee role:r", f"{ALICE} modify warehouse:v")
    column = PathArray(Resource("table", "v"), (("a",), ("b",)), [*[0] * len(names), 1], [*names, "t1"])
    engine = GrantsEngine()
    for write in ([], roles, ids, above):
        facts = facts.apply(facts.sequence + 1, write)
        for action in ("read_data", "drop", "grant_select"):
            question = group(ALICE, action, column[0])
            wanted = [plain(question, row, facts) for row in column]
            assert decided(engine, question, column, facts) == wanted
            assert decided(engine, question, list(column), facts) == wanted


def test_the_room_of_the_cache_is_never_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    room = 60
    monkeypatch.setattr("pdp.engines.grants.engine._MAX_ENTRIES", room)
    engine, facts = GrantsEngine(), Facts.empty()
    targets = [f"{target}{number}" for number in range(9) for target in ("role:r", "user:i~", "table:v/a", "tag:k")]
    for number, target in enumerate(targets * 8):
        resource = resource_of(target)
        user = f"user:i~{number % 7}"
        facts = facts.apply(facts.sequence + 1, added(f"{user} select table:v/{number % 5}/t"))
        asked = group(user, "read_data" if target.startswith("table") else "read", resource)
        assert decided(engine, asked, [resource], facts) == [plain(asked, resource, facts)]
        engine.explain(asked, resource, facts)
        held = sum(access.entries for access in engine._cache.values())
        assert held + engine._budget.left == room
        assert engine._budget.left >= 0
