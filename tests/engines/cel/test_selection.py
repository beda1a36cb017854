"""Engines and the reference evaluator agree on generated rule sets and checks."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.generators.cel_rule_sets import KINDS, groups, rule_sets

from pdp.engines.cel.engine import CelEngine, CelForbid
from pdp.engines.cel.program import compile_program
from pdp.engines.cel.rules import inline_rules
from pdp.engines.engine import ABSTAIN, FORBID, PERMIT, EngineQuestion
from pdp.facts.snapshot import Facts
from pdp.model.arrays import PathArray
from pdp.model.question import Principal, Question, Resource


def expected(engine: Any, group: EngineQuestion, resource: Resource) -> tuple[int, str | None, tuple[str, ...]]:
    outcomes = engine.reference_evaluator(group).outcomes(resource)
    true = [outcome.rule for outcome in outcomes if outcome.rule is not None]
    rules = tuple(sorted({rule for outcome in outcomes for rule in outcome.raised}))
    checks = engine.group_checks(group)
    lacking = {"path": checks.has_missing_argument(resource), "ref": checks.lacks_ref}
    errors = {"path": "missing_argument", "ref": "missing_reference"}
    read = {name for rule in engine.rules if rule.id in rules for name in rule.program.variables}
    raised = tuple(sorted({*rules, *(errors[name] for name in lacking if lacking[name] and name in read)}))
    if isinstance(engine, CelForbid):
        return (FORBID, f"cel:{min(true or rules)}", raised) if true or rules else (ABSTAIN, None, ())
    return (PERMIT, f"cel:{true[-1]}", ()) if len(true) == len(outcomes) else (ABSTAIN, None, raised)


def column_of(resources: list[Resource], names: list[str]) -> PathArray:
    """Return the names in the containers of the resources, in turns; in a single one if the first has no path."""
    paths = [resource.path for resource in resources] if resources[0].path else [()]
    parents = list(dict.fromkeys(path[:end] for path in paths for end in range(len(path), -1, -1)))[: len(names)]
    return PathArray(resources[0], parents, [row % len(parents) for row in range(len(names))], names)


@pytest.mark.long
@settings(max_examples=1500)
@given(rule_sets, st.lists(groups(), min_size=1, max_size=4), st.sampled_from(KINDS), st.booleans())
def test_engines_agree_with_the_reference_evaluator(
    rules: dict[str, str], asked: list[tuple[EngineQuestion, list[Resource]]], kind: Any, dotted: bool
) -> None:
    engine = kind(inline_rules(rules), "oidc")
    for group, resources in asked:
        verdicts = engine.decide(group, resources, Facts.empty())
        found = [(verdicts.effects[at], verdicts.by[at], verdicts.errors.get(at, ())) for at in range(len(resources))]
        assert found == [expected(engine, group, resource) for resource in resources], group
        for resource in resources:
            verdicts = engine.decide(group, [resource], Facts.empty())
            alone = (verdicts.effects[0], verdicts.by[0], verdicts.errors.get(0, ()))
            assert alone == expected(engine, group, resource), group
        names = ["t", "", "a", "ab", "x.y", "t"] if dotted else ["t", "n", "a", "ab", "t"]
        column = column_of(resources, names)
        verdicts = engine.decide(group, column, Facts.empty())
        found = [(verdicts.effects[at], verdicts.by[at], verdicts.errors.get(at, ())) for at in range(len(names))]
        assert found == [expected(engine, group, resource) for resource in column], group


def test_names_that_rules_see_rewritten_are_the_same_in_a_column() -> None:
    engine = CelEngine(inline_rules({"a": "path=='a.b\u001d'"}), "oidc")
    group = EngineQuestion(Question(Principal("user", "oidc~a"), "read_data"), "table", "w", "main")
    for name in ("b\0", "b."):
        column = PathArray.in_one(Resource("table", "w", ref="main"), ("a",), [name, "c"])
        assert engine.decide(group, column, Facts.empty()) == engine.decide(group, list(column), Facts.empty())


@pytest.mark.parametrize(
    ("text", "sufficient", "conditions"),
    [
        ("op=='X' && role in ['a','b']", True, [("op", "equals", {"X"}), ("role", "equals", {"a", "b"})]),
        ("path.startsWith('a') || path.startsWith('b')", True, [("path", "starts", {"a", "b"})]),
        ("ref=='a' || ref in ['b']", True, [("ref", "equals", {"a", "b"})]),
        ("'a' in roles || 'b' in roles", True, [("roles", "holds", {"a", "b"})]),
        ("(op=='X' && role=='a') || (op=='Y' && path=='p')", False, [("op", "equals", {"X", "Y"})]),
        ("path.matches('^n[.]')", True, [("path", "starts", {"n."})]),
        ("path.matches('n')", True, [("path", "contains", {"n"})]),
        ("path.contains('a') || path.contains('b')", True, [("path", "contains", {"a", "b"})]),
        ("path.endsWith('a') || path.matches('b$')", True, [("path", "ends", {"a", "b"})]),
        ("path.matches('n.m+o')", False, [("path", "contains", {"mo"})]),
        ("path.matches('(n|m)x.*y')", False, []),
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
        group = EngineQuestion(
            Question(Principal("user", f"oidc~u{number}"), "READ_ENTITY_VALUE"), "content", "w", "main"
        )
        assert engine.decide(group, [Resource("content", "w", ("a",))], Facts.empty()).effects == b"\1"
    assert len(engine._selector._residue_sets) == 10


def test_long_kinds_of_content_are_not_remembered() -> None:
    engine = CelEngine(inline_rules({"a": "contentType=='x' && op=='READ_ENTITY_VALUE'"}), "oidc")
    group = EngineQuestion(Question(Principal("user", "oidc~a"), "READ_ENTITY_VALUE"), "content", "w", "main")
    for kind in ("x", "y" * 100_000, "z" * 100_000):
        engine.decide(group, (Resource("content", "w", ("a",), content_type=kind),), Facts.empty())
    kept = [part for _, kind in engine.group_checks(group)._residues for part in kind]
    assert kept
    assert sum(map(len, kept)) < 100


def test_a_rule_about_time_needs_the_time_of_the_decision() -> None:
    """A check without a time would be decided as in 1970, and a rule with an end would permit."""
    engine = CelEngine(inline_rules({"r": "now < timestamp('2026-01-01T00:00:00Z')"}), "oidc")
    group = EngineQuestion(Question(Principal("user", "oidc~a"), "read_data"), "table", "w", "main")
    with pytest.raises(ValueError, match="time of the decision"):
        engine.decide(group, [Resource("table", "w", ("n", "t"))], Facts.empty())


def traced(count: int) -> tuple[int, int]:
    """Return the bytes of an engine with rules of one op, and those that the first check of the op adds."""
    texts = (
        f"role=='r{at % 97}' && op in ['UPDATE_ENTITY'] && path.startsWith('n{at % 193}.{at}')" for at in range(count)
    )
    rules = {f"r{at:04}": text for at, text in enumerate(texts)}
    group = EngineQuestion(Question(Principal("user", "oidc~r1"), "write_data"), "table", "w", "main")
    gc.collect()
    tracemalloc.start()
    engine = CelEngine(inline_rules(rules), "oidc")
    loaded, _ = tracemalloc.get_traced_memory()
    engine.decide(group, [Resource("table", "w", ("n1", "t"))], Facts.empty())
    asked, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return loaded, asked - loaded


def test_a_rule_takes_little_memory_at_the_load_and_under_load() -> None:
    few, many = traced(20), traced(2_020)
    loaded, asked = ((most - least) / 2_000 for least, most in zip(few, many, strict=True))
    assert loaded < 1_050
    assert 50 < asked < 150
