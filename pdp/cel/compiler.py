"""Expressions from text to functions: parse, check, emit, compile.

The only place where generated source meets `exec`; what runs came out of the emitter, with every name and literal of
the rule bound through the function's globals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from pdp.cel import strings
from pdp.cel.checker import check
from pdp.cel.emit import Emitter
from pdp.cel.functions import STANDARD, FunctionTable, table
from pdp.cel.grammar import parse
from pdp.cel.syntax import CompileError
from pdp.cel.types import Type, parse_type
from pdp.cel.values import RuleError

EXTENSIONS: Final[Mapping[str, FunctionTable]] = {"strings": table(strings.rows())}
"""What may be enabled beyond the standard library."""


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
    checked = check(parse(text), types, function_table(extensions), container, strict)
    arguments = {name: f"_x{number}" for number, name in enumerate(types)}
    emitter = Emitter(checked, arguments)
    evaluate = load_function(
        emitter.emit_function("expression", arguments.values(), wants_bool=False), "expression", emitter
    )

    def run(bindings: Mapping[str, Any]) -> Any:
        unbound = object()
        given = [bindings.get(name, unbound) for name in arguments]
        if unbound in given:
            raise RuleError("no value for a declared variable")
        return evaluate(*given)

    return run


@lru_cache(maxsize=16)
def function_table(extensions: frozenset[str]) -> FunctionTable:
    """The standard library with `extensions`; raises ValueError for one that does not exist."""
    unknown = sorted(extensions - EXTENSIONS.keys())
    if unknown:
        raise ValueError(f"unknown CEL extension `{unknown[0]}`")
    functions = dict(STANDARD)
    for name in extensions:
        functions.update(EXTENSIONS[name])
    return functions


def load_function(source: str, name: str, emitter: Emitter) -> Callable[..., Any]:
    """CPython's own limits on nesting come out as an error of the rule."""
    try:
        code = compile(source, "<cel>", "exec", dont_inherit=True)
    except (SyntaxError, RecursionError, MemoryError):
        raise CompileError("nested too deeply for the compiler", emitter.checked.root.pos) from None
    scope = emitter.globals_of(source)
    exec(code, scope)  # noqa: S102 - the emitter wrote it
    function: Callable[..., Any] = scope.pop(name)
    return function
