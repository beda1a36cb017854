"""Rules and expressions from text to functions: parse, check, emit, compile.

The only place where generated source meets `exec`; what runs came out of the emitter, with every name and literal of
the rule bound through the function's globals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from pdp.engines.cel import strings
from pdp.engines.cel.check import Checked, Variable, check
from pdp.engines.cel.conditions import Needs, needs
from pdp.engines.cel.emit import Emitter
from pdp.engines.cel.functions import STANDARD, Table, table
from pdp.engines.cel.grammar import parse
from pdp.engines.cel.syntax import Call, CompileError, Conditional, Logic, Node, descend
from pdp.engines.cel.text import text_of
from pdp.engines.cel.types import BOOL, DYN, INT, STRING, Type, list_of, map_of, parse_type
from pdp.engines.cel.values import RuleError

__all__ = [
    "EXTENSIONS",
    "MISSING_REFERENCE",
    "RULE_FIELDS",
    "RULE_VARIABLES",
    "CompileError",
    "Part",
    "Program",
    "RuleError",
    "compile_expression",
    "compile_program",
    "parts_of",
]

EXTENSIONS: Final[Mapping[str, Table]] = {"strings": table(strings.rows())}
"""What may be enabled beyond the standard library."""
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


class Program(msgspec.Struct, frozen=True, eq=False):
    """A compiled rule.

    `evaluate` takes the values of RULE_VARIABLES in order and returns a bool or raises RuleError, nothing else.
    `needs` are conditions without which the rule is false. `code` is the generated source with its constants;
    `warnings` are messages with offsets into `text`.
    """

    text: str
    code: str
    variables: frozenset[str]
    needs: Needs
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
    checked = check(parse(text), RULE_VARIABLES, _functions(extensions))
    emitter = Emitter(checked, _RULE_ARGUMENTS, RULE_FIELDS)
    source = emitter.function("rule", RULE_VARIABLES, wants_bool=True)
    evaluate = _load(source, "rule", emitter)
    code = source + "".join(_legend(emitter.globals(source)))
    return Program(text, code, _mentioned(checked), needs(checked), evaluate, tuple(emitter.warnings), extensions)


def compile_expression(
    text: str,
    declarations: Mapping[str, Type | str],
    container: str = "",
    extensions: frozenset[str] = frozenset(),
    strict: bool = True,
) -> Callable[[Mapping[str, Any]], Any]:
    """Any expression over declared variables, as a function of their values; with `strict` off it is not checked.

    Raises CompileError; the function raises RuleError.
    """
    types = {name: parse_type(type) if isinstance(type, str) else type for name, type in declarations.items()}
    checked = check(parse(text), types, _functions(extensions), container, strict)
    arguments = {name: f"_x{number}" for number, name in enumerate(types)}
    emitter = Emitter(checked, arguments)
    evaluate = _load(emitter.function("expression", arguments.values(), wants_bool=False), "expression", emitter)

    def run(bindings: Mapping[str, Any]) -> Any:
        unbound = object()
        given = [bindings.get(name, unbound) for name in arguments]
        if unbound in given:
            raise RuleError("no value for a declared variable")
        return evaluate(*given)

    return run


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
    checked = check(parse(text), RULE_VARIABLES, _functions(extensions))
    return _part(checked.root, checked, {"ref": MISSING_REFERENCE} if lacks_ref else {})


def _part(node: Node, checked: Checked, missing: Mapping[str, str]) -> Part:
    below: tuple[Node, ...] = ()
    if isinstance(node, Logic):
        below = node.parts
    elif isinstance(node, Conditional):
        below = (node.condition, node.then, node.otherwise)
    elif isinstance(node, Call) and node.function == "!_":
        below = node.args
    mine = msgspec.structs.replace(checked, root=node)
    emitter = Emitter(mine, _RULE_ARGUMENTS, RULE_FIELDS, missing)
    run = _load(emitter.function("part", RULE_VARIABLES, wants_bool=False), "part", emitter)
    variables = tuple(sorted(_mentioned(mine, node)))
    parts = tuple(_part(part, checked, missing) for part in below)
    conjunction = isinstance(node, Logic) and node.conjunction
    return Part(
        text_of(node),
        variables,
        parts,
        conjunction,
        lambda values: run(*[values.get(name, "") for name in RULE_VARIABLES]),
    )


@lru_cache(maxsize=16_384)
def _without_ref(text: str, extensions: frozenset[str]) -> Callable[..., bool]:
    checked = check(parse(text), RULE_VARIABLES, _functions(extensions))
    emitter = Emitter(checked, _RULE_ARGUMENTS, RULE_FIELDS, {"ref": MISSING_REFERENCE})
    return _load(emitter.function("rule", RULE_VARIABLES, wants_bool=True), "rule", emitter)


_RULE_ARGUMENTS: Final = {name: name for name in RULE_VARIABLES}


@lru_cache(maxsize=16)
def _functions(extensions: frozenset[str]) -> Table:
    """The standard library with `extensions`; raises ValueError for one that does not exist."""
    unknown = sorted(extensions - EXTENSIONS.keys())
    if unknown:
        raise ValueError(f"unknown CEL extension `{unknown[0]}`")
    functions = dict(STANDARD)
    for name in extensions:
        functions.update(EXTENSIONS[name])
    return functions


def _load(source: str, name: str, emitter: Emitter) -> Callable[..., Any]:
    """CPython's own limits on nesting come out as an error of the rule."""
    try:
        code = compile(source, "<cel>", "exec", dont_inherit=True)
    except (SyntaxError, RecursionError, MemoryError):
        raise CompileError("nested too deeply for the compiler", emitter.checked.root.pos) from None
    scope = emitter.globals(source)
    exec(code, scope)  # noqa: S102 - the emitter wrote it
    function: Callable[..., Any] = scope.pop(name)
    return function


def _legend(scope: Mapping[str, Any]) -> list[str]:
    """The bound constants as comments, for a reader; added after compiling and never compiled."""
    return [f"# {name} = {_shown(value)}\n" for name, value in scope.items() if name[-1].isdigit()]


def _shown(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"{{{', '.join(map(repr, sorted(value)))}}}"
    if callable(value):
        return str(getattr(value, "__qualname__", value))
    return repr(value)


def _mentioned(checked: Checked, within: Node | None = None) -> frozenset[str]:
    """The variables that a tree mentions, or that one node of it does."""
    names = checked.names.items()
    nodes = None if within is None else set(descend(within))
    return frozenset(
        meaning.name for node, meaning in names if isinstance(meaning, Variable) and (nodes is None or node in nodes)
    )
