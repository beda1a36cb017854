"""Lint reports every code where it belongs and nowhere else. Enumeration contradicts no claim about reach."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from support.generators.cel_values import RECORDED, arguments
from support.paths import ROOT
from support.service.commands import run_pdp

from pdp.cel.values import RuleError
from pdp.cli.lint import lint as command
from pdp.config.names import KnownNames, NameCheck
from pdp.engines.cel.lint.check_bindings import LintRule, analyze_rule
from pdp.engines.cel.lint.linter import Finding, LintOptions, lint_files, lint_rules
from pdp.engines.cel.lint.remarks import CODES
from pdp.engines.cel.lint.search import Reachable, RuleModel, SearchBudget, Shadowed, Unreachable, determine_reach
from pdp.engines.cel.program import RULE_VARIABLES, compile_program
from pdp.engines.cel.selection import ConditionIndex
from pdp.engines.cel.sources import inline_rule
from pdp.model.vocabulary import OPERATIONS

PREFIX = "nessie.server.authorization.rules."


def findings(rules: Mapping[str, str], *, forbid: bool = False, **options: Any) -> list[Finding]:
    names = NameCheck(forbid=forbid)
    return list(lint_rules([inline_rule(id, text) for id, text in rules.items()], LintOptions(names=names, **options)))


def codes(rules: Mapping[str, str], **options: Any) -> list[tuple[str, str, int, int]]:
    """Return the findings without the note on the implicit rule, which most small sets get."""
    found = sorted(findings(rules, **options), key=lambda one: (one.rule, one.line, one.column, one.code))
    return [(one.rule, one.code, one.line, one.column) for one in found if one.code != "implicit-rule-on"]


# --- one rule at a time ---------------------------------------------------------------------------------------------

TRIGGERED = [
    ("op == 'x' &&", "syntax", 13),
    ("(ref == 'x'", "syntax", 12),
    ("", "syntax", 1),
    ("ref.matches('a\\.b')", "syntax", 15),
    ("ref == 'x' && roel == 'y'", "unknown-variable", 15),
    ("ref.startWith('x')", "unknown-function", 5),
    ("siz(ref) == 1", "unknown-function", 1),
    ("ref.trim() == 'x'", "unknown-function", 5),
    ("role == roles", "type-mismatch", 1),
    ("ref && true", "type-mismatch", 1),
    ("ref.size", "type-mismatch", 1),
    ("ref", "not-boolean", 1),
    ("size(ref)", "not-boolean", 1),
    ("role == 'x' && ref.matches('(?=a)')", "bad-pattern", 28),
    ("matches(ref, '[')", "bad-pattern", 14),
    ("role == 'x' && now > timestamp('2024-01-01')", "always-raises", 22),
    ("role == 'x' || op == 'READ_ENTITY_VALEU'", "unknown-op", 22),
    ("op in ['CREATE_ENTITY', 'NOPE']", "unknown-op", 25),
    ("'NOPE' != op", "unknown-op", 1),
    ("op.startsWith('REED_')", "unknown-op", 15),
    ("op.matches('^REED')", "unknown-op", 12),
    ("op == 'VIEW_REFLOG'", "removed-op", 7),
    ("role == 'x' && contentType == 'ICEBERG_TABEL'", "unknown-content-type", 31),
    ("'CATALOG_CREATE' in actions", "unknown-action", 1),
    ("role == 'x' && action == 'reed_data'", "unknown-catalog-action", 26),
    ("role == 'x' && attributes.level > 2 && attributes.level < 9", "unsent-variable", 16),
    ("ref == 'DETATCHED'", "detached-typo", 8),
    ("ref.matches('')", "matches-everything", 13),
    ("ref.matches('.*')", "matches-everything", 13),
    ("ref.matches('^.*$')", "matches-everything", 13),
    ("ref.startsWith('')", "matches-everything", 16),
    ("ref.matches('.*x.*')", "redundant-wildcard", 13),
    ("ref.matches('^x.*')", "redundant-wildcard", 13),
    ("op == 'CREATE_REFERENCE' && path == 'x'", "empty-variable", 29),
    ("op in ['READ_ENTRIES', 'CREATE_ENTITY'] && path.matches('a+')", "empty-variable", 44),
    ("op == 'READ_ENTRIES' && contentType != ''", "empty-variable", 25),
    ("op == 'READ_ENTITY_VALUE' && type == 'GC'", "empty-variable", 30),
    ("op == 'READ_REPOSITORY_CONFIG' && path.contains('x')", "empty-variable", 35),
    ("op == 'READ_ENTRIES' && (path == 'x' || contentType == 'UDF')", "empty-variable", 26),
    ("op == 'READ_ENTRIES' && 'CATALOG_S3_SIGN' in actions", "actions-on-reference", 46),
    ("ref == 'a' && ref == 'b'", "unreachable", 1),
    ("ref in []", "unreachable", 1),
    ("ref.startsWith('ab') && !ref.startsWith('a')", "unreachable", 1),
    ("ref == 'ab' && ref.endsWith('c')", "unreachable", 1),
    ("path == 'a' ? role != role && false : path == 'a'", "unreachable", 1),
    ("'a' in roles && !('a' in roles)", "unreachable", 1),
    ("delegated && !delegated", "unreachable", 1),
    ("ref.matches('a+') && role == 'x' && !ref.matches('a+')", "unreachable", 1),
    ("false && ref == 'x'", "unreachable", 1),
    ("path == 'Sales.x' || path == 'sales.y'", "lookalike-names", 30),
    ("ref in ['caf\u00e9', 'cafe\u0301']", "lookalike-names", 17),
    ("path.endsWith('.a') || path.endsWith('.A')", "lookalike-names", 38),
]


@pytest.mark.parametrize(("text", "code", "column"), TRIGGERED)
def test_triggered(text: str, code: str, column: int) -> None:
    assert codes({"r": text}) == [("r", code, 1, column)]


@pytest.mark.parametrize(
    "text",
    [
        "op.startsWith('READ_') && path == 'x'",
        "op.matches('^(READ|CREATE)_')",
        "op.contains('ENTITY') && path != ''",
        "op < 'N'",
        "op == role",
        "op == 'CREATE_REFERENCE' && path == ''",
        "op == 'CREATE_REFERENCE' || path == 'x'",
        "op != 'CREATE_REFERENCE' && path == 'x'",
        "op in ['READ_ENTRIES', 'CREATE_ENTITY'] && !path.startsWith('sys.')",
        "op == 'READ_REPOSITORY_CONFIG' && type == 'GARBAGE_COLLECTOR'",
        "op == 'CREATE_ENTITY' && 'CATALOG_CREATE_ENTITY' in actions",
        "contentType in ['', 'ICEBERG_TABLE', 'DELTA_LAKE_TABLE', 'UDF', 'NAMESPACE', 'ICEBERG_VIEW']",
        "contentType.startsWith('ICEBERG_')",
        "ref == 'DETACHED'",
        "ref.matches('x')",
        "ref.matches('^x$')",
        "ref.matches('^.*x$')",
        "ref.matches('a[.]*')",
        "ref.matches('a\\\\.*')",
        "ref.matches('a|.*')",
        "ref == 'a' || ref == 'b'",
        "roles[0] == 'a' && roles[1] == 'a'",
        "ref.contains('a') && !ref.contains('b')",
        "size(ref) > 3 && size(ref) < 2",
        "path == 'a.b' || path == 'a.c'",
        "path == 'a' || ref == 'A'",
        "api.apiName == 'Nessie' && delegated && warehouse == 'lake'",
        "roles.exists(ref, ref == 'DETATCHED')",
        "api.apiVersion",
    ],
)
def test_not_triggered(text: str) -> None:
    assert codes({"r": text}) == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("OP == 'x'", "did you mean `op`?"),
        ("contenttype == 'x'", "did you mean `contentType`?"),
        ("xyzzy == 'x'", ""),
        ("ref.startWith('x')", "did you mean `startsWith`?"),
        ("ref.trim() == 'x'", "it is of the extension `strings`, which `policies.cel_extensions` enables"),
        ("op == 'read_entity_values'", "did you mean `READ_ENTITY_VALUE`?"),
        ("'CATALOG_RENAME_ENTITY' in actions", "did you mean `CATALOG_RENAME_ENTITY_TO`?"),
        ("ref == 'DETATCHED'", "write `DETACHED`"),
        ("ref.matches('a(?!b)')", "RE2 has no lookaround"),
        ("ref.matches('(a)\\\\1')", "RE2 has no backreference"),
        ("ref.matches('a++')", "RE2 has no possessive quantifier"),
        ("ref.matches('(?>a)')", "RE2 has no atomic group"),
        ("ref.matches('[')", ""),
        ("ref.matches('.*x.*')", "`.contains('x')` says the same"),
        ("ref.matches('.*x$')", "`.endsWith('x')` says the same"),
        ("ref.matches('.*[a-z]+')", ""),
        ("path=='Foo` && role=='Bob'", "a backtick neither begins nor ends a text"),
    ],
)
def test_hints(text: str, hint: str) -> None:
    (found,) = (one for one in findings({"r": text}) if one.code not in ("implicit-rule-on", "matches-everything"))
    assert found.hint == hint


def test_messages_name_what_they_are_about() -> None:
    (found,) = findings({"r": "op in ['READ_ENTRIES', 'LIST_COMMIT_LOG'] && path == 'x'", "VIEW_REFERENCE": "false"})[
        :1
    ]
    assert "`path`" in found.message
    assert "LIST_COMMIT_LOG, READ_ENTRIES" in found.message
    (found,) = (one for one in findings({"r": "ref.matches('(?=a)')"}) if one.code == "bad-pattern")
    assert "(?=a)" in found.message


def test_every_line_of_a_rule_has_its_place() -> None:
    text = "ref == 'a' &&\n  (op == 'NOPE' ||\n   path.matches('['))"
    assert codes({"r": text}) == [("r", "unknown-op", 2, 10), ("r", "bad-pattern", 3, 17)]


def test_enabled_extensions_are_functions() -> None:
    assert codes({"r": "ref.trim() == 'x'"}, extensions=frozenset({"strings"})) == []


def test_nessies_action_names_are_all_there() -> None:
    assert len(OPERATIONS) == 8 + 22 + 19


# --- rules among others ---------------------------------------------------------------------------------------------

SETS: list[tuple[dict[str, str], list[tuple[str, str]]]] = [
    ({"a": "ref == 'x' && role == 'y'", "b": "'y' == role && ref == 'x'"}, [("b", "duplicate-rule")]),
    ({"a": "ref in ['x', 'y']", "b": "ref in ['y', 'x'] // the same"}, [("b", "duplicate-rule")]),
    ({"a": "ref.matches('a+')", "b": "ref.matches('a+')"}, [("b", "duplicate-rule")]),
    ({"a": "ref - 1 == 2 || true", "b": "ref == 'x'"}, [("a", "type-mismatch")]),
    ({"a": "ref == 'x'", "b": "ref in ['x', 'y']"}, []),
    ({"a": "ref in ['x', 'y']", "b": "ref == 'x'"}, [("b", "shadowed")]),
    ({"b": "ref in ['x', 'y']", "a": "ref == 'x'"}, []),
    ({"a": "ref == 'x'", "b": "ref == 'y'", "c": "ref in ['x', 'y']"}, [("c", "shadowed")]),
    ({"a": "ref == 'x'", "b": "ref != 'x'", "c": "role == 'z'"}, [("c", "shadowed")]),
    ({"a": "ref == 'x'", "b": "ref == 'y'", "c": "ref in ['x', 'y', 'z']"}, []),
    ({"a": "path.startsWith('s.')", "b": "path.startsWith('s.t.') && role == 'u'"}, [("b", "shadowed")]),
    ({"a": "path.matches('^s[.]')", "b": "path == 's.t'"}, [("b", "shadowed")]),
    ({"a": "path.contains('s')", "b": "path == 's'"}, []),
    ({"a": "path.matches('s+')", "b": "path.matches('s+') && role == 'u'"}, [("b", "shadowed")]),
    ({"a": "roles[0] == 'u' || role == 'u'", "b": "role == 'u'"}, [("b", "shadowed")]),
    ({"a": "roles[0] == 'u' || !(roles[0] == 'u')", "b": "role == 'u'"}, []),
    ({"a": "int(ref) == 1 || !(int(ref) == 1)", "b": "ref in ['5', 'x']"}, []),
    ({"a": "role == 'u' || roles.exists(r, r == 'u')", "b": "role == 'u'"}, []),
    ({"a": "true", "b": "roles.exists(r, r == 'u')"}, [("b", "shadowed")]),
    ({"a": "role", "b": "role == 'u'"}, [("a", "not-boolean")]),
    ({"a": "path == 'Foo'", "b": "path == 'foo'"}, [("b", "lookalike-names")]),
    ({"a": "path == 'Foo'", "b": "path == 'Foo' && role == 'x'"}, [("b", "shadowed")]),
    ({"__ALLOW_VIEWING_REF_ID": "role == 'x'"}, [("__ALLOW_VIEWING_REF_ID", "reserved-id")]),
    (
        {"__ALLOW_VIEWING_REF_ID": "op == 'VIEW_REFERENCE' && ref == 'x'"},
        [],
    ),
    ({"a": "role == 'x' // VIEW_REFERENCE"}, [("a", "implicit-rule-off")]),
    ({"a": "op in ['READ_ENTRIES'] // VIEW_REFERENCE"}, [("a", "unseen-reference"), ("a", "implicit-rule-off")]),
    ({"a": "op == 'CREATE_REFERENCE' && role != 'VIEW_REFERENCES'"}, [("a", "implicit-rule-off")]),
    ({"a": "op == 'VIEW_REFERENCE'", "b": "op == 'READ_ENTRIES' // no VIEW_REFERENCE"}, []),
    ({"a": "op == 'VIEW_REFERENCE' && ref == 'x'", "b": "op == 'READ_ENTRIES' && ref == 'x'"}, []),
    ({"a": "op == 'VIEW_REFERENCE' && ref == 'x'", "b": "op == 'READ_ENTRIES' && ref == 'y'"}, [("b", "unseen-reference")]),
    ({"a": "op == 'VIEW_REFERENCE' && ref == 'x'", "b": "op == 'CREATE_REFERENCE' && ref == 'y'"}, []),
    ({"a": "op == 'VIEW_REFERENCE' && role == 'A'", "b": "op == 'READ_ENTRIES' && role in ['A', 'B']"}, [("b", "unseen-reference")]),
    ({"a": "op == 'VIEW_REFERENCE' && path == 'x'", "b": "op == 'READ_ENTRIES'"}, [("a", "empty-variable"), ("b", "unseen-reference")]),
    ({"a": "op == 'VIEW_REFERENCE' && ref.matches('x+')", "b": "op == 'READ_ENTRIES' && ref == 'y'"}, []),
    ({"a": "op == 'VIEW_REFERENCE' && !(size(path) > 0)", "b": "op == 'CREATE_ENTITY' && size(path) > 0"}, []),
    ({"a": "op == 'VIEW_REFERENCE' && ref ==", "b": "op == 'READ_ENTRIES' && ref == 'y'"}, [("a", "syntax")]),
    ({"a": "op.startsWith('VIEW_')", "b": "op == 'READ_ENTRIES'"}, []),
    ({"a": "op.startsWith('VIEW_REFERENCE')", "b": "op == 'READ_ENTRIES'"}, []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "wanted"), SETS, ids=lambda value: " | ".join(value) if isinstance(value, dict) else ""
)
def test_sets(rules: dict[str, str], wanted: list[tuple[str, str]]) -> None:
    assert [(rule, code) for rule, code, *_ in codes(rules)] == wanted


def test_a_blind_role_is_named() -> None:
    rules = {"a": "op == 'VIEW_REFERENCE' && role == 'A'", "b": "op == 'READ_ENTRIES' && role in ['A', 'B', 'C']"}
    (found,) = findings(rules)
    assert "`B`, `C`" in found.message
    assert "`A`" not in found.message


def test_shadowing_rules_are_the_needed_ones() -> None:
    rules = {"a": "ref == 'q'", "b": "ref == 'x'", "c": "role == 'y'", "d": "ref == 'y'", "e": "ref in ['x', 'y']"}
    (found,) = (one for one in findings(rules) if one.code == "shadowed")
    assert found.message == "is true only where one of rules `b`, `d` is"


def test_where_a_mention_stands() -> None:
    assert codes({"a": "op == 'CREATE_REFERENCE' // VIEW_REFERENCE"}) == [("a", "implicit-rule-off", 1, 29)]


def test_the_implicit_rule_is_said_to_be_on() -> None:
    assert [one.code for one in findings({"a": "ref == 'x'"})] == ["implicit-rule-on"]
    assert findings({"a": "ref == 'x'"}, forbid=True) == []
    assert findings({}) == []


def test_forbidding_rules_need_no_view() -> None:
    rules = {"a": "op == 'VIEW_REFERENCE' && ref == 'x'", "b": "op == 'READ_ENTRIES' && ref == 'y'"}
    assert findings(rules, forbid=True) == []


def test_several_warehouses() -> None:
    rules = {"a": "ref == 'x'", "b": "ref == 'x' && warehouse == 'lake'"}
    assert [one[:2] for one in codes(rules, warehouses=2)] == [("a", "untested-warehouse"), ("b", "shadowed")]
    assert [one[:2] for one in codes(rules, warehouses=1)] == [("b", "shadowed")]


def test_what_is_too_large_is_left_alone() -> None:
    many = [f"ref.startsWith('a{n}') || ref.endsWith('b{n}')" for n in range(100)]
    assert codes({"r": f"({' || '.join(many)}) && role == 'x' && role == 'y'"}) == []
    flags = " && ".join(f"'r{n}' in roles" for n in range(100))
    assert codes({"r": f"{flags} && !('r1' in roles)"}) == []
    hard = " && ".join(f"(roles[{n}] == 'a' || role == 'x{n}')" for n in range(30))
    assert codes({"a": "role == 'y' && roles[0] == 'b'", "r": f"{hard} && !({hard})"}) == []


# --- soundness ------------------------------------------------------------------------------------------------------

ENDS = ["", "a", "b", "ab"]
TEXTS = [*ENDS, "ba", *(f"{start}~{end}" for start in ENDS for end in ENDS)]
"""What stands for all texts, as far as tests with ENDS can tell."""
WORDS = st.sampled_from(["a", "b", "ab", ""]).map(repr)
STRINGS = st.sampled_from(["ref", "path"])


def _join(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda drawn: template.format(*drawn))


PLAIN = st.one_of(
    _join("{} {} {}", STRINGS, st.sampled_from(["==", "!="]), WORDS),
    _join("{}.{}({})", STRINGS, st.sampled_from(["startsWith", "endsWith"]), WORDS),
    _join("{} in [{}, {}]", STRINGS, WORDS, WORDS),
    _join("{}.matches('{}')", STRINGS, st.sampled_from(["^a", "b$", "^(a|ab)$"])),
    st.sampled_from(["'a' in roles", "'b' in roles", "delegated", "true", "false"]),
)
OTHER = st.sampled_from(
    [
        "ref.matches('a+b?')",
        "ref.contains('a')",
        "ref.matches('^.*b$')",
        "path.matches('[')",
        "size(roles) > 1",
        "roles[0] == 'a'",
        "role in roles",
        "ref == path",
        "1 / 0 == 1",
        "roles.exists(r, r == ref)",
        "dyn(roles) == dyn(1)",
    ]
)


def _combined(tests: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        tests,
        lambda part: st.one_of(
            _join("({} && {})", part, part),
            _join("({} || {})", part, part),
            _join("!({})", part),
            _join("({} ? {} : {})", part, part, part),
        ),
        max_leaves=5,
    )


def models(texts: Sequence[str]) -> list[RuleModel]:
    """Return the models of the rules that compile."""
    rules = [analyze_rule(inline_rule(f"r{number}", text), frozenset()) for number, text in enumerate(texts)]
    return [rule.model for rule in rules if isinstance(rule, LintRule)]


def indexed(rules: Sequence[RuleModel]) -> ConditionIndex[RuleModel]:
    index = ConditionIndex[RuleModel]()
    for rule in rules:
        index.add(rule, rule.program.requirements.conditions)
    return index


INPUTS = [
    arguments(ref=ref, path=path, roles=roles, role="a", delegated=delegated)
    for ref, path in itertools.product(TEXTS, TEXTS)
    for roles in ((), ("a",), ("b",), ("b", "a"))
    for delegated in (False, True)
]


def _holds(model: RuleModel, values: Sequence[Any]) -> bool:
    try:
        return model.program.evaluate(*values)
    except RuleError:
        return False


def _contradictions(model: RuleModel, smaller: Sequence[RuleModel], inputs: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """Inputs that show a claim about `model` to be wrong."""
    claim = determine_reach(model, indexed(smaller), SearchBudget())
    if isinstance(claim, Reachable):
        witness = tuple(claim.witness.values())
        if not _holds(model, witness) or any(_holds(other, witness) for other in smaller):
            yield claim
    elif isinstance(claim, (Unreachable, Shadowed)):
        by = claim.by if isinstance(claim, Shadowed) else ()
        for values in inputs:
            if _holds(model, values) and not any(_holds(other, values) for other in by):
                yield claim, values


@given(st.lists(_combined(st.one_of(PLAIN, PLAIN, OTHER)), min_size=1, max_size=5))
def test_no_input_contradicts_a_claim(texts: list[str]) -> None:
    rules = models(texts)
    for number, rule in enumerate(rules):
        assert list(_contradictions(rule, rules[:number], INPUTS)) == []


@given(
    st.lists(_combined(st.one_of(PLAIN, OTHER)), min_size=1, max_size=4),
    st.lists(
        st.fixed_dictionaries(
            {
                "ref": st.text(alphabet="ab~\n", max_size=4),
                "path": st.text(max_size=4),
                "role": st.text(alphabet="ab", max_size=2),
                "roles": st.lists(st.sampled_from("abc"), max_size=3).map(tuple),
                "delegated": st.booleans(),
            }
        ),
        min_size=20,
        max_size=40,
    ),
)
def test_no_random_input_contradicts_a_claim(texts: list[str], worlds: list[dict[str, Any]]) -> None:
    rules = models(texts)
    inputs = [arguments(**world) for world in worlds]
    for number, rule in enumerate(rules):
        assert list(_contradictions(rule, rules[:number], inputs)) == []


@given(st.lists(_combined(PLAIN), min_size=1, max_size=5))
def test_of_plain_tests_everything_is_known(texts: list[str]) -> None:
    """Nothing is missed either: each rule is shown to be reached, or what was claimed is so over all inputs."""
    rules = models(texts)
    for number, rule in enumerate(rules):
        claim = determine_reach(rule, indexed(rules[:number]), SearchBudget())
        true = [values for values in INPUTS if _holds(rule, values)]
        first = [values for values in true if not any(_holds(other, values) for other in rules[:number])]
        assert isinstance(claim, Reachable) == bool(first)
        assert isinstance(claim, Unreachable) == (not true)


OPS = ["VIEW_REFERENCE", "READ_ENTRIES", "READ_ENTITY_VALUE", "READ_REPOSITORY_CONFIG"]
CHECK_TESTS = st.one_of(
    _join("op == '{}'", st.sampled_from(OPS)),
    _join("op in ['{}', '{}']", st.sampled_from(OPS), st.sampled_from(OPS)),
    _join("ref {} {}", st.sampled_from(["==", "!="]), WORDS),
    _join("role == {}", WORDS),
    _join("path.startsWith({})", WORDS),
    st.sampled_from(["path.contains('a')", "size(path) > 0", "'a' in roles", "type == 'GC'", "contentType != ''"]),
)


def _check_inputs() -> Iterator[dict[str, Any]]:
    """Inputs as checks bind them."""
    for op, ref, role, roles in itertools.product(OPS, ["", "a", "ab", "~"], ["", "a", "b", "~"], [(), ("a",)]):
        common = {"op": op, "ref": ref, "role": role, "roles": roles, "path": "", "contentType": "", "type": ""}
        if op == "READ_ENTITY_VALUE":
            yield from ({**common, "path": path, "contentType": kind} for path in TEXTS for kind in ("", "UDF"))
        elif op == "READ_REPOSITORY_CONFIG":
            yield from ({**common, "type": kind} for kind in ("", "GC"))
        else:
            yield common


CHECK_INPUTS = list(_check_inputs())


@given(st.lists(_combined(CHECK_TESTS), min_size=1, max_size=4))
def test_what_is_said_of_checks_holds_for_all(texts: list[str]) -> None:
    rules = {f"r{number}": text for number, text in enumerate(texts)}
    programs = dict(zip(rules, models(texts), strict=True))
    for found in findings(rules):
        rule = programs[found.rule] if found.rule else None
        if found.code == "empty-variable" and rule is not None:
            ops = set(re.findall(r"[A-Z_]{8,}", found.message))
            assert not [one for one in CHECK_INPUTS if one["op"] in ops and _holds(rule, arguments(**one))]
        if found.code == "unseen-reference" and rule is not None:
            roles = re.findall(r"`([^`]*)`", found.message)
            for one in CHECK_INPUTS:
                if one["op"] in OPS[1:3] and (one["role"] in roles or not roles) and _holds(rule, arguments(**one)):
                    view = {**one, "op": "VIEW_REFERENCE", "path": "", "contentType": "", "type": ""}
                    assert not any(_holds(other, arguments(**view)) for other in programs.values())


GOLDEN = [json.loads(line) for line in (RECORDED / "golden.jsonl").read_text().splitlines()]


def _recorded_inputs() -> list[tuple[Any, ...]]:
    """The recorded checks, as far as rules look at them."""
    found = []
    for check in (check for case in GOLDEN for check in case["checks"]):
        resource = check["resource"]
        found.append(
            arguments(
                op=check["action"],
                role=check["principal"]["id"].partition("~")[2],
                roles=tuple(check["principal"]["roles"]),
                ref=resource.get("ref", ""),
                path=".".join(resource.get("path", ())),
                contentType=resource.get("contentType", ""),
                actions=tuple(check["context"]["actions"]),
            )
        )
    return found


def test_recorded_rule_sets_are_not_accused_wrongly() -> None:
    distinct = {json.dumps(case["rules"], sort_keys=True): case["rules"] for case in GOLDEN if "want" in case}
    inputs = _recorded_inputs()
    assert len(distinct) > 150
    for rules in distinct.values():
        programs = {id: compile_program(text) for id, text in rules.items()}
        for one in findings(rules, witnesses=True):
            if one.witness is not None:
                assert programs[one.rule].evaluate(*one.witness.values())
            if one.code in ("unreachable", "shadowed", "duplicate-rule"):
                accused = RuleModel(one.rule, programs[one.rule], None, exact=True)  # type: ignore[arg-type]
                smaller = [accused._replace(program=programs[id]) for id in rules if id < one.rule]
                true = [values for values in inputs if _holds(accused, values)]
                assert all(any(_holds(other, values) for other in smaller) for values in true)
                assert not true or one.code != "unreachable"


def test_the_example_has_no_finding_and_a_witness_for_every_rule() -> None:
    example = lint_files([ROOT / "rules" / "stories.properties"], LintOptions(witnesses=True))
    assert [one.code for one in example] == ["witness"] * 8


# --- files and the command line -------------------------------------------------------------------------------------


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(command, [str(argument) for argument in arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("'role:x' in roles", "wrong-name"),
        ("op == 'READ_ENTITY_VALUE' && action == 'drop'", "no-question"),
        ("warehouse == 'hive'", "unknown-name"),
        ("path.matches('[HR]R')", "path-spelling"),
    ],
)
def test_names_by_the_configuration(tmp_path: Path, rule: str, code: str) -> None:
    """tests/cli/config/test_names_of_nobody.py has all forms."""
    known = KnownNames(warehouses=frozenset({"lake"}), catalogs=frozenset({"lk"}))
    path = _write(tmp_path, "a.yaml", f'rules: {{f: "{rule}"}}\n')
    for forbid, severities in ((True, {"wrong-name": "error", "no-question": "error"}), (False, {})):
        found = lint_files([path], LintOptions(names=NameCheck(known, forbid)))
        wanted = [] if code == "path-spelling" and not forbid else [(code, severities.get(code, "warning"))]
        assert [(one.code, one.severity) for one in found if one.code == code] == wanted


def test_the_manual_as_printed() -> None:
    found = lint_files([RECORDED / "manual-as-printed.properties"], LintOptions())
    assert [(one.line, one.column, one.severity, one.code, one.rule) for one in found] == [
        (6, 62, "info", "redundant-wildcard", "allow_branch_creation"),
        (15, 73, "warning", "empty-variable", "allow_reading_entity_value"),
        (18, 48, "warning", "empty-variable", "allow_deleting_entity"),
        (21, 7, "warning", "removed-op", "allow_listing_reflog"),
        (41, 94, "error", "syntax", "bob"),
        (45, 99, "error", "syntax", "carol"),
        (49, 99, "error", "syntax", "dave"),
    ]


def test_properties_escapes(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.properties", f"{PREFIX}r=ref.matches('a\\\\.b')\n{PREFIX}s=ref.matches('a\\\\\\\\.b')\n")
    (_, found) = lint_files([path], LintOptions())
    assert (found.code, found.line, found.column) == ("properties-escape", 1, 51)
    assert "write `\\\\\\\\.`" in found.hint


def test_all_files_are_read_to_their_end(tmp_path: Path) -> None:
    one = _write(tmp_path, "a.properties", f"other=1\n{PREFIX}r=nope\n{PREFIX}s=ref ==\n{PREFIX}t=ref=='x'\n")
    two = _write(tmp_path, "b.yaml", "rules: [\n")
    three = _write(tmp_path, "c.yaml", "rules:\n  t: ref=='y'\n  u: |\n    ref=='z' &&\n      op=='NOPE'\n")
    code, output = run(one, two, three)
    assert code == 1
    assert [line for line in output.splitlines() if not line.startswith("  hint")] == [
        f"{one}:1:1: warning: [ignored-key] ignored key `other`",
        f"{one}:1:1: info: [implicit-rule-on] no rule mentions VIEW_REFERENCE, so everyone may view every reference: a warehouse opens by READ_ENTRIES",
        f"{one}:2:37: error: [unknown-variable] rule `r`: undeclared reference to `nope`",
        f"{one}:3:43: error: [syntax] rule `s`: syntax error: unexpected end",
        f"{two}:2:1: error: [unreadable-file] not YAML: did not find expected node content",
        f"{three}:2:6: error: [duplicate-id] rule `t`: stands at {one}:4:37 already",
        f"{three}:5:11: error: [unknown-op] rule `u`: `NOPE` fits none of the check types that `op` can be",
    ]


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    _write(tmp_path, "a.properties", f"{PREFIX}a=nope")
    _write(tmp_path / "below", "b.yml", "rules:\n  b: nope\n")
    _write(tmp_path / "below", "c.yaml", "rules: {c: nope}\n")
    _write(tmp_path, "pdp.yaml", "policies:\n  rules: [nope]\n")
    _write(tmp_path, "world.yaml", "projects: []\n")
    _write(tmp_path, "notes.txt", "nope")
    code, output = run("--format", "json", tmp_path)
    assert code == 1
    assert [one["rule"] for one in json.loads(output) if one["severity"] == "error"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        ("ref=='x'", [], 0),
        ("ref=='x'", ["--strict"], 0),
        ("op=='VIEW_REFLOG'", [], 0),
        ("op=='VIEW_REFLOG'", ["--strict"], 1),
        ("op=='VIEW_REFLOGS'", [], 1),
        ("ref.trim()=='x'", [], 1),
        ("ref.trim()=='x'", ["--cel-extension", "strings"], 0),
    ],
)
def test_exit_codes(tmp_path: Path, text: str, options: list[str], code: int) -> None:
    assert run(_write(tmp_path, "a.properties", f"{PREFIX}r={text}"), *options)[0] == code


def test_json(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.yaml", "rules:\n  a: ref == 'x'\n  b: ref == 'DETATCHED'\n")
    code, output = run("--format", "json", "-v", path)
    assert code == 0
    found = {(one["code"], one["rule"]): one for one in json.loads(output)}
    assert found["detached-typo", "b"] == {
        "code": "detached-typo", "severity": "warning", "file": str(path), "line": 3, "column": 13, "rule": "b",
        "message": "a detached ref is called `DETACHED`", "hint": "write `DETACHED`", "witness": None,
    }  # fmt: skip
    witness = found["witness", "a"]["witness"]
    assert list(witness) == list(RULE_VARIABLES)
    assert witness["ref"] == "x"


def test_verbose_shows_what_a_rule_decides(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.yaml", "rules:\n  a: ref == 'x'\n")
    assert f"{path}:2:6: info: [witness] rule `a`: decides ref='x'" in run("-v", path)[1]
    assert "witness" not in run(path)[1]


def test_a_configuration(tmp_path: Path) -> None:
    _write(tmp_path, "permit.yaml", "rules: {a: \"op == 'VIEW_REFERENCE'\", b: \"ref.trim() == 'x'\"}")
    _write(tmp_path, "forbid.yaml", "rules: {a: \"ref == 'x' && warehouse == 'w'\"}")
    config = _write(
        tmp_path,
        "pdp.yaml",
        "warehouses: {v: {}, w: {}}\n"
        "policies: {rules: [permit.yaml], forbid: [forbid.yaml], cel_extensions: [strings]}\n",
    )
    code, output = run("--format", "json", "-c", config)
    assert code == 0
    assert [(one["code"], Path(one["file"]).name, one["rule"]) for one in json.loads(output)] == [
        ("untested-warehouse", "permit.yaml", "a"),
        ("untested-warehouse", "permit.yaml", "b"),
    ]
    code, output = run("--format", "json", "-c", config, tmp_path / "forbid.yaml")
    assert [one["code"] for one in json.loads(output)] == ["implicit-rule-on"]


def test_what_cannot_be_linted(tmp_path: Path) -> None:
    assert run()[0] == 2
    assert run(tmp_path / "none.properties")[0] == 2
    code, output = run(_write(tmp_path, "a.txt", ""))
    assert code == 1
    assert "[unreadable-file] not a rule file" in output


def test_nothing_is_printed_that_a_terminal_obeys(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.yaml", 'rules:\n  "a\\e[31m\\nb\u202e": nope\n')
    output = run(path)[1]
    assert "rule `a\\x1b[31m\\nb\\u202e`" in output
    assert all(one.isprintable() or one == "\n" for one in output)


@pytest.mark.process
def test_as_a_process() -> None:
    done = run_pdp("lint", "rules", cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("rule", "forbid", "said"),
    [
        ("'a' in roles && path == 'n'", False, "the rule sees roles of tokens"),
        ("'a' in roles && path == 'n'", True, "the rule counts roles by any evidence"),
        ("!('a' in roles) && path == 'n'", True, "the rule counts against a role only roles of tokens"),
        ("size(roles) > 1 || 'a' in roles", True, "the rule counts roles by any evidence"),
        ("size(roles) > 1 || 'a' in roles", True, "it binds if it does with roles by any evidence, or with roles of"),
    ],
)
def test_a_long_report_says_which_roles_a_rule_sees(rule: str, forbid: bool, said: str) -> None:
    (found,) = [one for one in findings({"r": rule}, witnesses=True, forbid=forbid) if one.code == "seen-roles"]
    assert said in found.message
    assert found.severity == "info"
    assert not [one for one in findings({"r": rule}, forbid=forbid) if one.code == "seen-roles"]


def test_every_code_is_documented_and_triggered() -> None:
    page = (ROOT / "docs" / "lint.md").read_text()
    rows = dict(re.findall(r"^\| `(?!cedar-|scopes-)([a-z-]+)` \| (error|warning|info) \|", page, re.MULTILINE))
    assert rows == CODES
    source = Path(__file__).read_text()
    assert [code for code in CODES if f'"{code}"' not in source and f"[{code}]" not in source] == []


def test_a_configuration_is_linted_as_a_whole(tmp_path: Path) -> None:
    """Missing and empty files, row policies and the world, each with its place."""
    _write(tmp_path, "f.yaml", "# nothing\n")
    _write(tmp_path, "rows.yaml", "policies:\n- {id: p, table: lake.s.t, grantees: [allUsers], filter: x =}\n")
    _write(tmp_path, "world.yaml", "objects:\n- warehouse:lakes\n")
    config = _write(
        tmp_path,
        "pdp.yaml",
        "warehouses: {lake: {}}\nstore: {url: 'file:world.yaml'}\n"
        "policies:\n  rules: [none/*.yaml]\n  forbid: [f.yaml]\n  row_access: [rows.yaml]\n",
    )
    code, output = run("-c", config)
    assert code == 1
    lines = output.splitlines()
    assert [line.partition(": error: [configuration] ")[0].removeprefix(f"{tmp_path}/") for line in lines] == [
        "pdp.yaml:4:11",
        "pdp.yaml:5:12",
        "rows.yaml:2:58",
        "world.yaml:2:3",
    ]
    for line, words in zip(lines, ("matches no file", "holds no rule", "something is missing", "`lakes`"), strict=True):
        assert words in line


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("op == 'trino:ImpersonateUser' && arguments.user == 'root'", "unknown-op"),
        ("op == 'catalog:grant_select'", "unknown-op"),
        ("op == 'lakeql_public'", "unknown-op"),
        ("action == 'grant_select' || action == 'trino:ExecuteQuery'", "unknown-catalog-action"),
    ],
)
def test_what_forbids_alone_see_is_unknown_to_a_permit(text: str, code: str) -> None:
    assert code in {one.code for one in findings({"a": text})}
    assert code not in {one.code for one in findings({"a": text}, forbid=True)}


def test_a_forbid_with_a_misspelt_op_is_found() -> None:
    for text in ("op == 'trino:ExecuteQuerry'", "op == 'catalog:read_data'", "op == 'READ_ENTITY'"):
        assert "unknown-op" in {one.code for one in findings({"a": text}, forbid=True)}
