"""Roles in rules: a forbid binds whoever has a role by any evidence, and a stored role opens nothing.

`binds` says in plain sets who is bound. A test tree is a tuple: `("in", role)`, `("exists", role)`, `("all", role)`,
`("size", number)`, `("group", name)`, `("level", text)`, `("name", name)`, and logic over trees. A forbid on who acts
as a role is asked about the role, and about the person with the roles that count under the acting role.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.generators.generated_pdps import batch, decide_and_record, make_pdp
from support.generators.recorded_runs import Run
from support.paths import TESTS
from support.service.caches import with_cache

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.facts import build_pdp
from pdp.decision.service import Pdp
from pdp.engines.guarded import AwaitedEngine, GuardedEngine
from pdp.facts.objects import Grant, GrantAdded, GrantRemoved
from pdp.facts.snapshot import Facts
from pdp.model.answer import Answer
from pdp.offline.cases.cases import Case
from pdp.offline.cases.reasons import observe
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp
from pdp.offline.replay.basis import RecordedFacts

ROLES = ("a", "b", "c", "d")
MAPPED = {"ta": "a", "tb": "b"}
"""Role in a token -> role."""
PLACE, OTHER = "table:lake/n/t@main", "table:lake/n/u@main"
ANN = "user:oidc~ann"


class World(NamedTuple):
    """What makes somebody a member of a role: the token or request, the store, and a role that a person acts as."""

    sent: tuple[str, ...]
    stored: frozenset[str]
    nested: frozenset[tuple[str, str]]
    """Role -> a role that it is a member of."""
    acting: str | None
    group: str | None = None
    level: str | None = None

    def above(self, roles: Collection[str]) -> set[str]:
        """Return roles with all roles above."""
        found = set(roles)
        while more := {above for role, above in self.nested if role in found} - found:
            found |= more
        return found

    def mapped(self) -> set[str]:
        return {MAPPED[role] for role in self.sent if role in MAPPED}

    def seen(self) -> set[str]:
        """Return the roles that a permit sees, and a negated test of a forbid."""
        return {self.acting} if self.acting else {*self.sent, *self.mapped()}

    def own(self) -> set[str]:
        return {*self.sent, *self.above({*self.member_of(), *self.mapped()})}

    def member_of(self) -> frozenset[str]:
        """Return the roles with the person among their stored members: the acting one, too."""
        return self.stored | ({self.acting} if self.acting else frozenset())

    def every(self) -> set[str]:
        """Return the roles by any evidence."""
        return self.own() | (self.above({self.acting}) if self.acting else set())

    def grants(self) -> list[dict[str, str]]:
        nested = [(f"role:{role}", above) for role, above in self.nested]
        members = [*((ANN, role) for role in self.member_of()), *nested]
        return [{"principal": who, "privilege": "assignee", "object": f"role:{role}"} for who, role in members] + [
            {"principal": who, "privilege": "select", "object": "warehouse:lake"}
            for who in (ANN, *(f"role:{role}" for role in ROLES))
        ]

    def check(self, place: str = PLACE) -> dict[str, Any]:
        groups, attributes = [self.group] * bool(self.group), {"level": self.level} if self.level else {}
        principal = {"id": ANN, "roles": list(self.sent), "groups": groups, "attributes": attributes}
        acting = {"actingRole": f"role:{self.acting}"} if self.acting else {}
        return {"principal": principal, "action": "read_data", "resource": place, **acting}


def text(tree: Any) -> str:
    """Return a tree as a rule."""
    kind, *parts = tree
    if kind == "in":
        return f"'{parts[0]}' in roles"
    if kind == "size":
        return f"size(roles) {parts[0]} {parts[1]}"
    if kind in OF_PERSON:
        return OF_PERSON[kind].format(*parts)
    if kind == "exists":
        return f"roles.exists(r, r == '{parts[0]}')"
    if kind == "all":
        return f"roles.all(r, r != '{parts[0]}')"
    if kind == "any of":
        return f"[{', '.join(map(repr, parts))}].exists(r, r in roles)"
    if kind == "not":
        return f"!({text(parts[0])})"
    if kind == "if":
        return f"({' : '.join([' ? '.join(f'({text(part)})' for part in parts[:2]), f'({text(parts[2])})'])})"
    sign = {"and": " && ", "or": " || ", "same": " == "}[kind]
    return sign.join(f"({text(part)})" for part in parts)


OF_PERSON = {
    "group": "'{}' in groups",
    "level": "has(attributes.level) && attributes.level == '{}'",
    "name": "role == '{}'",
}
"""Test of what a person is beside roles -> the rule."""
Evidence = dict[str, str | None]
NOBODY: Evidence = dict.fromkeys(OF_PERSON)
"""What rules see of a role."""


def holds(tree: Any, sign: int, sets: tuple[set[str], set[str], set[str]], of_person: Evidence = NOBODY) -> bool:
    """Tell whether a tree holds. `sets` are the roles of tests that can only add, of unclear and of negated ones."""
    kind, *parts = tree
    roles = sets[1 - sign]
    if kind in OF_PERSON:
        return bool(of_person[kind] == parts[0])
    if kind in ("in", "exists"):
        return parts[0] in roles
    if kind == "any of":
        return not roles.isdisjoint(parts)
    if kind == "all":
        return parts[0] not in sets[1 + sign]
    if kind == "size":
        return bool(len(sets[1]) == parts[1] if parts[0] == "==" else len(sets[1]) < parts[1])
    if kind == "not":
        return not holds(parts[0], -sign, sets, of_person)
    if kind == "and":
        return all(holds(part, sign, sets, of_person) for part in parts)
    if kind == "or":
        return any(holds(part, sign, sets, of_person) for part in parts)
    if kind == "same":
        return holds(parts[0], 0, sets, of_person) == holds(parts[1], 0, sets, of_person)
    return holds(parts[1] if holds(parts[0], 0, sets, of_person) else parts[2], sign, sets, of_person)


def is_unclear(tree: Any) -> bool:
    kind, *parts = tree
    return kind in ("size", "same", "if") or any(is_unclear(part) for part in parts if isinstance(part, tuple))


def binds(tree: Any, world: World) -> bool:
    """Tell whether a forbid binds somebody."""
    every, seen = world.every(), world.seen()
    person: Evidence = {"group": world.group, "level": world.level, "name": "ann"}
    return any(
        holds(tree, 1, (every, unclear, seen), who)
        for unclear in (every, seen)
        for who in ([NOBODY, person] if world.acting else [person])
    )


roles = st.sampled_from(ROLES)
tests = st.one_of(
    st.tuples(st.just("in"), roles),
    st.tuples(st.just("in"), roles),
    st.tuples(st.just("exists"), roles),
    st.tuples(st.just("all"), roles),
    st.tuples(st.just("any of"), roles, roles),
    st.tuples(st.just("size"), st.sampled_from(["==", "<"]), st.integers(0, 2)),
)


def logic(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or", "and", "or", "same"]), inner, inner),
        st.tuples(st.just("if"), inner, inner, inner),
    )


trees = st.recursive(tests, logic, max_leaves=4)
of_person = st.one_of(
    st.tuples(st.just("group"), st.sampled_from("gh")),
    st.tuples(st.just("level"), st.sampled_from("lm")),
    st.tuples(st.just("name"), st.sampled_from(["ann", "bob"])),
)
person_tests = st.booleans().flatmap(lambda of_roles: tests if of_roles else of_person)
person_trees = st.recursive(person_tests, logic, max_leaves=4)
worlds = st.builds(
    World,
    st.lists(st.sampled_from([*ROLES, "ta", "tb"]), max_size=2, unique=True).map(tuple),
    st.frozensets(roles, max_size=2),
    st.frozensets(st.sampled_from([(role, above) for role in ROLES for above in ROLES if role != above]), max_size=3),
    st.none() | roles,
    st.sampled_from([None, "g"]),
    st.sampled_from([None, "l"]),
)


def config(*engines: str, stored: bool = False) -> dict[str, Any]:
    provider = {"issuer": "https://idp.example", "jwks": "keys.json", "role_map": MAPPED}
    identity = {"providers": {"oidc": provider}, **({"cel_roles": "all"} if stored else {})}
    return {
        "warehouses": {"lake": {"default_ref": "main"}},
        "authorities": {"default": {"engines": list(engines)}},
        "identity": identity,
    }


def pdp_of(tree: Any, world: World) -> Pdp:
    return make_pdp(config("grants"), {}, world.grants(), {"f": f"({text(tree)}) && path == 'n.t'"})


def decide(pdp: Pdp, checks: Sequence[Any]) -> Answer:
    """Decide checks in one go where that is the way of the service."""
    asked = batch(checks)
    result = pdp.decide_now(asked)
    return result.answer if result else asyncio.run(pdp.check(asked))


def outcomes(answer: Answer) -> list[tuple[bool, str | None]]:
    return [(bool(allowed), by) for allowed, by in zip(answer.allowed, answer.by, strict=True)]


@pytest.mark.long
@settings(max_examples=2000)
@given(person_trees, worlds)
def test_a_forbid_binds_whoever_has_the_roles_by_any_evidence(tree: Any, world: World) -> None:
    check_forbid(tree, world)


@settings(max_examples=100)
@given(person_trees, worlds)
@example(("group", "g"), World((), frozenset(), frozenset(), "d", "g"))
@example(("and", ("name", "ann"), ("not", ("in", "a"))), World(("a",), frozenset(), frozenset(), "d"))
def test_some_forbids_bind_whoever_has_the_roles_by_any_evidence(tree: Any, world: World) -> None:
    check_forbid(tree, world)


def check_forbid(tree: Any, world: World) -> None:
    """Check whom a forbid binds, and that all ways of asking agree."""
    pdp, bound = pdp_of(tree, world), binds(tree, world)
    (answer,) = {outcomes(decide(pdp, [world.check()]))[0] for _ in range(3)}
    assert answer[0] is not bound, text(tree)
    assert (answer[1] == "cel:f") is bound
    both = [world.check(), {**world.check(OTHER)}]
    assert outcomes(decide(pdp, both)) == [answer, outcomes(decide(pdp, [both[1]]))[0]]
    assert decide(pdp, [both[1]]).allowed[0] == 1
    names = {**world.check(), "resources": [f"table:lake/n/{name}@main" for name in ("t", "u", "t")]}
    del names["resource"]
    assert [allowed for allowed, _ in outcomes(decide(pdp, [names]))] == [not bound, True, not bound]
    explained = msgspec.structs.replace(batch([world.check()]), explain=True)
    assert outcomes(asyncio.run(pdp.check(explained)))[0] == answer
    with_cache(pdp)
    assert [outcomes(decide(pdp, [world.check()]))[0] for _ in range(2)] == [answer, answer]


@settings(max_examples=200)
@given(trees, worlds, roles, st.booleans())
def test_a_stored_role_takes_no_denial_away(tree: Any, world: World, gained: str, nested: bool) -> None:
    # Where a test is neither for nor against a role, only the first stored role keeps the denial by itself.
    assume(not is_unclear(tree) or world.every() == world.seen())
    more = world._replace(stored=world.stored | {gained})
    if nested and world.stored - {gained}:
        more = world._replace(nested=world.nested | {(min(world.stored - {gained}), gained)})
    before, after = (decide(pdp_of(tree, each), [world.check()]).allowed[0] for each in (world, more))
    assert before or not after, text(tree)


@settings(max_examples=120)
@given(trees, worlds)
def test_a_permit_sees_no_stored_role(tree: Any, world: World) -> None:
    rule = {"p": text(tree), "v": "op == 'VIEW_REFERENCE'"}
    allowed = holds(tree, 1, (world.seen(),) * 3)
    assert decide(make_pdp(config("cel"), rule, world.grants()), [world.check()]).allowed[0] == allowed


@settings(max_examples=120)
@given(trees, worlds)
def test_the_setting_shows_stored_roles_to_permits(tree: Any, world: World) -> None:
    rule = {"p": text(tree), "v": "op == 'VIEW_REFERENCE'"}
    seen = world.above({world.acting}) if world.acting else world.own()
    pdp = make_pdp(config("cel", stored=True), rule, world.grants())
    assert {decide(pdp, [world.check()]).allowed[0] for _ in range(3)} == {holds(tree, 1, (seen,) * 3)}
    forbid = make_pdp(config("grants", stored=True), {}, world.grants(), {"f": f"({text(tree)}) && path == 'n.t'"})
    every, negated = world.every(), {world.acting} if world.acting else seen
    bound = any(holds(tree, 1, (every, unclear, negated)) for unclear in (every, negated))
    assert decide(forbid, [world.check()]).allowed[0] is not bound


STORED = World((), frozenset("a"), frozenset(), None)
NESTED = World((), frozenset("b"), frozenset({("b", "c"), ("c", "a")}), None)
MAPPED_ROLE = World(("ta",), frozenset(), frozenset(), None)
ABOVE_MAPPED = World(("tb",), frozenset(), frozenset({("b", "a")}), None)
ASSERTED = World(("a",), frozenset(), frozenset(), None)
ACTING = World((), frozenset("a"), frozenset(), "d")
"""The person has `a`, and acts as `d`."""
BY_EVIDENCE = {
    "stored": STORED, "nested": NESTED, "mapped": MAPPED_ROLE, "above a mapped one": ABOVE_MAPPED,
    "asserted": ASSERTED, "of who acts": ACTING,
}  # fmt: skip


@pytest.mark.parametrize("world", BY_EVIDENCE.values(), ids=BY_EVIDENCE)
@pytest.mark.parametrize(
    "rule",
    [
        "'a' in roles",
        "role == 'nobody' || ('a' in roles && op != 'X')",
        "!(!('a' in roles))",
        "delegated ? false : 'a' in roles",
        "roles.exists(r, r.startsWith('a'))",
        "['x', 'a'].exists(r, r in roles)",
        "('a' in roles) == true",
        "size(roles.filter(r, r == 'a')) > 0",
        "('a' in roles ? 'yes' : 'no') == 'yes'",
        "groups.all(roles, roles == 'x') && 'a' in .roles",
    ],
)
def test_a_test_for_a_role_binds_by_each_evidence(rule: str, world: World) -> None:
    pdp = make_pdp(config("grants"), {}, world.grants(), {"f": f"{rule} && path == 'n.t'"})
    assert outcomes(decide(pdp, [world.check()])) == [(False, "cel:f")]
    assert decide(pdp, [world.check(OTHER)]).allowed[0] == 1


@pytest.mark.parametrize("world", BY_EVIDENCE.values(), ids=BY_EVIDENCE)
@pytest.mark.parametrize(
    "rule",
    ["!('a' in roles)", "!(roles.exists(r, r == 'a'))", "roles.all(r, r != 'a')", "('a' in roles) == false"],
)
def test_a_test_against_a_role_counts_what_a_permit_sees(rule: str, world: World) -> None:
    pdp = make_pdp(config("grants"), {}, world.grants(), {"f": f"{rule} && path == 'n.t'"})
    assert decide(pdp, [world.check()]).allowed[0] == ("a" in world.seen())


def membership(role: str, who: str = ANN) -> Grant:
    return Grant(("role", (role,)), "assignee", who)


def hold(pdp: Pdp, facts: Facts) -> None:
    pdp.source = RecordedFacts(facts, stale=False)


@pytest.mark.parametrize("cached", [False, True])
def test_verdicts_change_with_memberships(cached: bool) -> None:
    world = World((), frozenset(), frozenset(), None)
    pdp = pdp_of(("in", "a"), world)
    if cached:
        with_cache(pdp)
    facts = pdp.source.facts
    several = {key: value for key, value in world.check().items() if key != "resource"}
    several["resources"] = ["table:lake/n/t@main", "table:lake/n/u@main"]
    states = [[], [membership("b")], [membership("b"), membership("a", "role:b")], [membership("b")], []]
    for number, state in enumerate(states):
        hold(pdp, facts.apply(facts.sequence + 1 + number, map(GrantAdded, state)))
        wanted = 0 if len(state) == 2 else 1
        assert [decide(pdp, [world.check()]).allowed[0] for _ in range(4)] == [wanted] * 4
        assert [*decide(pdp, [several]).allowed] == [wanted, 1]


@pytest.mark.parametrize("rule", ["'a' in roles", "size(roles) == 1", "roles.exists(r, r == 'a')"])
def test_stored_roles_are_unknown_while_facts_are_stale(rule: str) -> None:
    world = World((), frozenset(), frozenset(), None)
    rules = {"p": "true", "v": "op == 'VIEW_REFERENCE'"}
    forbid = {"f": f"{rule} && path == 'n.t'", "g": "!('a' in roles) && path == 'n.v'"}
    for stored in (False, True):
        pdp = make_pdp(config("cel", stored=stored), rules, [], forbid)
        asked = [world.check(), world.check(OTHER), world.check("table:lake/n/v@main")]
        assert [decide(pdp, [check]).allowed[0] for check in asked] == [1, 1, 0]
        pdp.source.is_stale = lambda: True  # type: ignore[method-assign]
        answers = [decide(pdp, [check]) for check in asked for _ in range(3)]
        assert [answer.allowed[0] for answer in answers] == [0] * 3 + [1] * 3 + [0] * 3
        assert answers[0].decision(0).errors == ("f",)


def test_permits_that_read_stale_roles_are_silent_with_the_setting() -> None:
    world = STORED
    rules = {"p": "'a' in roles", "q": "path == 'n.u'", "v": "op == 'VIEW_REFERENCE'"}
    pdp = make_pdp(config("cel", stored=True), rules, world.grants())
    assert [decide(pdp, [world.check(place)]).allowed[0] for place in (PLACE, OTHER)] == [1, 1]
    pdp.source.is_stale = lambda: True  # type: ignore[method-assign]
    assert [decide(pdp, [world.check(place)]).allowed[0] for place in (PLACE, OTHER)] == [0, 1]


@pytest.mark.parametrize("combine", ["any", "all"])
def test_a_forbid_of_cedar_on_a_role_denies_while_facts_are_stale(combine: str) -> None:
    """Nobody knows who has become a member since."""
    data: dict[str, Any] = {
        "config": {
            "warehouses": {"lake": {"default_ref": "main", "project": "p"}},
            "authorities": {"default": {"engines": ["cel", "cedar"], "combine": combine}},
        },
        "rules": {"all": "true"},
        "cedar": {
            "policies": '@id("p") permit(principal, action, resource);'
            '@id("f") forbid(principal in Lakekeeper::Role::"out", action == Lakekeeper::Action::"ReadTableData", resource == Lakekeeper::Table::"lake/n/t");'
        },
        "world": {"objects": [], "grants": []},
    }
    pdp = build_case_pdp(Case("stale", TESTS, data), build_pdp, MemoryAudit())[0]
    asked = [{"principal": ANN, "action": "read_data", "resource": f"table:lake/n/{name}@main"} for name in "tu"]
    assert [decide(pdp, [check]).allowed[0] for check in asked] == [1, 1]
    pdp.source.is_stale = lambda: True  # type: ignore[method-assign]
    assert [decide(pdp, [check]).allowed[0] for check in asked] == [0, int(combine == "any")]


def test_unknown_roles_of_who_acts_deny() -> None:
    pdp = make_pdp(config("grants"), {}, ACTING.grants(), {"f": "'b' in roles && path == 'n.t'"})
    for unknown in ((), ("roles",)):
        (check,) = batch([ACTING.check()]).checks
        principal = msgspec.structs.replace(check.question.principal, unknown=unknown)
        asked = msgspec.structs.replace(batch([ACTING.check()]), checks=[check.asking(principal=principal)])
        result = pdp.decide_now(asked)
        assert result
        assert result.answer.allowed[0] == (not unknown)


def test_a_rule_set_without_roles_asks_for_none() -> None:
    pdp = make_pdp(config("grants"), {}, STORED.grants(), {"f": "path == 'n.t'", "g": "!('a' in roles) && path == 'x'"})
    assert not pdp.bundle.counts_stored_roles
    answer, record = decide_and_record(pdp, [STORED.check()])
    assert answer.by == ["cel:f"]
    group = record.checks[0].concrete[0].group
    assert (group.stored_roles, group.person_roles) == ((), ())


@pytest.mark.parametrize("columns_from", [1, 32])
def test_records_have_the_roles_and_decide_again(tmp_path: Path, columns_from: int) -> None:
    run = Run(tmp_path, columns_from)
    run.load(config("grants"), {}, {"f": "'a' in roles && path == 'n.t'"}, {})
    worlds = [ASSERTED, STORED, NESTED, ACTING, MAPPED_ROLE]
    run.write([GrantAdded(Grant(("warehouse", ("lake",)), "select", who)) for who in (ANN, "role:d")])
    run.check([STORED.check(), STORED.check(OTHER)])
    run.write([GrantAdded(membership(role)) for role in ("a", "d")])
    for world in worlds:
        run.check([world.check()])
    run.write([GrantRemoved(membership("a"))])
    run.check([STORED.check(), ASSERTED.check()])
    found, reading = run.repeat()
    assert not reading.skipped
    assert found.checks > len(worlds)
    assert not found
    lines = (tmp_path / "decisions-i.jsonl").read_bytes().splitlines()
    decisions = [record for record in map(msgspec.json.decode, lines) if record["event"] == "decision"]
    (first, acting) = [decisions[number]["checks"] for number in (2, 4)]
    assert first[0]["otherRoles"] == {"stored": ["a", "d"]}
    role, person, assumed = acting
    assert [entry["otherRoles"] for entry in acting] == [{"person": ["a", "d"]}] * 2 + [{"stored": ["a", "d"]}]
    assert [entry["as"] for entry in acting] == ["role:d", ANN, ANN]
    reasons = [entry.get("reasons", entry["by"]) for entry in (role, person, assumed)]
    assert reasons == [["cel:f"], ["cel:f"], ["rule:acting_role"]]


def test_a_bundle_of_an_older_version_decides_as_it_did() -> None:
    rules = {"f": "'a' in roles && path == 'n.t'"}
    text = make_pdp(config("grants"), {}, [], rules).bundle.text
    older = msgspec.json.decode(text)
    assert older.pop("celRoles") == "token"
    for sources, allowed in ((text, 0), (msgspec.json.encode(older), 1)):
        pdp = rebuild_pdp(sources)
        hold(pdp, pdp_of(("in", "a"), STORED).source.facts)
        assert decide(pdp, [STORED.check()]).allowed[0] == allowed
        assert decide(pdp, [ASSERTED.check()]).allowed[0] == 0


class Foreign:
    """Engine of another package, awaited: it has what the contract asks for, and says no more."""

    def __init__(self, engine: Any) -> None:
        self.name, self.digest, self.reads, self.cost = engine.name, engine.digest, engine.reads, engine.cost
        self.applies, self._engine = engine.applies, engine

    async def decide(self, group: Any, resources: Any, facts: Any, deadline: float) -> Any:
        return self._engine.decide(group, resources, facts)


class ForeignNow(Foreign):
    """Such an engine that decides at once."""

    def decide(self, group: Any, resources: Any, facts: Any) -> Any:  # type: ignore[override]
        return self._engine.decide(group, resources, facts)


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "guarded": lambda engine: GuardedEngine("cel", engine, "d"),
    "guarded twice": lambda engine: GuardedEngine("cel", GuardedEngine("cel", engine, "d"), "d"),
    "foreign": lambda engine: GuardedEngine("cel", ForeignNow(engine), "d"),  # type: ignore[arg-type]
    "awaited": lambda engine: AwaitedEngine("cel", Foreign(engine), "d", 30),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_wrapped_forbid_on_a_stored_role_binds(wrap: Callable[[Any], Any]) -> None:
    pdp = pdp_of(("in", "a"), STORED)
    (forbid,), default = pdp.bundle.forbids, pdp.bundle.default
    default = msgspec.structs.replace(default, engines=(*default.engines, wrap(forbid)))
    pdp.bundle = msgspec.structs.replace(pdp.bundle, forbids=(), default=default)
    for each in (pdp, observe(pdp, [])):
        assert each.bundle.counts_stored_roles
        assert each.bundle.may_forbid("lake", "read_data", "table")
        assert outcomes(decide(each, [STORED.check(), STORED.check(OTHER)]))[0] == (False, "cel:f")


def test_an_engine_of_another_package_may_say_that_it_does_neither() -> None:
    engine = pdp_of(("in", "a"), STORED).bundle.default.engines[0]
    assert (engine.forbids, engine.counts_stored_roles) == (False, False)
    guarded = GuardedEngine("grants", engine, "d")
    assert (guarded.forbids, guarded.counts_stored_roles) == (False, False)
    silent: Any = ForeignNow(engine)
    for unclear in (None, 0, "False"):
        silent.forbids = silent.counts_stored_roles = unclear
        guarded = GuardedEngine("grants", silent, "d")
        assert (guarded.forbids, guarded.counts_stored_roles) == (True, True)


def test_evidence_that_forbids_read_is_unknown_in_observed_policies() -> None:
    pdp = pdp_of(("in", "a"), STORED)
    assert observe(pdp, []).bundle.forbids_read == pdp.bundle.forbids_read == {"roles"}
