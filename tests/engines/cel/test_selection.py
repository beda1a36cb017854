"""Engines and the reference evaluator agree on generated rule sets and checks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdp.engines.cel.engine import CelEngine, CelForbid
from pdp.engines.cel.program import compile_program
from pdp.engines.cel.rules import inline_rules
from pdp.engines.engine import ABSTAIN, FORBID, PERMIT, Group
from pdp.facts.snapshot import Facts
from pdp.model.checks import Arguments, Env, Principal, Resource, Siblings
from pdp.model.vocabulary import CEL_CHECKS

OPS = sorted({check.op for checks in CEL_CHECKS.values() for check in checks})
TEXTS = ["a", "ab", "n", "n.t", "n.", "", "main", "dev", "NAMESPACE"]
quoted = st.sampled_from(TEXTS).map("'{}'".format)
atoms = st.one_of(
    st.builds("op=='{}'".format, st.sampled_from(OPS)),
    st.builds(
        "op in [{}]".format,
        st.lists(st.sampled_from(OPS), max_size=4).map(lambda ops: ", ".join(f"'{op}'" for op in ops)),
    ),
    st.builds("{}=={}".format, st.sampled_from(["role", "ref", "path", "contentType", "warehouse", "type"]), quoted),
    st.builds("{}=={}".format, quoted, st.sampled_from(["role", "ref", "path"])),
    st.builds("{} in [{},{}]".format, st.sampled_from(["role", "ref", "path"]), quoted, quoted),
    st.builds(
        "{}.{}({})".format,
        st.sampled_from(["role", "ref", "path"]),
        st.sampled_from(["startsWith", "endsWith", "contains"]),
        quoted,
    ),
    st.builds(
        "{}.matches({})".format,
        st.sampled_from(["ref", "path"]),
        st.sampled_from(["'^n'", "'^n[.]t$'", "'n.*'", "'^(a|ab)$'", "'['", "'(?i)N'"]),
    ),
    st.builds("{} in {}".format, quoted, st.sampled_from(["roles", "actions"])),
    st.sampled_from(
        [
            "true",
            "false",
            "delegated",
            "roles[1]=='a'",
            "api.apiName=='a'",
            "api.nope==1",
            "roles.exists(r, path.startsWith(r))",
            "path==role+'.t'",
            "size(path) > 2",
        ]
    ),
)
rule = st.recursive(
    atoms,
    lambda inner: (
        st.builds("({})".format, st.lists(inner, min_size=2, max_size=3).map(" && ".join))
        | st.builds("({})".format, st.lists(inner, min_size=2, max_size=3).map(" || ".join))
        | st.builds("!{}".format, inner.map("({})".format))
        | st.builds("({} ? {} : {})".format, inner, inner, inner)
    ),
    max_leaves=6,
)
rule_sets = st.dictionaries(st.sampled_from([f"r{number}" for number in range(12)] + ["A", "_"]), rule, max_size=10)
paths = st.lists(st.sampled_from(["a", "ab", "n", "t", "n.t", ""]).filter(bool), min_size=1, max_size=3).map(tuple)


@st.composite
def groups(draw: Any) -> tuple[Group, list[Resource]]:
    type, action = draw(st.sampled_from(sorted(CEL_CHECKS)))
    kind, name = draw(st.sampled_from([("user", "oidc~a"), ("user", "idp~a"), ("role", "a"), ("anonymous", "")]))
    principal = Principal(
        kind,
        name,
        draw(st.lists(quoted.map(lambda text: text[1:-1]), max_size=2).map(tuple)),
    )
    env = Env(draw(st.sampled_from(["", "a"])), 1, draw(st.sampled_from([(), ("a",), ("n", "ab")])))
    group = Group(
        principal,
        action,
        type,
        draw(st.sampled_from(["a", "w"])),
        draw(st.sampled_from(["main", "dev", "a", None])),
        draw(st.booleans()),
        env,
    )
    return group, draw(
        st.lists(
            st.builds(_resource, st.just(type), paths, st.sampled_from(["", "", "NAMESPACE"]), st.booleans()),
            min_size=1,
            max_size=5,
        )
    )


def _resource(type: str, path: tuple[str, ...], content_type: str, argued: bool) -> Resource:
    arguments = Arguments("t", Resource(type, "w", ("n", "t"))) if argued else Arguments()
    return Resource(type, "w", path, content_type=content_type, arguments=arguments)


def expected(engine: Any, group: Group, resource: Resource) -> tuple[int, str | None, tuple[str, ...]]:
    outcomes = engine.reference_evaluator(group).outcomes(resource)
    true = [outcome.rule for outcome in outcomes if outcome.rule is not None]
    raised = tuple(sorted({rule for outcome in outcomes for rule in outcome.raised}))
    if isinstance(engine, CelForbid):
        return (FORBID, f"cel:{min(true or raised)}", raised) if true or raised else (ABSTAIN, None, ())
    if engine.group_checks(group).lacks_ref:
        return (ABSTAIN, None, ("missing_reference",))
    return (PERMIT, f"cel:{true[-1]}", ()) if len(true) == len(outcomes) else (ABSTAIN, None, raised)


@settings(max_examples=1500)
@given(rule_sets, st.lists(groups(), min_size=1, max_size=4), st.sampled_from([CelEngine, CelForbid]), st.booleans())
def test_engines_agree_with_the_reference_evaluator(
    rules: dict[str, str], asked: list[tuple[Group, list[Resource]]], kind: Any, dotted: bool
) -> None:
    engine = kind(inline_rules(rules), "oidc")
    for group, resources in asked:
        verdicts = engine.decide(group, resources, Facts.empty())
        found = [(verdicts.effects[at], verdicts.by[at], verdicts.errors.get(at, ())) for at in range(len(resources))]
        assert found == [expected(engine, group, resource) for resource in resources], group
        names = ["t", "", "a", "ab", "x.y", "t"] if dotted else ["t", "n", "a", "ab", "t"]
        column = Siblings(Resource(group.type, group.warehouse, resources[0].path), names)
        verdicts = engine.decide(group, column, Facts.empty())
        found = [(verdicts.effects[at], verdicts.by[at], verdicts.errors.get(at, ())) for at in range(len(names))]
        assert found == [expected(engine, group, resource) for resource in column], group


@pytest.mark.parametrize(
    ("text", "sufficient", "conditions"),
    [
        ("op=='X' && role in ['a','b']", True, [("op", "equals", {"X"}), ("role", "equals", {"a", "b"})]),
        ("path.startsWith('a') || path.startsWith('b')", True, [("path", "starts", {"a", "b"})]),
        ("ref=='a' || ref in ['b']", True, [("ref", "equals", {"a", "b"})]),
        ("'a' in roles || 'b' in roles", True, [("roles", "holds", {"a", "b"})]),
        ("(op=='X' && role=='a') || (op=='Y' && path=='p')", False, [("op", "equals", {"X", "Y"})]),
        ("path.matches('^n[.]')", True, [("path", "starts", {"n."})]),
        ("path.matches('n')", False, []),
        ("!(op=='X')", False, []),
        ("op=='X' && !delegated", False, [("op", "equals", {"X"})]),
        ("true", True, []),
        ("op != 'X'", False, []),
        ("role==ref", False, []),
    ],
)
def test_requirements_of_a_rule(text: str, sufficient: bool, conditions: list[tuple[str, str, set[str]]]) -> None:
    requirements = compile_program(text).requirements
    assert requirements.sufficient is sufficient
    assert [(found.variable, found.kind, set(found.texts)) for found in requirements.conditions] == conditions


def test_remembered_residues_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdp.engines.cel.selection.MAX_RESIDUE_SETS", 10)
    engine = CelEngine(inline_rules({"r": "role.startsWith('u') && path=='a'"}), "oidc")
    for number in range(100):
        group = Group(Principal("user", f"oidc~u{number}"), "READ_ENTITY_VALUE", "content", "w", "main", False, Env())
        assert engine.decide(group, [Resource("content", "w", ("a",))], Facts.empty()).effects == b"\1"
    assert len(engine._selector._residue_sets) == 10
