"""Expressions from text to functions: parse, check, emit Python source, compile.

Generated source meets `exec` here and nowhere else. The source comes from the emitter; names and literals of the
expression reach it through the function's globals only.

Each fragment of code carries whether it may raise and, if all below is constant, its value. `&&` and `||` become
Python's `and` and `or` unless two operands may raise. Macros over lists and maps become comprehensions.

`exists` and `all` absorb errors of single elements, so a test that may raise needs the absorbing helpers. For other
tests, Python's `any` and `all` suffice. The other macros raise the error of any element, as a generator expression
does. Source: the CEL specification (langdef.md), "Macros".
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeAlias

from pdp.cel import containers
from pdp.cel.checker import CheckedExpression, LocalName, UndeclaredName, Variable, check
from pdp.cel.emission import CallEmitter, EmitState, Fragment, comparison
from pdp.cel.functions import STANDARD, FunctionTable, build_table
from pdp.cel.parser import parse
from pdp.cel.strings import string_functions
from pdp.cel.syntax import (
    Call,
    CompileError,
    Comprehension,
    Conditional,
    Constant,
    Has,
    ListOf,
    Logic,
    Macro,
    MapOf,
    Name,
    Node,
    Select,
)
from pdp.cel.types import Type, parse_type
from pdp.cel.values import RuleError, TypeName

MacroForm: TypeAlias = Callable[[str, Fragment, Fragment, Fragment | None], Fragment]
"""Function from the Python variable, the elements, the body and the filter of a macro to its code."""


def _exists(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    if body.raises:
        return Fragment(f"_exists(lambda {name}: {body.code}, {items.code})", raises=True)
    return Fragment(f"_any({body} for {name} in {items.code})", items.raises)


def _all(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    if body.raises:
        return Fragment(f"_every(lambda {name}: {body.code}, {items.code})", raises=True)
    return Fragment(f"_all({body} for {name} in {items.code})", items.raises)


def _exists_one(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    return Fragment(f"_sum(1 for {name} in {items.code} if {body}) == 1", items.raises or body.raises, atom=False)


def _map(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    condition = f" if {where}" if where is not None else ""
    raises = items.raises or body.raises or (where is not None and where.raises)
    return Fragment(f"_tuple({body} for {name} in {items.code}{condition})", raises)


def _filter(name: str, items: Fragment, body: Fragment, where: Fragment | None) -> Fragment:
    return Fragment(f"_tuple({name} for {name} in {items.code} if {body})", items.raises or body.raises)


MACRO_FORMS: Final[Mapping[Macro, MacroForm]] = {
    "exists": _exists,
    "all": _all,
    "exists_one": _exists_one,
    "map": _map,
    "filter": _filter,
}
"""Code of each macro."""


class Emitter:
    """Emitter of the source of one expression.

    `arguments` gives the Python parameter of each variable. `missing` gives variables without a value, with the message
    of the error that their use raises. `fields` gives keys that map variables always have, with the types of their
    values. `partial` are the variables whose value may be a PartialMap.
    """

    def __init__(
        self,
        checked: CheckedExpression,
        arguments: Mapping[str, str],
        fields: Mapping[tuple[str, str], Type] | None = None,
        missing: Mapping[str, str] | None = None,
        partial: Container[str] = (),
    ) -> None:
        self.checked = checked
        self._arguments = arguments
        self._missing = missing or {}
        self._partial = partial
        self._state = EmitState(checked, fields or {})
        self._names = self._state.names
        self._calls = CallEmitter(self._state)
        self._macro_variables: dict[Comprehension, str] = {}

    @property
    def warnings(self) -> tuple[tuple[str, int], ...]:
        """Return messages on parts that always raise, with offsets in the text; complete after `emit_function`."""
        return tuple(self._state.warnings)

    def emit_function(self, name: str, parameters: Iterable[str], wants_bool: bool) -> str:
        """Return the source of a Python function. With `wants_bool`, any result but a bool raises RuleError."""
        fragment = self._emit(self.checked.root)
        if wants_bool:
            fragment = self._state.require_bool(fragment, self.checked.root)
        # Work outside macros is bounded by the size of the expression, so only macros need a budget.
        start = "    _b = _budget()\n" if self._macro_variables else ""
        return f"def {name}({', '.join(parameters)}):\n{start}    return {fragment.code}\n"

    def globals_of(self, source: str) -> dict[str, Any]:
        """Return the globals that `source`, the result of `emit_function`, mentions."""
        return self._names.used_in(source)

    def _emit(self, node: Node) -> Fragment:
        fragment: Fragment = self._BY_CLASS[type(node)](self, node)
        return fragment

    def _emit_bool(self, node: Node) -> Fragment:
        return self._state.require_bool(self._emit(node), node)

    def _emit_constant(self, node: Constant) -> Fragment:
        return self._names.constant(node.value)

    def _emit_name(self, node: Node) -> Fragment:
        meaning = self.checked.names[node]
        if isinstance(meaning, LocalName):
            return Fragment(self._macro_variables[meaning.node])
        if isinstance(meaning, UndeclaredName):
            return self._names.fail(f"undeclared reference to `{meaning.name}`")
        if isinstance(meaning, TypeName):
            return self._names.constant(meaning)
        assert isinstance(meaning, Variable)
        if meaning.name in self._missing:
            return self._names.fail(self._missing[meaning.name])
        return Fragment(self._arguments[meaning.name], raises=meaning.name in self._partial)

    def _emit_select(self, node: Select) -> Fragment:
        if node in self.checked.names:
            return self._emit_name(node)
        operand, field = self._emit(node.operand), self._names.constant(node.field)
        if self._state.always_present(node):
            return Fragment(f"{operand}[{field}]", operand.raises)
        folded = self._names.fold(containers.get_field, (operand, field))
        return folded or Fragment(f"_field({operand.code}, {field.code})", raises=True)

    def _emit_has(self, node: Has) -> Fragment:
        operand, field = self._emit(node.operand), self._names.constant(node.field)
        folded = self._names.fold(containers.has_field, (operand, field))
        if folded:
            return folded
        if self._state.type(node.operand).kind == "map":
            return comparison(f"{field.code} in {operand}", operand.raises)
        return Fragment(f"_has_field({operand.code}, {field.code})", raises=True)

    def _emit_logic(self, node: Logic) -> Fragment:
        """Emit `&&` or `||` so that a deciding operand absorbs the errors of all others.

        - A constant that decides is the result. Any other constant changes nothing and is dropped.
        - Operands that cannot raise come first. If one decides, Python evaluates no later operand, so the error of a
          later operand is absorbed. If none decides, the last operand gives the result, be it a value or an error.
        - The changed order is invisible, because evaluation has no side effects.
        - Two operands that may raise need the helper: the error of the first must wait for the value of the second.
        """
        parts = [self._emit_bool(part) for part in node.parts]
        if any(part.known and part.value is not node.conjunction for part in parts):
            return self._names.constant(not node.conjunction)
        safe = [part for part in parts if not part.raises and not part.known]
        risky = [part for part in parts if part.raises]
        if len(risky) > 1:
            helper = "_all_of" if node.conjunction else "_any_of"
            risky = [Fragment(f"{helper}({', '.join(f'lambda: {part.code}' for part in risky)})", raises=True)]
        operands = safe + risky
        if len(operands) < 2:
            return operands[0] if operands else self._names.constant(node.conjunction)
        operator = " and " if node.conjunction else " or "
        return Fragment(operator.join(part.operand for part in operands), bool(risky), atom=False)

    def _emit_conditional(self, node: Conditional) -> Fragment:
        condition = self._emit_bool(node.condition)
        then, otherwise = self._emit(node.then), self._emit(node.otherwise)
        if condition.known:
            return then if condition.value else otherwise
        raises = condition.raises or then.raises or otherwise.raises
        return Fragment(f"{then} if {condition} else {otherwise}", raises, atom=False)

    def _emit_list(self, node: ListOf) -> Fragment:
        items = [self._emit(item) for item in node.items]
        folded = self._names.fold(lambda *values: values, items)
        if folded:
            return folded
        code = "".join(f"{item}, " for item in items)
        return self._state.charge_copy(Fragment(f"({code})", any(item.raises for item in items)))

    def _emit_map(self, node: MapOf) -> Fragment:
        pairs = [(self._emit(key), self._emit(value)) for key, value in node.entries]
        flat = [fragment for pair in pairs for fragment in pair]
        folded = self._names.fold(
            lambda *values: containers.build_map(zip(values[::2], values[1::2], strict=True)), flat
        )
        if folded:
            return folded
        # Distinct constant strings are valid keys and their own dict keys, so a dict display builds the map.
        keys = [key.value for key, _ in pairs]
        if all(isinstance(key, str) for key in keys) and len(set(keys)) == len(keys):
            code = ", ".join(f"{key}: {value}" for key, value in pairs)
            return self._state.charge_copy(Fragment(f"{{{code}}}", any(fragment.raises for fragment in flat)))
        code = "".join(f"({key}, {value}), " for key, value in pairs)
        return self._state.charge_copy(Fragment(f"_build_map(({code}))", raises=True))

    def _emit_comprehension(self, node: Comprehension) -> Fragment:
        items = self._emit_elements(node.range)
        # Every macro of the tree has a Python variable of its own, so that no inner macro hides an outer variable.
        name = self._macro_variables[node] = f"_v{len(self._macro_variables)}"
        self._state.macro_depth += 1
        body = self._emit(node.body)
        where = None if node.where is None else self._emit_bool(node.where)
        if node.macro != "map":
            body = self._state.require_bool(body, node.body)
        self._state.macro_depth -= 1
        return MACRO_FORMS[node.macro](name, items, body, where)

    def _emit_elements(self, range: Node) -> Fragment:
        fragment = self._emit(range)
        kind = self._state.type(range).kind
        code = {"list": fragment.code, "map": f"_keys({fragment.code})"}.get(kind, f"_elements({fragment.code})")
        return Fragment(f"_take(_b, {code})", fragment.raises or kind not in ("list", "map"))

    def _emit_call(self, node: Call) -> Fragment:
        return self._calls.emit(node, [self._emit(arg) for arg in self.checked.calls[node].args])

    _BY_CLASS: ClassVar[Mapping[type, Any]] = {
        Constant: _emit_constant,
        Name: _emit_name,
        Select: _emit_select,
        Has: _emit_has,
        Call: _emit_call,
        Logic: _emit_logic,
        Conditional: _emit_conditional,
        ListOf: _emit_list,
        MapOf: _emit_map,
        Comprehension: _emit_comprehension,
    }


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
