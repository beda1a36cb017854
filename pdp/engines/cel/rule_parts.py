"""Sub-expressions of a rule, each with a separate function, for explanations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from pdp.cel.checker import CheckedExpression, Variable
from pdp.cel.compiler import load_function
from pdp.cel.emit import Emitter
from pdp.cel.syntax import Call, Conditional, Logic, Node
from pdp.cel.unparse import unparse, walk
from pdp.engines.cel.program import MISSING_REFERENCE, RULE_ARGUMENTS, RULE_FIELDS, RULE_VARIABLES, check_rule


class RulePart(msgspec.Struct, frozen=True, eq=False):
    """A sub-expression: text, variables, smaller parts, and a function of the values of all variables.

    `conjunction`: the sub-expression is true only if all `parts` are.
    """

    text: str
    variables: tuple[str, ...]
    parts: tuple[RulePart, ...]
    conjunction: bool
    evaluate: Callable[[Mapping[str, Any]], Any]


@lru_cache(maxsize=256)
def split_rule(text: str, extensions: frozenset[str] = frozenset(), lacks_ref: bool = False) -> RulePart:
    """Split a rule at the logical operators and return the whole as a part. With `lacks_ref`, using `ref` raises."""
    checked = check_rule(text, extensions)
    return _part(checked.root, checked, {"ref": MISSING_REFERENCE} if lacks_ref else {})


def _part(node: Node, checked: CheckedExpression, missing: Mapping[str, str]) -> RulePart:
    emitter = Emitter(msgspec.structs.replace(checked, root=node), RULE_ARGUMENTS, RULE_FIELDS, missing)
    run = load_function(emitter.emit_function("part", RULE_VARIABLES, wants_bool=False), "part", emitter)
    return RulePart(
        unparse(node),
        tuple(sorted(_variables(node, checked))),
        tuple(_part(operand, checked, missing) for operand in _logical_operands(node)),
        isinstance(node, Logic) and node.conjunction,
        lambda values: run(*[values.get(name, "") for name in RULE_VARIABLES]),
    )


def _logical_operands(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Logic):
        return node.parts
    if isinstance(node, Conditional):
        return node.condition, node.then, node.otherwise
    if isinstance(node, Call) and node.function == "!_":
        return node.args
    return ()


def _variables(node: Node, checked: CheckedExpression) -> set[str]:
    meanings = map(checked.names.get, walk(node))
    return {meaning.name for meaning in meanings if isinstance(meaning, Variable)}
