"""The engine beyond single verdicts: explanation, isolation of neighbours, bounds, and when cedarpy is loaded."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from support.paths import ROOT

from pdp.engines.cedar.actions import CEDAR_ACTIONS, CONTEXTS
from pdp.engines.cedar.engine import CedarEngine
from pdp.engines.cedar.entities import MOST_ROLES
from pdp.engines.cedar.explain import judgement_of
from pdp.engines.cedar.model import load_model
from pdp.engines.cedar.policies import CedarPolicy
from pdp.engines.cedar.requests import RequestBatch
from pdp.engines.cedar.schema import CedarSources, SourceText, load_cedarpy, load_schema, own_text
from pdp.engines.engine import FAILED, FORBID, PERMIT, EngineQuestion
from pdp.errors import Place
from pdp.facts.snapshot import Facts
from pdp.model.question import Arguments, Question, Resource
from pdp.model.references import parse_principal, parse_resource
from pdp.model.vocabulary import CATALOG_ACTIONS
from pdp.store.world import parse_world


def engine_of(text: str, entities: object = ()) -> CedarEngine:
    return CedarEngine(load_model(CedarSources((SourceText(text),), (SourceText(json.dumps(list(entities))),))))  # type: ignore[call-overload]


def group_of(action: str, type: str, user: str = "user:oidc~a") -> EngineQuestion:
    return EngineQuestion(Question(parse_principal(user), action), type, "lake", None)


def test_the_schema_has_the_actions_and_contexts_of_the_table() -> None:
    declared = {id for _, id in load_schema(None, None).groups}
    assert set(CEDAR_ACTIONS.values()) <= declared
    assert set(CONTEXTS) <= set(CEDAR_ACTIONS.values())
    assert all(action in CATALOG_ACTIONS[type] for action, type in CEDAR_ACTIONS)
    names = [name for (_, type), name in CEDAR_ACTIONS.items() if type != "user"]  # a user is judged on the server
    assert len(set(names)) == len(names)
    for form in CONTEXTS.values():
        for attribute in filter(None, (*form.texts, *form.flags, form.initial, form.updates, form.removal)):
            assert re.search(rf"^ +{attribute}\??:", own_text(), re.MULTILINE)


def test_every_action_is_asked_with_its_groups() -> None:
    engine = engine_of('permit(principal, action in Lakekeeper::Action::"ServerActions", resource);')
    names = {"server": "server", "user": "user:oidc~x"}
    for (action, type), name in CEDAR_ACTIONS.items():
        place = "lake" if type in ("warehouse", "project", "tag", "role") else "lake/x/y"
        resource = parse_resource(names.get(type, f"{type}:{place}"))
        found = engine.decide(group_of(action, type), [resource], Facts.empty())
        assert (found.effects[0] == PERMIT) == (type in ("server", "user")), name


def test_a_denial_names_the_smallest_policy_that_would_permit() -> None:
    engine = engine_of('permit(principal == Lakekeeper::User::"oidc~b", action, resource);')
    resource = parse_resource("table:lake/a/t")
    trace = engine.explain(group_of("read_data", "table"), resource, Facts.empty())
    smallest = trace.why.partition("this one would: ")[2]
    assert trace.outcome == "silent"
    assert engine_of(smallest).decide(group_of("read_data", "table"), [resource], Facts.empty()).effects[0] == PERMIT


def test_an_explanation_names_forbids_and_errors() -> None:
    engine = engine_of(
        '@id("p") permit(principal, action, resource); @id("f") forbid(principal, action, resource) when { resource has name };'
        '@id("e") forbid(principal, action, resource) when { 9223372036854775807 + 1 > 0 };'
    )
    trace = engine.explain(group_of("read_data", "table"), parse_resource("table:lake/a/t"), Facts.empty())
    assert (trace.outcome, trace.why) == ("forbid", "only without `f` can anything permit")
    assert [(part.what, part.outcome) for part in trace.parts] == [("policy e", "error"), ("policy f", "forbid")]
    silent = engine.explain(group_of("move", "table"), parse_resource("table:lake/a/t"), Facts.empty())
    assert (silent.outcome, silent.why) == ("silent", "does not apply to move on table")


def test_a_wrong_argument_fails_its_own_check_alone() -> None:
    engine = engine_of("permit(principal, action, resource);")
    path = ("a", "t")
    rows = [Arguments(given=given) for given in ({"force": True}, {"force": 1}, {}, {"purge": "x"})]
    resources = [Resource("table", "lake", path, arguments=row) for row in rows]
    found = engine.decide(group_of("drop", "table"), resources, Facts.empty())
    assert list(found.effects) == [PERMIT, FAILED, PERMIT, FAILED]
    assert found.by[1] == "cedar:invalid_arguments"


def test_commits_with_different_properties_in_one_batch_keep_their_own() -> None:
    engine = engine_of(
        'permit(principal, action, resource) when { context has table_properties_updates && context.table_properties_updates.hasTag("x") };'
    )
    given: list[dict[str, object]] = [
        {"properties": {"x": "1"}},
        {"properties": {"y": "1"}},
        {"properties": {}},
        {"properties": {"x": "2"}},
    ]
    resources = [
        Resource("table", "lake", ("a", f"t{at}"), arguments=Arguments(given=each)) for at, each in enumerate(given)
    ]
    found = engine.decide(group_of("commit", "table"), resources, Facts.empty())
    assert [effect == PERMIT for effect in found.effects] == [True, False, False, True]


def test_many_containers_of_one_principal_do_not_grow_the_memory_for_ever() -> None:
    engine = engine_of("forbid(principal, action, resource);")
    facts = Facts.empty()
    for start in range(0, 9000, 3000):
        resources = [Resource("table", "lake", (f"n{start + at}", "t")) for at in range(3000)]
        found = engine.decide(group_of("read_data", "table"), resources, facts)
        assert set(found.effects) == {FORBID}
    for number in range(200):
        user = f"user:oidc~u{number}"
        engine.decide(group_of("read_data", "table", user), [parse_resource("table:lake/a/t")], facts)
    assert engine._shown
    assert [shown.size for shown in engine._shown[1].values()] == [1] * 64


NO_FACTS = Facts.empty()


class CountingEngine(CedarEngine):
    """Engine that counts the entities and characters that Cedar parses."""

    parsed: tuple[int, int] = (0, 0)

    def _ask(self, each: RequestBatch, policies: Any) -> Sequence[Any]:
        entities, characters = self.parsed
        self.parsed = entities + len(json.loads(each.entities)), characters + len(each.entities)
        return super()._ask(each, policies)


def parsed_for(
    text: str, group: EngineQuestion, resources: Sequence[Resource], facts: Facts = NO_FACTS
) -> tuple[int, int]:
    """Return how many entities and characters Cedar parses for one question."""
    engine = CountingEngine(engine_of(text).model)
    assert FAILED not in engine.decide(group, resources, facts).effects
    return engine.parsed


IN_SALES = 'permit(principal in Lakekeeper::Role::"r1", action, resource in Lakekeeper::Namespace::"lake/sales");'


@pytest.mark.parametrize("type", ["table", "namespace"])
def test_the_entities_of_a_deep_name_are_as_few_as_those_of_a_short_one(type: str) -> None:
    """Each namespace above has an id as long as the name, so a chain of entities would be the square of the name."""
    action = {"table": "read_data", "namespace": "list_tables"}[type]

    def parsed(parts: int) -> tuple[int, int]:
        names = [Resource(type, "lake", (f"b{at}", *("a",) * parts, "t")) for at in range(20)]
        return parsed_for(IN_SALES, group_of(action, type), names)

    few, many = parsed(2), parsed(250)
    assert few[0] == many[0] < 2 * 20 + 10
    assert many[1] < few[1] + 20 * 250 * 30


def test_only_namespaces_that_policies_name_are_above_a_deep_name() -> None:
    names = [f"lake/s{'/a' * depth}" for depth in (0, 100, 240)]
    policies = "".join(f'permit(principal, action, resource in Lakekeeper::Namespace::"{name}");' for name in names)
    below = Resource("table", "lake", ("s", *("a",) * 250, "t"))
    assert parsed_for(policies, group_of("read_data", "table"), [below])[0] < 20
    for name in names:
        engine = engine_of(f'permit(principal, action, resource in Lakekeeper::Namespace::"{name}");')
        assert engine.decide(group_of("read_data", "table"), [below], Facts.empty()).effects[0] == PERMIT
        other = Resource("table", "lake", ("x", *("a",) * 250, "t"))
        assert engine.decide(group_of("read_data", "table"), [other], Facts.empty()).effects[0] != PERMIT


def chain(length: int) -> Facts:
    """Return facts in which a user is in the first of many roles, each of which is in the next one."""
    members = ["user:oidc~a", *(f"role:r{at}" for at in range(length - 1))]
    roles = [f"role:r{at}" for at in range(length)]
    grants = [
        {"principal": member, "privilege": "assignee", "object": role}
        for member, role in zip(members, roles, strict=True)
    ]
    return parse_world({"grants": grants})


READING_ROLES = (
    'permit(principal is Lakekeeper::User, action, resource) when { principal.roles.contains(Lakekeeper::Role::"r1") };'
)
ONE_TABLE = [Resource("table", "lake", ("sales", "t"))]


def test_roles_that_no_policy_can_tell_apart_cost_nothing() -> None:
    for group, resources in (
        (group_of("read_data", "table"), ONE_TABLE),
        (group_of("assume", "role", "user:oidc~b"), [Resource("role", name=f"r{at}") for at in range(40)]),
    ):
        few, many = (parsed_for(IN_SALES, group, resources, chain(length)) for length in (50, 1_500))
        assert few == many


@pytest.mark.parametrize(("policy", "type"), [(READING_ROLES, "table"), (IN_SALES, "role")])
def test_entities_of_nested_roles_grow_with_the_number_of_roles(policy: str, type: str) -> None:
    group, resources = group_of("read_data", "table"), ONE_TABLE
    if type == "role":
        group, resources = group_of("assume", "role"), [Resource("role", name="r9")]
    few, many = (parsed_for(policy, group, resources, chain(length)) for length in (100, 1_600))
    assert few[0] == many[0]
    assert many[1] < 20 * few[1]


def test_more_roles_than_cedar_can_hold_are_refused() -> None:
    engine, group = engine_of(READING_ROLES), group_of("read_data", "table")
    assert engine.decide(group, ONE_TABLE, chain(MOST_ROLES)).effects[0] == PERMIT
    found = engine.decide(group, ONE_TABLE, chain(MOST_ROLES + 1))
    assert (found.effects[0], found.by[0]) == (FAILED, "cedar:too_many_roles")
    trace = engine.explain(group, ONE_TABLE[0], chain(MOST_ROLES + 1))
    assert (trace.outcome, str(MOST_ROLES) in trace.why) == ("failed", True)
    others = engine.decide(group_of("read_data", "table", "user:oidc~b"), ONE_TABLE, chain(MOST_ROLES + 1))
    assert others.effects[0] != FAILED
    unread = engine_of(IN_SALES).decide(group, ONE_TABLE, chain(MOST_ROLES + 1))
    assert unread.effects[0] == PERMIT


@pytest.mark.process
def test_cedarpy_is_loaded_for_an_authority_of_cedar_alone() -> None:
    code = (
        "import sys; import pdp.app; from pdp.app.facts import build_pdp; from pdp.config.load import make_settings;"
        "from pathlib import Path; from pdp.facts.snapshot import Facts; from pdp.engines.cel.rules import inline_rules;"
        "rules = inline_rules({'a': 'true'}); build_pdp(make_settings({'policies': {'rules': ()}}, Path()), Facts.empty(), (rules, inline_rules({})));"
        "assert 'cedarpy' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


CONDITIONS = [
    'decimal(context.text).lessThan(decimal("1.0"))', "ip(context.text).isIpv4()", "context.long + 9223372036854775807 > 1",
    'datetime(context.text) > datetime("2020-01-01")', 'duration(context.text) > duration("1h")', "context.text > 1",
    "context.long * 9223372036854775807 > 1", "-9223372036854775807 - context.long > 1", "-(context.least) > 1",
    'resource.getTag(context.text) == "a"', "principal in context.text", "context.nope == 1", "principal.nope == 1",
    'ip("1.2.3.4").isInRange(ip(context.text))', 'Absent::"x".b == 1', "if context.text then true else false", "context.texts.containsAll(context.long)",
    'decimal(context.number) == decimal("1.0")', 'context["long name"] == 1', "context.least.x == 1",
]  # fmt: skip
CONTEXT = {"text": "hunter2", "long": 8675309867530, "least": -(2**63), "texts": ["hunter2"], "number": "8675309.86753"}


def test_no_error_of_cedar_shows_a_value() -> None:
    """Conditions that a schema would refuse are among them: an entity file need not be all that Cedar reads."""
    request = {"principal": 'User::"u"', "action": 'Action::"a"', "resource": 'T::"t"', "context": CONTEXT}
    entities = [
        {"uid": {"type": type, "id": id}, "attrs": {}, "parents": [], "tags": {}}
        for type, id in (("User", "u"), ("T", "t"))
    ]
    policies = [CedarPolicy(f"p{at}", "permit", "", Place("a.cedar")) for at in range(len(CONDITIONS))]
    texts = [f"permit(principal, action, resource) when {{ {condition} }};" for condition in CONDITIONS]
    judgement = judgement_of(load_cedarpy().is_authorized(request, "\n".join(texts), entities), policies)
    assert len(judgement.raised) == len(CONDITIONS)
    assert not re.search("hunter|86753|922337", str(judgement.raised))
    assert "the condition raised" not in {*judgement.raised.values()} - {judgement.raised["p18"]}
