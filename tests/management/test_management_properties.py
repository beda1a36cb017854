"""Random writes of users never lead to a right that no grant could have given them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from pdp.engines.grants.administration import Administration
from pdp.engines.grants.edits import Actor, GrantEdits, ObjectEdits, ObjectPatch
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.grants.model import ACTIONS, STORED
from pdp.errors import Forbidden, InvalidArgument
from pdp.facts.objects import Change, Grant, ObjectKey, key_from_text
from pdp.facts.snapshot import Facts
from pdp.model.references import parse_principal
from pdp.store.world import parse_world

BOB, EVE, CAROL, ROLE = "user:i~bob", "user:i~eve", "user:i~carol", "role:r"
KNOWN: Final = ("namespace:w/a", "namespace:w/b", "namespace:w/a/in", "table:w/a/mine", "table:w/b/hers", "view:w/a/v")
UNKNOWN: Final = ("namespace:w/c", "table:w/a/payroll", "table:w/c/t", "view:w/b/v")
"""Names that the facts do not have, and a catalog may have."""
KEYS: Final = [key_from_text(text) for text in ("project:p", "warehouse:w", ROLE, *KNOWN, *UNKNOWN)]
GRANTS: Final = [
    Grant(key, privilege, name)
    for key in KEYS
    for privilege in sorted(STORED[key[0]])
    for name in (BOB, EVE, CAROL, ROLE)
    if (key, name) != (("role", ("r",)), ROLE)
]
FOR_ATTACKERS: Final = [grant for grant in GRANTS if grant.principal != CAROL]
MOVABLE: Final = [key for key in KEYS if key[0] in ("namespace", "table", "view")]
MOVES: Final = [(a, b) for a in MOVABLE for b in MOVABLE if a != b and a[0] == b[0]]
OWNED: Final = [Grant(key, privilege, BOB) for key in MOVABLE for privilege in ("ownership", "modify")]
RULES: Final = Administration(warehouses=frozenset({"w"}))
ENGINE: Final = GrantsEngine()

Edits: TypeAlias = GrantEdits | ObjectEdits

patches = st.builds(
    ObjectPatch,
    st.sampled_from(KEYS),
    managed=st.sampled_from((None, True, False)),
    id=st.sampled_from((None, "1", "2")),
)
writes = st.one_of(
    st.lists(st.sampled_from(GRANTS), min_size=1, max_size=2).map(GrantEdits),
    st.lists(st.sampled_from(GRANTS), min_size=1, max_size=2).map(lambda grants: GrantEdits(remove=grants)),
    st.lists(patches, min_size=1, max_size=2).map(ObjectEdits),
    st.sampled_from(KEYS).map(lambda key: ObjectEdits(delete=[key])),
    st.sampled_from(MOVES).map(lambda pair: ObjectEdits(move=[pair])),
    st.sampled_from(MOVES).map(lambda pair: ObjectEdits(move=[pair])),
)


@st.composite
def worlds(draw: st.DrawFn) -> Facts:
    """Known objects with grants near the attackers."""
    managed = draw(st.sets(st.sampled_from(("namespace:w/a", "namespace:w/b"))))
    objects: list[dict[str, Any]] = [
        {"object": "warehouse:w", "parent": "project:p"},
        {"object": ROLE, "parent": "project:p"},
    ]
    objects += [{"object": text, "managedAccess": True} if text in managed else {"object": text} for text in KNOWN]
    facts = parse_world({"objects": [*objects, {"object": "project:p"}], "grants": []})
    grants = draw(st.lists(st.sampled_from(OWNED), min_size=1, max_size=2))
    grants += draw(st.lists(st.sampled_from(GRANTS), max_size=2))
    return facts.apply(1, RULES.edit_grants(facts, Actor("operator"), GrantEdits(grants)))


def actors(facts: Facts) -> Iterator[Actor]:
    """Yield the attackers, and their role if one of them may assume the role."""
    yield from (Actor(name, parse_principal(name), may_report=False) for name in (BOB, EVE))
    if any(facts.can_assume(parse_principal(name), "r") for name in (BOB, EVE)):
        yield Actor(ROLE, parse_principal(ROLE), may_report=False)


def written(facts: Facts, actor: Actor, edits: Edits) -> Facts:
    """Return the facts after a write, or the same facts after a refused write."""
    decide: Callable[..., Sequence[Change]] = RULES.edit_grants if isinstance(edits, GrantEdits) else RULES.edit_objects
    with suppress(Forbidden, InvalidArgument):
        return facts.apply(facts.sequence + 1, decide(facts, actor, edits))
    return facts


def with_all_grants(facts: Facts) -> Facts:
    """Return the facts after all grants that attackers can give one another, with managed access off where they may."""
    while True:
        before = facts.sequence
        for actor in actors(facts):
            for key in KEYS:
                if facts.object(key).managed:
                    facts = written(facts, actor, ObjectEdits([ObjectPatch(key, managed=False)]))
            for grant in FOR_ATTACKERS:
                if not facts.has(grant):
                    facts = written(facts, actor, GrantEdits([grant]))
        if facts.sequence == before:
            return facts


def rights(facts: Facts) -> set[tuple[str, str, ObjectKey]]:
    """Return all rights of the attackers."""
    return {
        (name, action, key)
        for name in (BOB, EVE)
        for key in KEYS
        for action in ACTIONS[key[0]]
        if ENGINE.may(parse_principal(name), action, key, facts)
    }


@settings(max_examples=300)
@given(worlds(), st.lists(st.tuples(st.sampled_from((0, 0, 1, 2)), writes), min_size=4, max_size=12))
def test_writes_give_no_right_that_grants_could_not_give(facts: Facts, steps: list[tuple[int, Edits]]) -> None:
    """Names that only the catalog has are among the names: a move onto such a name would take the object over."""
    possible = rights(with_all_grants(facts))
    for number, edits in steps:
        able = list(actors(facts))
        facts = written(facts, able[number % len(able)], edits)
        if isinstance(edits, ObjectEdits):
            assert rights(facts) <= possible
    assert rights(facts) <= possible
