"""Formulas of rules: logic over tests of single variables. Any other expression is an opaque test.

A formula is evaluated at a point: values for a part of the variables. The result is the set of possible outcomes,
as bits: a test of a variable without a value may be true or false, and an opaque test may also raise. Formulas absorb
errors as the language does. With every value chosen a single, exact outcome is left.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from pdp.cel import patterns
from pdp.cel.checker import CheckedExpression
from pdp.cel.syntax import Call, Comprehension, Conditional, Constant, Logic, Name, Node
from pdp.cel.unparse import canonical_text, children, variable_name
from pdp.cel.values import RuleError
from pdp.engines.cel.conditions import requirements_of

TRUE: Final = 1
FALSE: Final = 2
ERROR: Final = 4
_ANY: Final = TRUE | FALSE | ERROR

Key: TypeAlias = tuple[str, str]
"""A dimension of the search: (string variable, ""), (list variable, text in the list), or ("", opaque text)."""
Point: TypeAlias = Mapping[Key, Any]
"""Values by key: a string, a bool for lists and flags, an outcome for opaque tests. Missing keys are open."""


class Formula(msgspec.Struct, frozen=True):
    """A formula over the variables of a rule."""

    def outcomes(self, point: Point) -> int:
        """Return the possible outcomes at a point. The result may contain too many outcomes, never too few."""
        raise NotImplementedError

    def given(self, values: Mapping[str, Any]) -> Formula:
        """Return the formula with fixed values of variables."""
        return self

    def leaves(self) -> Iterator[Formula]:
        """Yield the tests of the formula."""
        yield self


class ConstantFormula(Formula, frozen=True):
    """A constant outcome."""

    outcome: int

    def outcomes(self, point: Point) -> int:
        """Return the constant."""
        return self.outcome


class TextTest(Formula, frozen=True):
    """Test that a string variable equals, starts with or ends with any of `texts`."""

    variable: str
    kind: str
    texts: frozenset[str]

    def outcomes(self, point: Point) -> int:
        """Return the outcome for the value at the point."""
        value = point.get((self.variable, ""))
        return TRUE | FALSE if value is None else _outcome(self.holds_for(value))

    def holds_for(self, value: str) -> bool:
        """Tell whether the test is true for a value of the variable."""
        if self.kind == "equals":
            return value in self.texts
        texts = tuple(self.texts)
        return value.startswith(texts) if self.kind == "starts" else value.endswith(texts)

    def given(self, values: Mapping[str, Any]) -> Formula:
        """Decide the test if the variable has a value."""
        if self.variable not in values:
            return self
        return ConstantFormula(_outcome(self.holds_for(values[self.variable])))


class FlagTest(Formula, frozen=True):
    """A bool variable is true, or with `text`, a list variable holds the text."""

    variable: str
    text: str = ""

    def outcomes(self, point: Point) -> int:
        """Return the outcome for the value at the point."""
        value = point.get((self.variable, self.text))
        return TRUE | FALSE if value is None else _outcome(value)

    def given(self, values: Mapping[str, Any]) -> Formula:
        """Decide the test if the variable has a value."""
        if self.variable not in values:
            return self
        value = values[self.variable]
        return ConstantFormula(_outcome(value is True or (value is not False and self.text in value)))


class OpaqueTest(Formula, frozen=True):
    """Any other expression. Two with the same text have the same outcome.

    `decide` returns the outcome for a value of `variable`, if the expression has this variable only.
    """

    text: str
    variable: str = ""
    decide: Callable[[str], bool] | None = None

    def outcomes(self, point: Point) -> int:
        """Return the outcome of the expression at the point."""
        outcome: int = point.get(("", self.text), _ANY)
        return outcome

    def given(self, values: Mapping[str, Any]) -> Formula:
        """Decide the expression if possible; otherwise return a different opaque test.

        The expression with fixed variables may have another outcome than the open expression. The two must not
        share a key, or a search would make both outcomes equal.
        """
        if self.decide is None or self.variable not in values:
            return OpaqueTest(f"{self.text} given {sorted(values.items())}", self.variable, self.decide)
        return ConstantFormula(_outcome(self.decide(values[self.variable])))


class Negation(Formula, frozen=True):
    """The operator `!`."""

    part: Formula

    def outcomes(self, point: Point) -> int:
        """Swap TRUE and FALSE of the part; errors stay."""
        outcomes = self.part.outcomes(point)
        return (outcomes & ERROR) | (outcomes & TRUE) << 1 | (outcomes & FALSE) >> 1

    def given(self, values: Mapping[str, Any]) -> Formula:
        """Return the negation of the part with the values."""
        return Negation(self.part.given(values))

    def leaves(self) -> Iterator[Formula]:
        """Yield the tests of the part."""
        yield from self.part.leaves()


class Connective(Formula, frozen=True):
    """The operators `&&` and `||`. A single operand with the deciding outcome decides, even if others raise."""

    conjunction: bool
    parts: tuple[Formula, ...]

    def outcomes(self, point: Point) -> int:
        """Combine the outcomes of the parts as if the parts were independent.

        The deciding outcome is certain if a part has no other outcome, and possible if a part may have this outcome.
        The other outcome is possible if every part may have it. An error is possible if a part may raise and no part
        decides: every part that is not certain to decide may have another outcome.
        """
        deciding, other = (FALSE, TRUE) if self.conjunction else (TRUE, FALSE)
        union, every = 0, other
        for part in self.parts:
            outcomes = part.outcomes(point)
            if outcomes == deciding:
                return deciding
            union |= outcomes
            every &= outcomes
        return every | (union & (deciding | ERROR))

    def given(self, values: Mapping[str, Any]) -> Formula:
        """Return the connective of the parts with the values."""
        return Connective(self.conjunction, tuple(part.given(values) for part in self.parts))

    def leaves(self) -> Iterator[Formula]:
        """Yield the tests of all parts."""
        for part in self.parts:
            yield from part.leaves()


class Choice(Formula, frozen=True):
    """The operator `condition ? then : otherwise`."""

    condition: Formula
    then: Formula
    otherwise: Formula

    def outcomes(self, point: Point) -> int:
        """Join the outcomes of the possible branches and the errors of the condition."""
        outcomes = self.condition.outcomes(point)
        then = self.then.outcomes(point) if outcomes & TRUE else 0
        otherwise = self.otherwise.outcomes(point) if outcomes & FALSE else 0
        return then | otherwise | (outcomes & ERROR)

    def given(self, values: Mapping[str, Any]) -> Formula:
        """Return the choice with the values in the condition and both branches."""
        return Choice(self.condition.given(values), self.then.given(values), self.otherwise.given(values))

    def leaves(self) -> Iterator[Formula]:
        """Yield the tests of the condition and both branches."""
        for part in (self.condition, self.then, self.otherwise):
            yield from part.leaves()


def formula_of(checked: CheckedExpression) -> Formula:
    """Return the formula of a rule."""
    return _formula(checked.root, checked)


def _outcome(value: object) -> int:
    return TRUE if value else FALSE


def _formula(node: Node, checked: CheckedExpression) -> Formula:
    if isinstance(node, Logic):
        return Connective(node.conjunction, tuple(_formula(part, checked) for part in node.parts))
    if isinstance(node, Conditional):
        return Choice(*(_formula(part, checked) for part in (node.condition, node.then, node.otherwise)))
    if isinstance(node, Constant) and isinstance(node.value, bool):
        return ConstantFormula(_outcome(node.value))
    if isinstance(node, Name) and (name := variable_name(node, checked)):
        return FlagTest(name)
    if isinstance(node, Call):
        return _call(node, checked) or OpaqueTest(canonical_text(node))
    return OpaqueTest(canonical_text(node))


def _call(node: Call, checked: CheckedExpression) -> Formula | None:
    if node.function == "!_":
        return Negation(_formula(node.args[0], checked))
    if node.function == "_!=_":
        equality = _condition(Call(node.pos, node.depth, "_==_", None, node.args), checked)
        return Negation(equality) if equality else None
    return _condition(node, checked) or _text_test(node, checked)


def _condition(node: Call, checked: CheckedExpression) -> Formula | None:
    """Return the call as a test, if the call is a single condition of `pdp.engines.cel.conditions`.

    The search for contradictions cannot handle `contains`: `_text_test` makes an opaque test instead.
    """
    requirements = requirements_of(CheckedExpression(node, checked.types, checked.names, checked.calls))
    if not requirements.sufficient or len(requirements.conditions) != 1:
        return None
    (condition,) = requirements.conditions
    if condition.kind == "contains":
        return None
    if condition.kind == "holds":
        (text,) = condition.texts
        return FlagTest(condition.variable, text)
    return TextTest(condition.variable, condition.kind, condition.texts)


def _text_test(node: Call, checked: CheckedExpression) -> Formula | None:
    """Return an opaque test with `decide` of `contains` and `matches`."""
    operands = (node.target, *node.args) if node.target is not None else node.args
    name = variable_name(operands[0], checked) if len(operands) == 2 and operands[0] is not None else ""
    text = operands[1].value if name and isinstance(operands[1], Constant) else None
    if not isinstance(text, str):
        return None
    if node.function == "contains":
        return OpaqueTest(canonical_text(node), name, lambda value: text in value)
    return _pattern(node, name, text) if node.function == "matches" else None


def _pattern(node: Node, name: str, pattern: str) -> Formula | None:
    try:
        return OpaqueTest(canonical_text(node), name, patterns.compile_pattern(pattern).find)
    except RuleError:
        return None


_BOTH: Final = frozenset({True, False})
_NONE: Final[frozenset[bool]] = frozenset()


def possible_results(node: Node, failing: Container[Node]) -> frozenset[bool]:
    """Return the possible results of a part, in doubt too many; none for a part that always raises, as in `failing`.

    A value that is no bool counts as both results.
    """
    if node in failing:
        return _NONE
    if isinstance(node, Constant):
        return frozenset((node.value,)) if isinstance(node.value, bool) else _BOTH
    below = [possible_results(child, failing) for child in children(node)]
    if isinstance(node, Logic):
        rest = node.conjunction
        decided = [not rest] if any((not rest) in part for part in below) else []
        return frozenset([*decided, rest] if all(rest in part for part in below) else decided)
    if isinstance(node, Conditional):
        condition, then, otherwise = below
        return (then if True in condition else _NONE) | (otherwise if False in condition else _NONE)
    if isinstance(node, Comprehension):
        found = _BOTH - {True} if node.macro in ("exists", "exists_one") and True not in below[1] else _BOTH
        return found if below[0] else _NONE
    if isinstance(node, Call) and node.function == "!_":
        return frozenset(not value for value in below[0])
    return _BOTH if all(below) else _NONE
