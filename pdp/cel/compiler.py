"""Expressions from text to functions: parse, check, emit, compile.

Generated source meets `exec` here and nowhere else. The source comes from the emitter; names and literals of the
expression reach it through the function's globals only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from pdp.cel.checker import check
from pdp.cel.emit import Emitter
from pdp.cel.functions import STANDARD, FunctionTable, build_table
from pdp.cel.parser import parse
from pdp.cel.strings import string_functions
from pdp.cel.syntax import CompileError
from pdp.cel.types import Type, parse_type
from pdp.cel.values import RuleError

EXTENSIONS: Final[Mapping[str, FunctionTable]] = {"strings": build_table(string_functions())}
"""Functions beyond the standard library, by the name of the extension that enables them."""


def compile_expression(
    text: str,
    declarations: Mapping[str, Type | str],
    container: str = "",
    extensions: frozenset[str] = frozenset(),
    strict: bool = True,
) -> Callable[[Mapping[str, Any]], Any]:
    """Compile any expression over declared variables to a function of their values by name.

    With `strict` off, types are not checked at load. Raise CompileError for an invalid expression. The function raises
    RuleError if the evaluation fails or a declared variable has no value.
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
        values = [bindings.get(name, unbound) for name in arguments]
        if unbound in values:
            raise RuleError("no value for a declared variable")
        return evaluate(*values)

    return run


@lru_cache(maxsize=16)
def function_table(extensions: frozenset[str]) -> FunctionTable:
    """Return the standard library with `extensions`. Raise ValueError for an unknown extension."""
    unknown = sorted(extensions - EXTENSIONS.keys())
    if unknown:
        raise ValueError(f"unknown CEL extension `{unknown[0]}`")
    functions = dict(STANDARD)
    for name in extensions:
        functions.update(EXTENSIONS[name])
    return functions


def load_function(source: str, name: str, emitter: Emitter) -> Callable[..., Any]:
    """Compile and run `source`, and return its function `name`.

    Raise CompileError if the source exceeds a limit of CPython's compiler on nesting.
    """
    try:
        code = compile(source, "<cel>", "exec", dont_inherit=True)
    except (SyntaxError, RecursionError, MemoryError):
        raise CompileError("nested too deeply for the compiler", emitter.checked.root.pos) from None
    scope = emitter.globals_of(source)
    exec(code, scope)  # noqa: S102 - the emitter wrote it
    function: Callable[..., Any] = scope.pop(name)
    return function
