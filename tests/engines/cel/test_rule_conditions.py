"""Conditions of rules, compared with rules in which one condition has the opposite value."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pdp.cel.values import RuleError, Timestamp
from pdp.engines.cel.program import RULE_VARIABLES, compile_program
from pdp.engines.cel.rule_conditions import NEVER_FALSE, NEVER_TRUE, RuleConditions

BASE: dict[str, Any] = dict.fromkeys(RULE_VARIABLES, "") | {
    "roles": (), "actions": (), "groups": (), "api": {"apiName": "", "apiVersion": 0}, "attributes": {},
    "properties": {}, "delegated": False, "now": Timestamp(0), "arguments": {},
}  # fmt: skip
TINY: dict[str, tuple[Any, ...]] = {
    "op": ("A", "B"),
    "role": ("a", "b"),
    "roles": ((), ("x",), ("y",)),
    "path": ("", "p.q", "p.r", "q"),
}
RULES = [
    "op == 'A'",
    "op == 'A' && role == 'a' && path.startsWith('p.')",
    "op == 'A' || role == 'a' || 'x' in roles",
    "op == 'A' && (role == 'a' || 'x' in roles)",
    "op == 'A' || role == 'a' && !('x' in roles)",
    "!(op == 'A' || role == 'a')",
    "op == 'A' ? role == 'a' : 'x' in roles",
    "roles[0] == 'x' || op == 'A'",
    "roles[0] == 'x' && op == 'A'",
    "op == 'A' && role == 'a' || op == 'B' && role == 'b'",
    "path.matches('^p.*q$') && role == 'a'",
    "path.startsWith('p.') && path.endsWith('q') && op == 'A'",
]
CONDITIONS = ["op == 'A'", "role == 'a'", "path.startsWith('p.')", "'x' in roles", "roles[0] == 'x'"]
CONDITIONS += ["op == 'B'", "role == 'b'", "path.matches('^p.*q$')", "path.endsWith('q')"]


def evaluations() -> Iterator[dict[str, Any]]:
    for values in itertools.product(*TINY.values()):
        yield BASE | dict(zip(TINY, values, strict=True))


def outcome(text: str, values: Mapping[str, Any]) -> bool | None:
    try:
        return compile_program(text).evaluate(*values.values())
    except RuleError:
        return None


@pytest.mark.parametrize("text", RULES)
def test_a_condition_is_shown_where_its_opposite_changes_the_outcome(text: str) -> None:
    conditions = RuleConditions(compile_program(text))
    for values in evaluations():
        shown, actual = conditions.shown_by(values), outcome(text, values)
        assert (NEVER_TRUE in shown) == (actual is True)
        assert (NEVER_FALSE in shown) == (actual is False)
        for condition in CONDITIONS:
            truth = outcome(condition, values)
            changed = truth is not None and outcome(text.replace(condition, f"!({condition})"), values) != actual
            mine = {point for point in conditions.points if f"`{condition}`" in point}
            wanted = {point for point in mine if is_about(point, truth) and changed and condition in text}
            assert mine & shown == wanted, (values, condition)


def is_about(point: str, truth: bool | None) -> bool:
    """Tell whether a point is about a condition that is true, or false."""
    return truth is (" passes by " in point or point.endswith("being true"))


def test_the_points_of_a_list_are_its_values() -> None:
    conditions = RuleConditions(compile_program("op in ['A', 'B'] && role == 'a'"))
    by_a, by_b = (f"no check passes `op in ['A', 'B']` by '{op}'" for op in "AB")
    fails = "no check fails by `op in ['A', 'B']` alone"
    assert set(conditions.points) == {
        NEVER_TRUE, NEVER_FALSE, by_a, by_b, fails, "no check fails by `role == 'a'` alone",
    }  # fmt: skip
    assert conditions.shown_by(BASE | {"op": "B", "role": "a"}) == {NEVER_TRUE, by_b}
    assert conditions.shown_by(BASE | {"op": "C", "role": "a"}) == {NEVER_FALSE, fails}
    assert conditions.shown_by(BASE | {"op": "C", "role": "b"}) == {NEVER_FALSE}


@pytest.mark.parametrize("text", ["true", "false", "1 == 1"])
def test_a_constant_has_one_point(text: str) -> None:
    found = list(RuleConditions(compile_program(text)).points)
    assert found[0] == NEVER_TRUE
    assert text == "1 == 1" or len(found) == 1


def test_a_rule_shows_all_points_by_all_values() -> None:
    """A rule without idle conditions has no point that no check can show."""
    for text in RULES:
        conditions = RuleConditions(compile_program(text))
        assert set().union(*map(conditions.shown_by, evaluations())) == set(conditions.points), text
