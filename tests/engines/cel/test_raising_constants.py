"""Parts that raise whatever the variables are: lint names the smallest ones, by what an evaluation does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.generators.cel_values import arguments

from pdp.cel.compiler import compile_expression
from pdp.cel.syntax import CompileError
from pdp.cel.values import RuleError, Timestamp
from pdp.config.names import NameCheck
from pdp.engines.cel.lint.check_bindings import LintRule, analyze_rule, raising_constants
from pdp.engines.cel.lint.linter import LintOptions, lint_rules
from pdp.engines.cel.lint.remarks import Remark
from pdp.engines.cel.program import compile_program
from pdp.engines.cel.sources import inline_rule

PARTS = {
    # a part that always raises: the place in it, and part of the message
    "timestamp('2024-01-01') < now": (0, "`timestamp('2024-01-01')` always raises: invalid timestamp"),
    "now > timestamp('yesterday')": (6, "invalid timestamp"),
    "now - now < duration('7d')": (12, "`duration('7d')` always raises: invalid duration"),
    "int('0x10') == 16": (0, "`int('0x10')` always raises"),
    "double('x') > 1.0": (0, "`double('x')`"),
    "uint(-1) == 1u": (0, "`uint(-1)`"),
    "9223372036854775807 + 1 > 0": (0, "integer overflow"),
    "-(-9223372036854775807 - 1) > 0": (2, "integer overflow"),
    "[1][3] == 1": (1, "index out of bounds"),
    "{'a': 1}.b == 1": (1, "no such key"),
    "{'a': 1, 'a': 2}.a == 1": (1, "repeated key"),
    "1/0 == 1": (0, "`1 / 0` always raises: division by zero"),
    "role in ['a', string(5 % 0)]": (21, "modulus by zero"),
    "size(role) / 0 == 1": (0, "division by zero"),
    "size(role) % (1 - 1) == 1": (0, "modulus by zero"),
    "now.getHours('Nowhere/X') < 8": (4, "`now.getHours('Nowhere/X')` always raises: unknown time zone"),
    "now.getDate('UTC+1') == 2": (4, "unknown time zone"),
    "(now + duration('1h')).getHours('CE' + 'X') < 8": (23, "unknown time zone"),
    "role.matches('a' + '[')": (5, "invalid pattern `a[`"),
    "['a'].exists(x, int(x) == 1)": (1, "not an integer"),
}
SOUND = [
    "timestamp('2024-01-01T00:00:00Z') < now",
    "now.getHours('Europe/Berlin') < 8 || now.getHours('+02:00') < 8",
    "size(role) / 1 == 1",
    "role.matches('a' + 'b')",
    "has({'a': 1}.b)",
    "['a', '1'].exists(x, int(x) == 1)",
    "now > timestamp(role)",
    "int(role) / size(ref) == 1",
    "roles[3] == 'x'",
    "size(role) / size(ref) == 1",
    "'%d' == role",
]


def remarks(text: str, *, forbid: bool = False) -> list[Remark]:
    rule = analyze_rule(inline_rule("r", text), frozenset())
    assert isinstance(rule, LintRule)
    return list(raising_constants(rule.checked, forbid=forbid))


def severities(text: str, *, forbid: bool = False) -> list[str | None]:
    return [remark.severity for remark in remarks(text, forbid=forbid)]


@pytest.mark.parametrize("forbid", [True, False])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_always_raises_is_an_error_with_its_place(part: str, *, forbid: bool) -> None:
    offset, message = PARTS[part]
    (found,) = remarks(f"role == 'a' && {part}", forbid=forbid)
    assert (found.code, found.severity, found.offset) == ("always-raises", "error", offset + len("role == 'a' && "))
    assert message in found.message
    for now in (Timestamp(0), Timestamp(1_700_000_000_000_000_000)):
        with pytest.raises(RuleError):
            compile_program(f"role == 'a' && {part}").evaluate(*arguments(role="a", now=now))


@pytest.mark.parametrize("text", SOUND)
def test_what_may_have_a_value_is_no_finding(text: str) -> None:
    assert remarks(text) == remarks(text, forbid=True) == []


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    ("form", "severity"),
    [
        ("role == 'a' || {}", "warning"),
        ("delegated ? {} : role == 'a'", "warning"),
        ("!(role == 'a' && {})", "warning"),
        ("roles.all(r, {})", "warning"),
        ("roles.exists(r, r == 'a' || {})", "warning"),
        ("({}) || ({})", "error"),
        ("!(role == 'a' || {})", "error"),
        ("role == 'a' && (ref == 'b' && {})", "error"),
        ("roles.exists(r, r == 'a' && {})", "error"),
        ("({}) == delegated", "error"),
        ("({}) ? true : delegated", "error"),
    ],
)
def test_a_permit_that_can_be_true_has_a_warning(part: str, form: str, severity: str) -> None:
    text = form.replace("{}", part)
    assert set(severities(text)) == {severity}
    assert set(severities(text, forbid=True)) == {"error"}


def test_a_bad_pattern_is_named_once() -> None:
    found = [each.code for each in lint_rules([inline_rule("r", "'x'.matches('[')")], LintOptions())]
    assert found.count("bad-pattern") == 1
    assert "always-raises" not in found


def test_lint_reports_the_part_and_what_to_write() -> None:
    options = LintOptions(names=NameCheck(forbid=True))
    (found,) = lint_rules([inline_rule("r", "now > timestamp('2024-01-01')")], options)
    assert (found.code, found.severity, found.column) == ("always-raises", "error", 7)
    assert "`timestamp('2024-01-01T00:00:00Z')`" in found.hint


def test_large_parts_end_in_time() -> None:
    numbers = ", ".join(["1"] * 300)
    macro = f"[{numbers}]" + ".map(x, [x, x].map(y, y)[0])" * 20
    assert remarks(f"{macro}.size() == 1 || role == 'a'") == []
    many = " || ".join(["int('x') == 1"] * 3_000)
    assert 1000 < len(remarks(many)) <= 3_000


INTEGERS = st.sampled_from(["0", "1", "-1", "7", "9223372036854775807", "int('7')", "int('x')", "size('ab')"])
NUMBERS = st.recursive(
    INTEGERS,
    lambda below: st.one_of(
        st.tuples(below, st.sampled_from("+-*/%"), below).map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(below, below).map(lambda pair: f"[{pair[0]}][{pair[1]}]"),
        st.tuples(below, below, below).map(lambda parts: "({} == 0 ? {} : {})".format(*parts)),
    ),
    max_leaves=5,
)
TESTS = st.recursive(
    st.one_of(st.tuples(NUMBERS, NUMBERS).map(" == ".join), st.sampled_from(["true", "false"])),
    lambda below: st.one_of(
        st.tuples(below, st.sampled_from(["&&", "||"]), below).map(lambda parts: f"({' '.join(parts)})"),
        below.map(lambda test: f"!({test})"),
        below.map(lambda test: f"[0, 1].exists(x, x == 0 && {test})"),
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(TESTS)
def test_lint_agrees_with_the_evaluation(text: str) -> None:
    """What raises has a finding, what is true has no error, and each part that is named raises alone."""
    found = remarks(text)
    try:
        value = compile_program(text).evaluate(*arguments())
    except RuleError:
        assert found
    else:
        assert not (value and any(each.severity == "error" for each in found))
    for each in found:
        part = each.message.split("`")[1]
        with pytest.raises((RuleError, CompileError)):  # a part of a macro has its variable
            compile_expression(part, {})({})
