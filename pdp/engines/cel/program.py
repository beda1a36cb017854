"""Compiled rules: from the text of a rule to a native function, and the variables that a rule may mention.

Knows the variables of a check. The language itself is `pdp.cel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from pdp.cel.checker import CheckedExpression, Variable, check
from pdp.cel.compiler import function_table, load_function
from pdp.cel.emit import Emitter
from pdp.cel.parser import parse
from pdp.cel.types import BOOL, DYN, INT, STRING, Type, list_of, map_of
from pdp.engines.cel.conditions import Requirements, requirements_of

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
"""The variables that a rule may mention, in the order of the arguments of `Program.evaluate`."""
RULE_FIELDS: Final = {("api", "apiName"): STRING, ("api", "apiVersion"): INT}
"""Keys that map variables always have, with the types of the values. The checker gives `dyn` to all values of `api`."""
RULE_ARGUMENTS: Final = {name: name for name in RULE_VARIABLES}
"""The parameter of the generated function for each variable."""
MISSING_REFERENCE: Final = "missing_reference"
"""The error that a rule raises for `ref` where no ref is known."""


class Program(msgspec.Struct, frozen=True, eq=False):
    """A compiled rule.

    `evaluate` takes the values of RULE_VARIABLES in order and returns a bool or raises RuleError, nothing else.
    `requirements` are necessary conditions of the rule. `code` is the generated source with the constants of the rule;
    `warnings` are messages with offsets into `text`.
    """

    text: str
    code: str
    variables: frozenset[str]
    requirements: Requirements
    evaluate: Callable[..., bool]
    warnings: tuple[tuple[str, int], ...]
    extensions: frozenset[str]

    def without_ref(self) -> Callable[..., bool]:
        """Return the function for checks without a known ref: any use of `ref` raises `missing_reference`."""
        if "ref" not in self.variables:
            return self.evaluate
        return _without_ref(self.text, self.extensions)


@lru_cache(maxsize=16_384)
def compile_program(text: str, extensions: frozenset[str] = frozenset()) -> Program:
    """Check the types of the rule `text` and compile the rule.

    Raise CompileError if the rule is not valid.
    """
    checked = check_rule(text, extensions)
    emitter = Emitter(checked, RULE_ARGUMENTS, RULE_FIELDS)
    source = emitter.emit_function("rule", RULE_VARIABLES, wants_bool=True)
    evaluate = load_function(source, "rule", emitter)
    code = source + "".join(_legend(emitter.globals_of(source)))
    variables = frozenset(meaning.name for meaning in checked.names.values() if isinstance(meaning, Variable))
    return Program(text, code, variables, requirements_of(checked), evaluate, tuple(emitter.warnings), extensions)


def check_rule(text: str, extensions: frozenset[str]) -> CheckedExpression:
    """Parse the rule `text` and check the types.

    Raise CompileError if the rule is not valid.
    """
    return check(parse(text), RULE_VARIABLES, function_table(extensions))


@lru_cache(maxsize=16_384)
def _without_ref(text: str, extensions: frozenset[str]) -> Callable[..., bool]:
    emitter = Emitter(check_rule(text, extensions), RULE_ARGUMENTS, RULE_FIELDS, {"ref": MISSING_REFERENCE})
    return load_function(emitter.emit_function("rule", RULE_VARIABLES, wants_bool=True), "rule", emitter)


def _legend(scope: Mapping[str, Any]) -> list[str]:
    """Return the bound constants as comments for a reader. Callers add the comments after compiling the source."""
    return [f"# {name} = {_constant_text(value)}\n" for name, value in scope.items() if name[-1].isdigit()]


def _constant_text(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"{{{', '.join(map(repr, sorted(value)))}}}"
    if callable(value):
        return str(getattr(value, "__qualname__", value))
    return repr(value)
