"""Rules from text to functions: the variables that a rule may mention, and the compiled rule.

Knows the variables of a check; the language itself is `pdp.cel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from pdp.cel.checker import CheckedExpression, Variable, check
from pdp.cel.compiler import function_table, load_function
from pdp.cel.emit import Emitter
from pdp.cel.grammar import parse
from pdp.cel.syntax import Call, Conditional, Logic, Node
from pdp.cel.types import BOOL, DYN, INT, STRING, Type, list_of, map_of
from pdp.cel.unparse import unparse
from pdp.cel.walk import walk
from pdp.engines.cel.conditions import Requirements, needs

RULE_VARIABLES: Final[Mapping[str, Type]] = {
    "op": STRING,
    "role": STRING,
    "roles": list_of(STRING),
    "ref": STRING,
    "path": STRING,
    "contentType": STRING,
    "type": STRING,
    "api": map_of(STRING, DYN),
    "actions": list_of(STRING),
    "delegated": BOOL,
    "warehouse": STRING,
}
"""What a rule may mention, in the order in which `Program.evaluate` takes it."""
RULE_FIELDS: Final = {("api", "apiName"): STRING, ("api", "apiVersion"): INT}
"""Keys that map variables always have. To the checker their values are dyn, as all values of `api`."""
MISSING_REFERENCE: Final = "missing_reference"
_RULE_ARGUMENTS: Final = {name: name for name in RULE_VARIABLES}


class Program(msgspec.Struct, frozen=True, eq=False):
    """A compiled rule.

    `evaluate` takes the values of RULE_VARIABLES in order and returns a bool or raises RuleError, nothing else.
    `needs` are conditions without which the rule is false. `code` is the generated source with its constants;
    `warnings` are messages with offsets into `text`.
    """

    text: str
    code: str
    variables: frozenset[str]
    needs: Requirements
    evaluate: Callable[..., bool]
    warnings: tuple[tuple[str, int], ...]
    extensions: frozenset[str]

    def without_ref(self) -> Callable[..., bool]:
        """The same rule where no reference is known: any use of `ref` raises `missing_reference`."""
        if "ref" not in self.variables:
            return self.evaluate
        return _without_ref(self.text, self.extensions)


@lru_cache(maxsize=16_384)
def compile_program(text: str, extensions: frozenset[str] = frozenset()) -> Program:
    """The rule `text`, type-checked and compiled; raises CompileError."""
    checked = check(parse(text), RULE_VARIABLES, function_table(extensions))
    emitter = Emitter(checked, _RULE_ARGUMENTS, RULE_FIELDS)
    source = emitter.emit_function("rule", RULE_VARIABLES, wants_bool=True)
    evaluate = load_function(source, "rule", emitter)
    code = source + "".join(_legend(emitter.globals_of(source)))
    return Program(text, code, _mentioned(checked), needs(checked), evaluate, tuple(emitter.warnings), extensions)


class Part(msgspec.Struct, frozen=True, eq=False):
    """A sub-expression: its text, the variables it mentions, what it is made of and a function of all values by name.

    `conjunction` says that all `parts` must hold.
    """

    text: str
    variables: tuple[str, ...]
    parts: tuple[Part, ...]
    conjunction: bool
    evaluate: Callable[[Mapping[str, Any]], Any]


@lru_cache(maxsize=256)
def parts_of(text: str, extensions: frozenset[str] = frozenset(), lacks_ref: bool = False) -> Part:
    """A rule taken apart at its logic, for explaining; with `lacks_ref`, using `ref` raises."""
    checked = check(parse(text), RULE_VARIABLES, function_table(extensions))
    return _part(checked.root, checked, {"ref": MISSING_REFERENCE} if lacks_ref else {})


def _part(node: Node, checked: CheckedExpression, missing: Mapping[str, str]) -> Part:
    below: tuple[Node, ...] = ()
    if isinstance(node, Logic):
        below = node.parts
    elif isinstance(node, Conditional):
        below = (node.condition, node.then, node.otherwise)
    elif isinstance(node, Call) and node.function == "!_":
        below = node.args
    mine = msgspec.structs.replace(checked, root=node)
    emitter = Emitter(mine, _RULE_ARGUMENTS, RULE_FIELDS, missing)
    run = load_function(emitter.emit_function("part", RULE_VARIABLES, wants_bool=False), "part", emitter)
    variables = tuple(sorted(_mentioned(mine, node)))
    parts = tuple(_part(part, checked, missing) for part in below)
    conjunction = isinstance(node, Logic) and node.conjunction
    return Part(
        unparse(node),
        variables,
        parts,
        conjunction,
        lambda values: run(*[values.get(name, "") for name in RULE_VARIABLES]),
    )


@lru_cache(maxsize=16_384)
def _without_ref(text: str, extensions: frozenset[str]) -> Callable[..., bool]:
    checked = check(parse(text), RULE_VARIABLES, function_table(extensions))
    emitter = Emitter(checked, _RULE_ARGUMENTS, RULE_FIELDS, {"ref": MISSING_REFERENCE})
    return load_function(emitter.emit_function("rule", RULE_VARIABLES, wants_bool=True), "rule", emitter)


def _legend(scope: Mapping[str, Any]) -> list[str]:
    """The bound constants as comments, for a reader; added after compiling and never compiled."""
    return [f"# {name} = {_shown(value)}\n" for name, value in scope.items() if name[-1].isdigit()]


def _shown(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"{{{', '.join(map(repr, sorted(value)))}}}"
    if callable(value):
        return str(getattr(value, "__qualname__", value))
    return repr(value)


def _mentioned(checked: CheckedExpression, within: Node | None = None) -> frozenset[str]:
    """The variables that a tree mentions, or that one node of it does."""
    names = checked.names.items()
    nodes = None if within is None else set(walk(within))
    return frozenset(
        meaning.name for node, meaning in names if isinstance(meaning, Variable) and (nodes is None or node in nodes)
    )
