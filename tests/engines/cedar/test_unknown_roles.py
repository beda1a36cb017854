"""Roles of a token that nobody knows: they only add to the stored ones, so some policies are certain all the same."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdp.engines.cedar.engine import CedarEngine
from pdp.engines.cedar.model import load_model
from pdp.engines.cedar.schema import CedarSources, SourceText
from pdp.engines.engine import ABSTAIN, FORBID, PERMIT, EngineQuestion
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal, Question, unshown_user
from pdp.model.references import parse_resource
from pdp.store.world import parse_world

L = "Lakekeeper"
ROLES = ("a", "b", "c")
SETS = [set(roles) for size in range(4) for roles in combinations(ROLES, size)]
TABLES = [parse_resource("table:lake/hr/t"), parse_resource("table:lake/own/t")]
UNSHOWN = (*unshown_user("x~u").unknown, "member_of")
STALE = ("member_of", "stored")
NAMES = [f'{L}::Role::"{role}"' for role in ROLES]
LEAVES = [
    *(f"principal in {name}" for name in NAMES),
    f"principal in [{NAMES[0]}, {NAMES[1]}]",
    f"principal is {L}::User in {NAMES[2]}",
    f"principal.roles.contains({NAMES[0]})",
    f"principal.roles.containsAll([{NAMES[0]}, {NAMES[1]}])",
    f"principal.roles.containsAny([{NAMES[1]}, {NAMES[2]}])",
    f"[{NAMES[0]}].containsAll(principal.roles)",
    f"principal.roles == [{NAMES[1]}]",
    "principal.roles.isEmpty()",
    f'resource in {L}::Namespace::"lake/hr"',
    'principal has email && principal.email == "u"',
    "true",
]
CONDITIONS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["&&", "||", "=="]), inner).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})"),
        inner.map(lambda text: f"!({text})"),
        st.tuples(inner, inner, inner).map(lambda p: f"if {p[0]} then {p[1]} else {p[2]}"),
    ),
    max_leaves=5,
)
SCOPES = [f"principal is {L}::User", *(f"principal is {L}::User in {name}" for name in NAMES)]


def engine_of(effect: str, scope: str, *conditions: str) -> CedarEngine:
    """Return an engine with one policy; beside a forbid, everything is permitted."""
    text = f"{effect}({scope}, action, resource) {' '.join(conditions)};"
    more = "" if effect == "permit" else "permit(principal, action, resource);\n"
    return CedarEngine(load_model(CedarSources((SourceText(more + text),), ())))


def facts_of(roles: Collection[str]) -> Facts:
    grants = [{"principal": "user:x~u", "privilege": "assignee", "object": f"role:{role}"} for role in roles]
    return parse_world({"grants": grants})


FACTS = {frozenset(roles): facts_of(roles) for roles in SETS}


def effects(engine: CedarEngine, roles: Collection[str], unknown: tuple[str, ...] = ()) -> list[int]:
    """Return the effects for a user with stored roles, on a table in `hr` and on another."""
    question = Question(Principal("user", "x~u", unknown=unknown), "read_data")
    group = EngineQuestion(question, "table", "lake", None)
    return [*engine.decide(group, TABLES, FACTS[frozenset(roles)]).effects]


@given(
    st.sampled_from(["permit", "forbid"]), st.sampled_from(SCOPES), st.lists(st.tuples(st.sampled_from(["when", "unless"]), CONDITIONS), max_size=2),
    st.sampled_from(SETS), st.sampled_from([UNSHOWN, STALE]),
)  # fmt: skip
def test_in_doubt_nothing_opens_and_every_forbid_binds(
    effect: str, scope: str, conditions: list[tuple[str, str]], stored: set[str], unknown: tuple[str, ...]
) -> None:
    engine = engine_of(effect, scope, *(f"{kind} {{ {text} }}" for kind, text in conditions))
    found = effects(engine, stored, unknown)
    for roles in SETS:
        if unknown is STALE or roles >= stored:
            for here, sure in zip(found, effects(engine, roles), strict=True):
                assert here != PERMIT or sure == PERMIT, roles
                assert sure != FORBID or here == FORBID, roles


CERTAIN = [
    (SCOPES[1], ()),
    (SCOPES[0], (f"when {{ {LEAVES[0]} }}",)),
    (SCOPES[0], (f"when {{ {LEAVES[0]} && {LEAVES[5]} }}", f'when {{ resource in {L}::Warehouse::"lake" }}')),
    (SCOPES[0], (f"when {{ {LEAVES[1]} || {LEAVES[3]} }}",)),
    (SCOPES[0], (f"when {{ {LEAVES[4]} || {LEAVES[7]} || {LEAVES[0]} }}",)),
    (SCOPES[0], (f"unless {{ !({LEAVES[5]}) }}",)),
]
"""Scopes and conditions that hold for whoever has the role `a`, whatever other roles there are."""


@pytest.mark.parametrize(("scope", "conditions"), CERTAIN)
def test_a_permit_that_stored_roles_fulfil_permits(scope: str, conditions: tuple[str, ...]) -> None:
    engine = engine_of("permit", scope, *conditions)
    assert effects(engine, {"a"}, UNSHOWN) == [PERMIT] * 2
    assert effects(engine, {}, UNSHOWN) == [ABSTAIN] * 2
    assert effects(engine, {"a"}, STALE) == [ABSTAIN] * 2


@pytest.mark.parametrize("conditions", [conditions for _, conditions in CERTAIN if conditions])
def test_a_forbid_for_those_without_a_role_spares_stored_members(conditions: tuple[str, ...]) -> None:
    text = " && ".join(f"({each.partition(' {')[2][:-1]})" for each in conditions)
    kind = "unless" if conditions[0].startswith("when") else "when"
    engine = engine_of("forbid", SCOPES[0], f"{kind} {{ {text} }}")
    assert effects(engine, {"a"}, UNSHOWN) == [PERMIT] * 2
    assert effects(engine, {}, UNSHOWN) == [FORBID] * 2
    assert effects(engine, {"a"}, STALE) == [FORBID] * 2
