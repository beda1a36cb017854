"""Conditions of a rule, and the values by which each condition decides the rule: coverage of rules by tests.

A condition is a part of a rule without `&&`, `||`, `!` and `? :`. A test proves a condition if the rule has another
outcome with the opposite value of this condition and the same values of all others. This is the criterion of modified
condition/decision coverage (MC/DC, https://doi.org/10.1049/sej.1994.0025).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from pdp.cel.checker import CheckedExpression
from pdp.cel.compiler import load_function
from pdp.cel.syntax import Call, Conditional, Constant, ListOf, Logic, Node
from pdp.cel.unparse import unparse, unparse_value, variable_name, walk
from pdp.cel.values import RuleError
from pdp.engines.cel.conditions import EVERY_ROLE
from pdp.engines.cel.program import RULE_ARGUMENTS, RULE_VARIABLES, Program, rule_emitter

Truth: TypeAlias = bool | None
"""Value of a condition; None for a condition that raises."""
Combine: TypeAlias = Callable[[Sequence[Truth]], Truth]
"""Outcome of the rule from the values of its conditions."""
NEVER_TRUE: Final = "never true"
NEVER_FALSE: Final = "never false"
_FALSE_ALONE: Final = frozenset({NEVER_FALSE})


class RuleCondition(msgspec.Struct, frozen=True, eq=False):
    """Condition of a rule. `choices` are the values of a list, for a condition `x in [a, b]`; `evaluate` returns x."""

    text: str
    evaluate: Callable[[Mapping[str, Any]], Any]
    choices: tuple[Any, ...] = ()
    in_conjunction: bool = False
    """The condition alone can make the rule false, and is true wherever the rule is."""
    in_disjunction: bool = False
    """The condition alone can make the rule true, and is false wherever the rule is."""

    def truth(self, value: Any) -> Truth:
        """Return the truth of a value of `evaluate`."""
        return value in self.choices if self.choices else value if isinstance(value, bool) else None


class RuleConditions:
    """Conditions of one rule. `points` says what tests can show about the rule; a point is known by its text."""

    def __init__(self, program: Program) -> None:
        readings = program.readings()
        self._necessary = program.requirements.conditions
        self._conditions: list[RuleCondition] = []
        place = _Place(len(readings) == 1, True)
        self._combine = _any([self._add(checked.root, checked, place) for checked in readings])
        self.points: Mapping[str, None] = dict.fromkeys(self._list_points(_is_constant(readings[0].root)))

    def shown_by(self, values: Mapping[str, Any]) -> AbstractSet[str]:
        """Return the points that one evaluation shows."""
        if self._lacks_several(values):
            return _FALSE_ALONE
        found = [_value(condition, values) for condition in self._conditions]
        truths = [condition.truth(value) for condition, value in zip(self._conditions, found, strict=True)]
        outcome = self._combine(truths)
        shown = {NEVER_TRUE} if outcome is True else {NEVER_FALSE} if outcome is False else set()
        for at, condition in enumerate(self._conditions):
            truth = truths[at]
            if truth is None or self._combine([*truths[:at], not truth, *truths[at + 1 :]]) == outcome:
                continue
            shown |= set(_true_points(condition, found[at])) if truth else {_false_point(condition)}
        return shown & self.points.keys()

    def _lacks_several(self, values: Mapping[str, Any]) -> bool:
        """Tell whether necessary conditions on several variables are not met.

        Then no single condition decides: with the opposite value of a condition on one variable, the necessary
        conditions on the other variable still make the rule false.
        """
        unmet = ""
        for condition in self._necessary:
            variable = condition.variable
            if variable != unmet and variable in values and not condition.is_met_by(values[variable]):
                if unmet:
                    return True
                unmet = variable
        return False

    def _list_points(self, is_constant: bool) -> Iterator[str]:
        yield NEVER_TRUE
        if not is_constant:
            yield NEVER_FALSE
        is_single = len(self._conditions) == 1
        for condition in self._conditions:
            for choice in condition.choices if len(condition.choices) > 1 else ():
                yield from _true_points(condition, choice)
            if not is_single and not condition.choices and not condition.in_conjunction:
                yield from _true_points(condition, True)
            if not is_single and not condition.in_disjunction:
                yield _false_point(condition)

    def _add(self, node: Node, checked: CheckedExpression, place: _Place) -> Combine:
        """Add the conditions of a node and return the function that combines them."""
        if isinstance(node, Logic):
            below = _Place(place.conjunction and node.conjunction, place.disjunction and not node.conjunction)
            parts = [self._add(part, checked, below) for part in node.parts]
            return _all(parts) if node.conjunction else _any(parts)
        inside = _Place(False, False)
        if isinstance(node, Conditional):
            operands = (node.condition, node.then, node.otherwise)
            return _choose(*(self._add(part, checked, inside) for part in operands))
        if isinstance(node, Call) and node.function == "!_":
            return _negate(self._add(node.args[0], checked, inside))
        at = len(self._conditions)
        self._conditions.append(_condition(node, checked, place))
        return lambda truths: truths[at]


class _Place(msgspec.Struct, frozen=True):
    """Place of a node: below nothing but conjunctions, and below nothing but disjunctions."""

    conjunction: bool
    disjunction: bool


@lru_cache(maxsize=4096)
def conditions_of(program: Program) -> RuleConditions:
    """Return the conditions of a rule."""
    return RuleConditions(program)


def _condition(node: Node, checked: CheckedExpression, place: _Place) -> RuleCondition:
    text, choices, evaluated = unparse(node), (), node
    if isinstance(node, Call) and node.function == "@in" and isinstance(node.args[1], ListOf):
        items = node.args[1].items
        if items and all(isinstance(item, Constant) and isinstance(item.value, str) for item in items):
            choices, evaluated = tuple(item.value for item in items), node.args[0]  # type: ignore[attr-defined]
    part = _LazyPart(msgspec.structs.replace(checked, root=evaluated))
    return RuleCondition(
        text, part.evaluate, choices, in_conjunction=place.conjunction, in_disjunction=place.disjunction
    )


class _LazyPart:
    """Part of a rule, with a function that is made on first use: many rules are never evaluated."""

    def __init__(self, checked: CheckedExpression) -> None:
        self._checked = checked

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the value of the part; raise RuleError, also for a variable that has no value."""
        for name in self._reads:
            if name not in values:
                raise RuleError(f"`{name}` has no value")
        return self._run(*[values.get(name) for name in RULE_VARIABLES], values.get(EVERY_ROLE, ()))

    @cached_property
    def _reads(self) -> frozenset[str]:
        checked = self._checked
        return frozenset(name for node in walk(checked.root) if (name := variable_name(node, checked))) - {EVERY_ROLE}

    @cached_property
    def _run(self) -> Callable[..., Any]:
        emitter = rule_emitter(self._checked)
        return load_function(emitter.emit_function("part", RULE_ARGUMENTS.values(), wants_bool=False), "part", emitter)


def _value(condition: RuleCondition, values: Mapping[str, Any]) -> Any:
    """Return the value of a condition; None for a condition that raises."""
    try:
        return condition.evaluate(values)
    except RuleError:
        return None


def _is_constant(node: Node) -> bool:
    """Tell whether a rule is a constant, such as `true`."""
    return all(isinstance(part, Constant) for part in walk(node))


def _true_points(condition: RuleCondition, value: Any) -> Iterator[str]:
    if len(condition.choices) > 1:
        yield f"no check passes `{condition.text}` by {unparse_value(value)}"
    elif not condition.choices and condition.in_disjunction:
        yield f"no check passes by `{condition.text}` alone"
    elif not condition.choices:
        yield f"no check turns on `{condition.text}` being true"


def _false_point(condition: RuleCondition) -> str:
    if condition.in_conjunction:
        return f"no check fails by `{condition.text}` alone"
    return f"no check turns on `{condition.text}` being false"


def _all(parts: Sequence[Combine]) -> Combine:
    def combine(truths: Sequence[Truth]) -> Truth:
        values = [part(truths) for part in parts]
        return False if False in values else None if None in values else True

    return combine


def _any(parts: Sequence[Combine]) -> Combine:
    def combine(truths: Sequence[Truth]) -> Truth:
        values = [part(truths) for part in parts]
        return True if True in values else None if None in values else False

    return combine


def _choose(condition: Combine, then: Combine, otherwise: Combine) -> Combine:
    def combine(truths: Sequence[Truth]) -> Truth:
        chosen = condition(truths)
        return None if chosen is None else then(truths) if chosen else otherwise(truths)

    return combine


def _negate(part: Combine) -> Combine:
    def combine(truths: Sequence[Truth]) -> Truth:
        value = part(truths)
        return None if value is None else not value

    return combine
