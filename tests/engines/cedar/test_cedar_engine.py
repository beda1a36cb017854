"""The engine beyond single verdicts: explanation, isolation of neighbours, bounds, and when cedarpy is loaded."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from support.paths import ROOT

from pdp.engines.cedar.actions import CEDAR_ACTIONS, CONTEXTS
from pdp.engines.cedar.engine import CedarEngine
from pdp.engines.cedar.explain import judgement_of
from pdp.engines.cedar.model import load_model
from pdp.engines.cedar.policies import CedarPolicy
from pdp.engines.cedar.schema import CedarSources, SourceText, load_cedarpy, load_schema, own_text
from pdp.engines.engine import FAILED, FORBID, PERMIT, EngineQuestion
from pdp.errors import Place
from pdp.facts.snapshot import Facts
from pdp.model.question import Arguments, Question, Resource
from pdp.model.references import parse_principal, parse_resource
from pdp.model.vocabulary import CATALOG_ACTIONS


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
