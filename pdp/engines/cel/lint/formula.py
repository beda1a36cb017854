"""A rule as a formula over tests of single variables; what is no such test is an opaque part that may be anything.

Outcomes are sets: a test of a variable whose value is not chosen yet may be true or false, an opaque part may raise,
too. A formula absorbs errors as the language does, so with every value chosen one outcome is left, and it is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from pdp.cel import patterns
from pdp.cel.checker import CheckedExpression
from pdp.cel.syntax import Call, Conditional, Constant, Logic, Name, Node
from pdp.cel.values import RuleError
from pdp.cel.walk import canonical_text, variable_name
from pdp.engines.cel import conditions

TRUE: Final = 1
FALSE: Final = 2
ERROR: Final = 4
_ANY: Final = TRUE | FALSE | ERROR

Key: TypeAlias = tuple[str, str]
"""What has a value: a variable, or a list and a text that it may hold, or ("", text) for an opaque part."""
Point: TypeAlias = Mapping[Key, Any]


class Formula(msgspec.Struct, frozen=True):
    """`outcomes` at a point that may be partial; `given` some variables the formula that is left."""

    def outcomes(self, point: Point) -> int:
        raise NotImplementedError

    def given(self, values: Mapping[str, Any]) -> Formula:
        return self

    def leaves(self) -> Iterator[Formula]:
        yield self


class ConstantFormula(Formula, frozen=True):
    """A constant."""

    outcome: int

    def outcomes(self, point: Point) -> int:
        return self.outcome


class Text(Formula, frozen=True):
    """A string variable equals, starts with or ends with one of `texts`."""

    variable: str
    test: str
    texts: frozenset[str]

    def outcomes(self, point: Point) -> int:
        value = point.get((self.variable, ""))
        return TRUE | FALSE if value is None else TRUE if self.holds(value) else FALSE

    def holds(self, value: str) -> bool:
        if self.test == "equals":
            return value in self.texts
        texts = tuple(self.texts)
        return value.startswith(texts) if self.test == "starts" else value.endswith(texts)

    def given(self, values: Mapping[str, Any]) -> Formula:
        if self.variable not in values:
            return self
        return ConstantFormula(TRUE if self.holds(values[self.variable]) else FALSE)


class Flag(Formula, frozen=True):
    """A bool variable, or with `text` whether a list variable holds it."""

    variable: str
    text: str = ""

    def outcomes(self, point: Point) -> int:
        value = point.get((self.variable, self.text))
        return TRUE | FALSE if value is None else TRUE if value else FALSE

    def given(self, values: Mapping[str, Any]) -> Formula:
        if self.variable not in values:
            return self
        value = values[self.variable]
        return ConstantFormula(TRUE if value is True or (value is not False and self.text in value) else FALSE)


class Opaque(Formula, frozen=True):
    """Any other expression; two of the same text have the same outcome. `decide` is there if it is of one variable."""

    text: str
    variable: str = ""
    decide: Callable[[str], bool] | None = None

    def outcomes(self, point: Point) -> int:
        outcome: int = point.get(("", self.text), _ANY)
        return outcome

    def given(self, values: Mapping[str, Any]) -> Formula:
        """With other values it is another expression: what it was may have another outcome elsewhere."""
        if self.decide is None or self.variable not in values:
            return Opaque(f"{self.text} given {sorted(values.items())}", self.variable, self.decide)
        return ConstantFormula(TRUE if self.decide(values[self.variable]) else FALSE)


class Inverse(Formula, frozen=True):
    """`!`."""

    part: Formula

    def outcomes(self, point: Point) -> int:
        found = self.part.outcomes(point)
        return (found & ERROR) | (found & TRUE) << 1 | (found & FALSE) >> 1

    def given(self, values: Mapping[str, Any]) -> Formula:
        return Inverse(self.part.given(values))

    def leaves(self) -> Iterator[Formula]:
        yield from self.part.leaves()


class Chain(Formula, frozen=True):
    """`&&` or `||`: one part of the deciding outcome decides, whatever the others do."""

    conjunction: bool
    parts: tuple[Formula, ...]

    def outcomes(self, point: Point) -> int:
        deciding, other = (FALSE, TRUE) if self.conjunction else (TRUE, FALSE)
        union, every, open = 0, other, True
        for part in self.parts:
            found = part.outcomes(point)
            if found == deciding:
                return deciding
            union |= found
            every &= found
            open = open and found != deciding
        return every | (union & deciding) | (union & ERROR if open else 0)

    def given(self, values: Mapping[str, Any]) -> Formula:
        return Chain(self.conjunction, tuple(part.given(values) for part in self.parts))

    def leaves(self) -> Iterator[Formula]:
        for part in self.parts:
            yield from part.leaves()


class Choice(Formula, frozen=True):
    """`condition ? then : otherwise`."""

    condition: Formula
    then: Formula
    otherwise: Formula

    def outcomes(self, point: Point) -> int:
        found = self.condition.outcomes(point)
        then = self.then.outcomes(point) if found & TRUE else 0
        otherwise = self.otherwise.outcomes(point) if found & FALSE else 0
        return then | otherwise | (found & ERROR)

    def given(self, values: Mapping[str, Any]) -> Formula:
        return Choice(self.condition.given(values), self.then.given(values), self.otherwise.given(values))

    def leaves(self) -> Iterator[Formula]:
        for part in (self.condition, self.then, self.otherwise):
            yield from part.leaves()


def formula(checked: CheckedExpression) -> Formula:
    """The formula of a rule."""
    return _formula(checked.root, checked)


def _formula(node: Node, checked: CheckedExpression) -> Formula:
    if isinstance(node, Logic):
        return Chain(node.conjunction, tuple(_formula(part, checked) for part in node.parts))
    if isinstance(node, Conditional):
        return Choice(*(_formula(part, checked) for part in (node.condition, node.then, node.otherwise)))
    if isinstance(node, Constant) and isinstance(node.value, bool):
        return ConstantFormula(TRUE if node.value else FALSE)
    if isinstance(node, Name) and (name := variable_name(node, checked)):
        return Flag(name)
    if isinstance(node, Call):
        return _call(node, checked) or Opaque(canonical_text(node))
    return Opaque(canonical_text(node))


def _call(node: Call, checked: CheckedExpression) -> Formula | None:
    if node.function == "!_":
        return Inverse(_formula(node.args[0], checked))
    if node.function == "_!=_":
        equality = _condition(Call(node.pos, node.depth, "_==_", None, node.args), checked)
        return Inverse(equality) if equality else None
    return _condition(node, checked) or _text_test(node, checked)


def _condition(node: Call, checked: CheckedExpression) -> Formula | None:
    """What rules are selected by is a test as it stands."""
    found = conditions.requirements_of(CheckedExpression(node, checked.types, checked.names, checked.calls))
    if not found.sufficient or len(found.conditions) != 1:
        return None
    (condition,) = found.conditions
    if condition.kind == "holds":
        (text,) = condition.texts
        return Flag(condition.variable, text)
    return Text(condition.variable, condition.kind, condition.texts)


def _text_test(node: Call, checked: CheckedExpression) -> Formula | None:
    """`endsWith`, and patterns and parts, which are opaque but can be decided where the text is known."""
    operands = (node.target, *node.args) if node.target is not None else node.args
    name = variable_name(operands[0], checked) if len(operands) == 2 and operands[0] is not None else ""
    text = operands[1].value if name and isinstance(operands[1], Constant) else None
    if not isinstance(text, str):
        return None
    if node.function == "endsWith":
        return Text(name, "ends", frozenset({text}))
    if node.function == "contains":
        return Opaque(canonical_text(node), name, lambda value: text in value)
    return _pattern(node, name, text) if node.function == "matches" else None


def _pattern(node: Node, name: str, text: str) -> Formula | None:
    shape = patterns.find_string_test(text)
    if shape and shape.kind == "ends" and not shape.one_line:
        return Text(name, "ends", frozenset(shape.texts))
    try:
        return Opaque(canonical_text(node), name, patterns.compile_pattern(text).find)
    except RuleError:
        return None
