"""What a rule needs: simple conditions on single variables, found in its tree, that must hold for it to be true.

A condition never raises, and where one does not hold the rule is false, whatever else stands in it: a false operand
absorbs the errors of the others. So rules can be chosen by their conditions and the others left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from pdp.cel import patterns
from pdp.cel.checker import CheckedExpression, Variable
from pdp.cel.syntax import Call, Constant, ListOf, Logic, Name, Node

Kind: TypeAlias = Literal["equals", "starts", "holds"]
_STRINGS: Final = frozenset({"op", "role", "ref", "path", "contentType", "type", "warehouse"})
_LISTS: Final = frozenset({"roles", "actions"})
_SHAPES: Final[Mapping[str, Kind]] = {"equals": "equals", "starts": "starts"}


class Condition(msgspec.Struct, frozen=True):
    """`variable` equals, or starts with, one of `texts`; or, being a list, holds one of them."""

    variable: str
    kind: Kind
    texts: frozenset[str]

    def met(self, value: Any) -> bool:
        """Whether a value of the variable meets the condition."""
        if self.kind == "equals":
            return value in self.texts
        if self.kind == "starts":
            return bool(value.startswith(tuple(self.texts)))
        return not self.texts.isdisjoint(value)


class Requirements(msgspec.Struct, frozen=True):
    """All `conditions` are necessary; `whole` says that together they are the rule."""

    conditions: tuple[Condition, ...]
    whole: bool


_ANYTHING: Final = Requirements((), whole=False)
_ALWAYS: Final = Requirements((), whole=True)
_NEVER: Final = Requirements((Condition("op", "equals", frozenset()),), whole=True)


def needs(checked: CheckedExpression) -> Requirements:
    """The conditions of a rule; its variables are those that rules may mention."""
    return _needs(checked.root, checked)


def _needs(node: Node, checked: CheckedExpression) -> Requirements:
    if isinstance(node, Logic):
        parts = [_needs(part, checked) for part in node.parts]
        return _all_of(parts) if node.conjunction else _any_of(parts)
    if isinstance(node, Constant) and isinstance(node.value, bool):
        return _ALWAYS if node.value else _NEVER
    condition = _condition(node, checked) if isinstance(node, Call) else None
    return Requirements((condition,), whole=True) if condition else _ANYTHING


def _all_of(parts: Sequence[Requirements]) -> Requirements:
    conditions = tuple(dict.fromkeys(condition for part in parts for condition in part.conditions))
    return Requirements(conditions, all(part.whole for part in parts))


def _any_of(parts: Sequence[Requirements]) -> Requirements:
    """What every part needs of the same variable in the same way; whole where no part needs more than that."""
    tables = [
        {(condition.variable, condition.kind): condition.texts for condition in part.conditions} for part in parts
    ]
    shared = [key for key in tables[0] if all(key in table for table in tables)]
    conditions = tuple(Condition(*key, frozenset().union(*(table[key] for table in tables))) for key in shared)
    whole = all(part.whole and len(part.conditions) == 1 for part in parts) and len(conditions) == 1
    return Requirements(conditions, whole)


def _condition(call: Call, checked: CheckedExpression) -> Condition | None:
    operands = (call.target, *call.args) if call.target is not None else call.args
    if len(operands) != 2:
        return None
    left, right = operands
    if call.function == "_==_":
        return _equals(left, right, checked) or _equals(right, left, checked)
    if call.function == "@in":
        return _in(left, right, checked)
    if call.function == "startsWith":
        return _on_string("starts", left, _text(right), checked)
    if call.function == "matches":
        return _matches(left, _text(right), checked)
    return None


def _equals(variable: Node, value: Node, checked: CheckedExpression) -> Condition | None:
    return _on_string("equals", variable, _text(value), checked)


def _in(left: Node, right: Node, checked: CheckedExpression) -> Condition | None:
    name = _variable(right, checked)
    if name in _LISTS and (text := _text(left)) is not None:
        return Condition(name, "holds", frozenset({text}))
    texts = [_text(item) for item in right.items] if isinstance(right, ListOf) else [None]
    name = _variable(left, checked)
    if name not in _STRINGS or None in texts:
        return None
    return Condition(name, "equals", frozenset(text for text in texts if text is not None))


def _matches(variable: Node, pattern: str | None, checked: CheckedExpression) -> Condition | None:
    shape = patterns.find_string_test(pattern) if pattern is not None else None
    name = _variable(variable, checked)
    if shape is None or shape.one_line or shape.kind not in _SHAPES or name not in _STRINGS:
        return None
    return Condition(name, _SHAPES[shape.kind], frozenset(shape.texts))


def _on_string(kind: Kind, variable: Node, text: str | None, checked: CheckedExpression) -> Condition | None:
    name = _variable(variable, checked)
    return Condition(name, kind, frozenset({text})) if name in _STRINGS and text is not None else None


def _variable(node: Node, checked: CheckedExpression) -> str:
    meaning = checked.names.get(node)
    return meaning.name if isinstance(node, Name) and isinstance(meaning, Variable) else ""


def _text(node: Node) -> str | None:
    return node.value if isinstance(node, Constant) and isinstance(node.value, str) else None
