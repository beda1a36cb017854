"""Explanations agree with evaluation, and the nearest miss is the nearest."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from support.generators.cel_failures import EXTENSIONS, SECRETS, SHOWN, failing_rules
from support.generators.cel_rule_sets import groups, rule, rule_sets
from support.paths import RECORDED as RECORDED_FOLDER

from pdp.cel.parser import parse
from pdp.cel.unparse import unparse, unparse_value
from pdp.cel.values import RuleError, Timestamp
from pdp.engines.cel import explain as explain_module
from pdp.engines.cel.engine import CelEngine, CelForbid
from pdp.engines.cel.explain import MAX_FALSE_RULES, explain_rule, explain_rules
from pdp.engines.cel.program import RULE_VARIABLES, compile_program
from pdp.engines.cel.residue import _as_value
from pdp.engines.cel.rules import inline_rules
from pdp.engines.engine import EngineQuestion
from pdp.errors import RuleCompileError
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal, Question, Resource
from pdp.model.redaction import DEFAULT_MASKER

RECORDED = RECORDED_FOLDER / "nessie"
VALUES: dict[str, Any] = dict(
    zip(
        RULE_VARIABLES,
        (
            "READ_ENTITY_VALUE",
            "Bob",
            ("r",),
            "prod",
            "Foo",
            "",
            "",
            {"apiName": "Nessie", "apiVersion": 2},
            (),
            False,
            "lake",
            "read_data",
            (),
            {},
            {},
            Timestamp(0),
            {},
        ),
        strict=True,
    )
)


def test_no_error_of_a_rule_quotes_a_value_of_the_request() -> None:
    values = VALUES | {"attributes": {"password": _as_value(SECRETS)}}
    failed = 0
    for text in failing_rules():
        try:
            rules = inline_rules({"r": text}, EXTENSIONS).rules
        except RuleCompileError:
            continue
        explained, miss = explain_rules(rules, values)
        shown = miss + json.dumps(msgspec.to_builtins(explained))
        assert not SHOWN.search(shown), (text, shown)
        failed += explained[0].outcome == "error"
    assert failed > 500


def only(text: str) -> Any:
    return inline_rules({"r": text}).rules[0]


@given(rule)
def test_text_reads_back_to_the_same_rule(text: str) -> None:
    written = unparse(parse(text))
    assert unparse(parse(written)) == written
    outcomes: list[Any] = []
    for program in (compile_program(text), compile_program(written)):
        try:
            outcomes.append(program.evaluate(*VALUES.values()))
        except RuleError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_recorded_rules_and_expressions_read_back() -> None:
    rules = {
        text
        for line in (RECORDED / "golden.jsonl").read_text().splitlines()
        if "wantError" not in (case := json.loads(line))
        for text in case["rules"].values()
    }
    expressions = {
        case["expr"]
        for case in json.loads((RECORDED / "cel_conformance.json").read_text())
        if case.get("core") and "value" in case
    }
    assert len(rules) > 100
    for text in rules | expressions:
        written = unparse(parse(text))
        assert unparse(parse(written)) == written, text


@given(rule)
def test_a_rule_is_explained_as_it_evaluates(text: str) -> None:
    explained = explain_rule(only(text), VALUES)
    try:
        expected = "true" if compile_program(text).evaluate(*VALUES.values()) else "false"
    except RuleError:
        expected = "error"
    assert explained.trace.outcome == expected
    assert (explained.unmet == ()) == (expected == "true")


@given(rule_sets, groups())
def test_engines_explain_what_they_decide(rules: dict[str, str], asked: Any) -> None:
    group, resources = asked
    for kind, outcomes in ((CelEngine, ("silent", "permit")), (CelForbid, ("silent", "silent", "forbid"))):
        engine: Any = kind(inline_rules(rules), "oidc")
        effect = engine.decide(group, resources[:1], Facts.empty()).effects[0]
        assert engine.explain(group, resources[0], Facts.empty()).outcome == outcomes[effect]


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (
            {"a": "op=='READ_ENTITY_VALUE' && path=='Foo' && role=='Alice'", "b": "op=='X' && role=='Alice'"},
            "rule a lacks `role == 'Alice'` (role is 'Bob')",
        ),
        (
            {"a": "op=='X' && role=='Bob'", "b": "op=='READ_ENTITY_VALUE' && role=='Eve'"},
            "rule b lacks `role == 'Eve'`",
        ),
        ({"a": "false"}, "rule a lacks `false`"),
        ({"a": "roles[3]=='x'"}, "rule a lacks `roles[3] == 'x'`"),
        ({}, "there are no rules"),
    ],
)
def test_the_nearest_miss(rules: dict[str, str], says: str) -> None:
    assert says in explain_rules(inline_rules(rules).rules, VALUES)[1]


def test_a_true_rule_leaves_no_miss() -> None:
    assert explain_rules(inline_rules({"a": "true", "b": "false"}).rules, VALUES)[1] == ""


def test_of_many_rules_the_telling_ones_are_shown() -> None:
    rules = {f"r{number:04}": f"op=='X' && role=='u{number}' && ref=='x'" for number in range(500)} | {
        "z": "roles[5]=='a'",
        "near": "role=='Eve'",
    }
    traces, miss = explain_rules(inline_rules(rules).rules, VALUES)
    shown = [trace.what for trace in traces]
    assert len(shown) == MAX_FALSE_RULES + 2
    assert {"rule z", "rule near"} <= set(shown)
    assert shown[-1] == "451 more rules"
    assert miss.startswith("nearest miss: rule near lacks")


def test_without_a_reference_a_rule_is_explained_as_it_decides() -> None:
    """A false operand absorbs the missing reference, in the explanation as in the decision."""
    engine = CelForbid(
        inline_rules({"drop": "op=='DELETE_ENTITY' && ref=='main'", "any": "ref=='x' && role=='Eve'"}), "oidc"
    )
    group = EngineQuestion(Question(Principal("user", "oidc~Bob"), "read_data"), "table", "lake", None)
    resource = Resource("table", "lake", ("a", "b"))
    assert engine.decide(group, [resource], Facts.empty()).effects == b"\0"
    assert engine.explain(group, resource, Facts.empty()).outcome == "silent"


@pytest.mark.parametrize(
    ("rules", "outcome", "why"),
    [
        ({"a": "op=='DELETE_ENTITY'"}, "silent", ""),
        ({"a": "role=='oidc~Bob' || ref=='main'"}, "forbid", ""),
        ({"a": "roles[5]=='a'"}, "forbid", "no rule is true, and a forbid that raises denies"),
        ({"a": "roles[5]=='a'", "b": "true"}, "forbid", ""),
        ({}, "silent", ""),
    ],
)
def test_a_check_against_forbids_says_what_the_forbids_do(rules: dict[str, str], outcome: str, why: str) -> None:
    """A raising forbid denies, so no nearest miss stands beside it, and a true one does not permit."""
    group = EngineQuestion(Question(Principal("user", "oidc~Bob"), "read_data"), "table", "lake", "main")
    trace = CelForbid(inline_rules(rules), "oidc").explain(group, Resource("table", "lake", ("a", "b")), Facts.empty())
    assert [(check.outcome, check.why) for check in trace.parts] == [(outcome, why)] * len(trace.parts)
    assert trace.outcome == outcome
    assert trace.parts


@pytest.mark.parametrize(
    "value",
    [("r",) * 300, ["a'b", "c"] * 150, {"k": ("x",) * 300}, {f"k{at}": at for at in range(300)}, ("r", ("s",) * 300), (), {}, "t" * 300],
)  # fmt: skip
def test_a_long_value_is_shown_up_to_the_longest_text(value: object) -> None:
    text = unparse_value(value)
    assert explain_module._value_text(value, DEFAULT_MASKER) == (text if len(text) <= 200 else f"{text[:200]}...")


class Unwritten:
    """Role that nobody may write as text."""

    def __str__(self) -> str:
        raise AssertionError("it wrote what no explanation shows")


def test_only_the_shown_part_of_many_roles_is_written() -> None:
    """A million roles take no longer than a few hundred."""
    roles = (*("r",) * 300, Unwritten())
    assert explain_module._value_text(roles, DEFAULT_MASKER).startswith("['r', 'r'")
    with pytest.raises(AssertionError):
        explain_module._value_text(roles[-2:], DEFAULT_MASKER)
