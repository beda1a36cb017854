"""Type checker: names to declarations, calls to overloads, and every node to its static type.

Follows the reference checkers. Names resolve as in "Name Resolution" of the CEL specification (langdef.md): the
variables of macros first, then the longest qualified name, and containers from the innermost out. With `strict` off,
every type is dyn and an unknown name or function fails at run time, as CEL requires for unchecked expressions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from pdp.cel.functions import FunctionKey, FunctionTable, Overload
from pdp.cel.syntax import (
    MAX_NODES,
    Call,
    CompileError,
    Comprehension,
    Conditional,
    Constant,
    Has,
    ListOf,
    Logic,
    MapOf,
    Name,
    Node,
    Select,
    word_hint,
)
from pdp.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    UINT,
    Bindings,
    Type,
    assign,
    has_variables,
    is_variable,
    join,
    list_of,
    map_of,
    rename_variables,
    resolve,
    substitute,
    type_type,
)
from pdp.cel.values import TypeName, Uint

_CONSTANTS: Final[dict[type, Type]] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
_TYPE_NAMES: Final = [
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "google.protobuf.Timestamp",
    "google.protobuf.Duration",
]

Declarations: TypeAlias = Mapping[str, Type]
"""Types of the variables, by name."""


class Variable(msgspec.Struct, frozen=True):
    """Meaning of a name: a declared variable."""

    name: str


class LocalName(msgspec.Struct, frozen=True):
    """Meaning of a name: the variable of the macro `node`."""

    node: Comprehension


class UndeclaredName(msgspec.Struct, frozen=True):
    """Meaning of a name without a declaration. The name fails at run time; unchecked expressions only."""

    name: str


Meaning: TypeAlias = Variable | LocalName | UndeclaredName | TypeName
"""Declaration that a name refers to."""


class ResolvedCall(msgspec.Struct, frozen=True):
    """Meaning of a call: the overloads that its static types allow, and all arguments, a method's target first.

    `key` differs from the node for a qualified function: `strings.quote(x)` is written like a method.
    """

    key: FunctionKey
    overloads: tuple[Overload, ...]
    args: tuple[Node, ...]


class CheckedExpression(msgspec.Struct, frozen=True):
    """Tree with the type of each node and the meaning of each name and call. The types contain no type variables."""

    root: Node
    types: Mapping[Node, Type]
    names: Mapping[Node, Meaning]
    calls: Mapping[Node, ResolvedCall]


def check(
    root: Node, declarations: Declarations, table: FunctionTable, container: str = "", strict: bool = True
) -> CheckedExpression:
    """Return the tree with types and meanings. Raise CompileError for an ill-typed expression.

    `container` is the namespace in which names are looked up, such as `a.b`.
    """
    checker = _Checker(declarations, table, container, strict)
    checker.visit(root)
    types = checker.types
    if checker.has_open_types:
        types = {node: substitute(type, checker.bindings, True) for node, type in types.items()}
    return CheckedExpression(root, types, checker.names, checker.calls)


class _Checker:
    """State of one check: the types and meanings so far, and the macros around the current node."""

    def __init__(self, declarations: Declarations, table: FunctionTable, container: str, strict: bool) -> None:
        self.declarations = declarations
        self.table = table
        parts = container.split(".") if container else []
        self.prefixes = [".".join(parts[:count]) + "." for count in range(len(parts), 0, -1)] + [""]
        self.strict = strict
        self.bindings: Bindings = {}
        self.has_open_types = False
        """True if the type of a node may contain a type variable."""
        self.types: dict[Node, Type] = {}
        self.names: dict[Node, Meaning] = {}
        self.calls: dict[Node, ResolvedCall] = {}
        self.locals: list[Comprehension] = []
        self.local_types: dict[Comprehension, Type] = {}

    def visit(self, node: Node) -> Type:
        """Infer and record the type of `node`. Raise CompileError beyond MAX_NODES."""
        if len(self.types) > MAX_NODES:
            raise CompileError(f"too large: more than {MAX_NODES} nodes", node.pos)
        inferred: Type = _INFERENCES[type(node)](self, node)
        self.types[node] = inferred if self.strict else DYN
        return self.types[node]

    def infer_constant(self, node: Constant) -> Type:
        return _CONSTANTS[type(node.value)]

    def infer_name(self, node: Name) -> Type:
        type = self.lookup(node, node.name, node.rooted)
        return self.fail_unknown(node, node.name) if type is None else type

    def lookup(self, node: Node, name: str, rooted: bool) -> Type | None:
        """Record the meaning of `name` and return its type; None if the name has no declaration."""
        local = self.find_local(name) if self.locals and not rooted else None
        if local is not None:
            self.names[node] = LocalName(local)
            return self.local_types[local]
        for candidate in [""] if rooted else self.prefixes:
            if candidate + name in self.declarations:
                self.names[node] = Variable(candidate + name)
                return self.declarations[candidate + name]
        if name in _TYPE_NAMES:
            self.names[node] = TypeName(name)
            return type_type(DYN)
        return None

    def find_local(self, name: str) -> Comprehension | None:
        """Return the innermost macro around the current node whose variable has this name."""
        return next((local for local in reversed(self.locals) if local.variable == name), None)

    def fail_unknown(self, node: Node, name: str) -> Type:
        """Raise CompileError; with `strict` off, record a name that fails at run time."""
        if self.strict:
            raise CompileError(f"undeclared reference to `{name}`", node.pos, word_hint(name))
        self.names[node] = UndeclaredName(name)
        return DYN

    def infer_select(self, node: Select) -> Type:
        qualified = _qualified(node)
        if qualified is not None:
            # `a.b.c` may be one declared name. A macro variable `a` hides all such names.
            name, base = qualified
            shadowed = not base.rooted and self.find_local(base.name) is not None
            type = None if shadowed else self.lookup(node, name, base.rooted)
            if type is not None:
                return type
        return self.infer_field(node)

    def infer_field(self, node: Select | Has) -> Type:
        operand = resolve(self.visit(node.operand), self.bindings)
        if operand.kind == "map":
            return operand.params[1]
        if operand.kind != "dyn" and not is_variable(operand):
            raise CompileError(f"type {operand} does not support field selection", node.pos)
        return DYN

    def infer_has(self, node: Has) -> Type:
        self.infer_field(node)
        return BOOL

    def infer_logic(self, node: Logic) -> Type:
        for part in node.parts:
            self.require_bool(part, "&&" if node.conjunction else "||")
        return BOOL

    def require_bool(self, node: Node, operator: str) -> None:
        type = self.visit(node)
        if type is not BOOL and not assign(type, BOOL, self.bindings):
            raise CompileError(f"`{operator}` takes bool, not {substitute(type, self.bindings)}", node.pos)

    def infer_conditional(self, node: Conditional) -> Type:
        self.require_bool(node.condition, "?:")
        then, otherwise = self.visit(node.then), self.visit(node.otherwise)
        # A new type variable takes the more general type of both results.
        joined = self.open_type(f"?{node.pos}:{len(self.types)}")
        if not (assign(then, joined, self.bindings) and assign(otherwise, joined, self.bindings)):
            left, right = (substitute(type, self.bindings) for type in (then, otherwise))
            raise CompileError(f"both results of `?:` must have one type, not {left} and {right}", node.pos)
        return joined

    def infer_list_of(self, node: ListOf) -> Type:
        element = join([self.visit(item) for item in node.items], self.bindings)
        return list_of(element or self.open_type(f"?{node.pos}:{len(self.types)}"))

    def infer_map_of(self, node: MapOf) -> Type:
        key = join([self.visit(key) for key, _ in node.entries], self.bindings)
        value = join([self.visit(value) for _, value in node.entries], self.bindings)
        suffix = f"{node.pos}:{len(self.types)}"
        return map_of(key or self.open_type(f"?K{suffix}"), value or self.open_type(f"?V{suffix}"))

    def open_type(self, kind: str) -> Type:
        """Return a new type variable."""
        self.has_open_types = True
        return Type(kind)

    def infer_comprehension(self, node: Comprehension) -> Type:
        self.local_types[node] = self.infer_element(node.range)
        self.locals.append(node)
        try:
            if node.where is not None:
                self.require_bool(node.where, node.macro)
            if node.macro == "map":
                return list_of(self.visit(node.body))
            self.require_bool(node.body, node.macro)
        finally:
            self.locals.pop()
        return list_of(self.local_types[node]) if node.macro == "filter" else BOOL

    def infer_element(self, range: Node) -> Type:
        type = resolve(self.visit(range), self.bindings)
        if type.kind in ("list", "map"):
            return type.params[0]
        if type.kind != "dyn" and not is_variable(type):
            raise CompileError(f"a macro walks a list or map, not {type}", range.pos)
        return DYN

    def infer_call(self, node: Call) -> Type:
        key, args = self.find_callee(node)
        types = [self.visit(arg) for arg in args]
        overloads = self.table.get(key)
        if overloads is None:
            if self.strict:
                raise CompileError(f"undeclared function `{key[0]}`", node.pos, word_hint(key[0]))
            overloads = ()
        chosen, result = self.choose_overloads(overloads, types)
        if not chosen and self.strict:
            arguments = ", ".join(str(substitute(type, self.bindings)) for type in types)
            raise CompileError(f"no overload of `{key[0]}` for ({arguments})", node.pos)
        self.calls[node] = ResolvedCall(key, chosen, args)
        return result

    def find_callee(self, node: Call) -> tuple[FunctionKey, tuple[Node, ...]]:
        """Return the function and its arguments; a method's target comes first.

        `strings.quote(x)` is a function if the table has the qualified name. Any other call with a target is a method.
        """
        if node.target is None:
            return (node.function, False), node.args
        qualified = _qualified(node.target)
        if qualified is not None and (f"{qualified[0]}.{node.function}", False) in self.table:
            return (f"{qualified[0]}.{node.function}", False), node.args
        return (node.function, True), (node.target, *node.args)

    def choose_overloads(self, overloads: tuple[Overload, ...], args: list[Type]) -> tuple[tuple[Overload, ...], Type]:
        """Return every overload that the argument types allow, and their common result type, or dyn.

        A dyn argument fits any parameter, so several overloads may remain; the emitted code then chooses by the kinds
        of the values. Without type variables in the arguments and the result, the choice depends on nothing else and
        binds no variable that another node mentions: all expressions share such choices.
        """
        if not (self.has_open_types and any(map(has_variables, args))):
            chosen, result = _choose_closed(overloads, tuple(args))
            if not has_variables(result):
                return chosen, result
            self.has_open_types = True
        chosen, result, self.bindings = _choose(overloads, args, self.bindings, len(self.types))
        return chosen, result


@lru_cache(maxsize=4096)
def _choose_closed(overloads: tuple[Overload, ...], args: tuple[Type, ...]) -> tuple[tuple[Overload, ...], Type]:
    chosen, result, _ = _choose(overloads, args, {}, 0)
    return chosen, result


def _choose(
    overloads: tuple[Overload, ...], args: Sequence[Type], bindings: Bindings, call: int
) -> tuple[tuple[Overload, ...], Type, Bindings]:
    """Return the overloads that the argument types allow, their result type, and the extended bindings.

    `call` is a number that no other call of the tree has.
    """
    chosen: list[Overload] = []
    common: Type | None = None
    for number, overload in enumerate(overloads):
        if len(overload.params) != len(args):
            continue
        trial = dict(bindings)  # a failed overload must leave no bindings behind
        params = [rename_variables(param, f"{call}.{number}") for param in overload.params]
        if all(assign(arg, param, trial) for arg, param in zip(args, params, strict=True)):
            # The reference checkers keep the bindings of every fitting overload, not of the first alone.
            bindings = trial
            chosen.append(overload)
            result = substitute(rename_variables(overload.result, f"{call}.{number}"), trial)
            common = result if common in (None, result) else DYN
    return tuple(chosen), common or DYN, bindings


def _qualified(node: Node) -> tuple[str, Name] | None:
    """Return the dotted name of `a.b.c` and the node of `a`; None if the node is not a chain of fields on a name."""
    fields: list[str] = []
    while isinstance(node, Select):
        fields.append(node.field)
        node = node.operand
    if isinstance(node, Name):
        return ".".join([node.name, *reversed(fields)]), node
    return None


_INFERENCES: Final[dict[type, Any]] = {
    Constant: _Checker.infer_constant,
    Name: _Checker.infer_name,
    Select: _Checker.infer_select,
    Has: _Checker.infer_has,
    Call: _Checker.infer_call,
    Logic: _Checker.infer_logic,
    Conditional: _Checker.infer_conditional,
    ListOf: _Checker.infer_list_of,
    MapOf: _Checker.infer_map_of,
    Comprehension: _Checker.infer_comprehension,
}
