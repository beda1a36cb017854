"""The type checker: names to declarations, calls to overloads, every node to its static type.

Follows the reference checker: longest qualified name first, containers from the inside out, local names before all.
With `strict` off everything is dyn and what is unknown fails at run time, as CEL has it for unchecked expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from pdp.cel.functions import Key, Overload, Table
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
    fresh,
    has_variables,
    is_variable,
    join,
    list_of,
    map_of,
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


class Variable(msgspec.Struct, frozen=True):
    """A name that stands for a declared variable."""

    name: str


class LocalName(msgspec.Struct, frozen=True):
    """A name that stands for a macro's variable."""

    node: Comprehension


class UndeclaredName(msgspec.Struct, frozen=True):
    """A name that nothing declares; fails at run time. Unchecked expressions only."""

    name: str


Meaning: TypeAlias = Variable | LocalName | UndeclaredName | TypeName


class ResolvedCall(msgspec.Struct, frozen=True):
    """The overloads that a call may be, and whether as a function although written like a method."""

    key: Key
    overloads: tuple[Overload, ...]
    args: tuple[Node, ...]


class CheckedExpression(msgspec.Struct, frozen=True):
    """A tree with what the checker found out; `types` has no variables left."""

    root: Node
    types: Mapping[Node, Type]
    names: Mapping[Node, Meaning]
    calls: Mapping[Node, ResolvedCall]


def check(
    root: Node, declarations: Declarations, table: Table, container: str = "", strict: bool = True
) -> CheckedExpression:
    """Types for every node of `root`; raises CompileError."""
    checker = _Checker(declarations, table, container, strict)
    checker.visit(root)
    types = {node: substitute(type, checker.bindings, True) for node, type in checker.types.items()}
    return CheckedExpression(root, types, checker.names, checker.calls)


class _Checker:
    def __init__(self, declarations: Declarations, table: Table, container: str, strict: bool) -> None:
        self.declarations = declarations
        self.table = table
        parts = container.split(".") if container else []
        self.prefixes = [".".join(parts[:count]) + "." for count in range(len(parts), 0, -1)] + [""]
        self.strict = strict
        self.bindings: Bindings = {}
        self.types: dict[Node, Type] = {}
        self.names: dict[Node, Meaning] = {}
        self.calls: dict[Node, ResolvedCall] = {}
        self.locals: list[Comprehension] = []
        self.local_types: dict[Comprehension, Type] = {}

    def visit(self, node: Node) -> Type:
        """The type of `node`, noted; every kind of node has one method."""
        if len(self.types) > MAX_NODES:
            raise CompileError(f"too large: more than {MAX_NODES} nodes", node.pos)
        found: Type = _VISITORS[type(node)](self, node)
        self.types[node] = found if self.strict else DYN
        return self.types[node]

    def constant(self, node: Constant) -> Type:
        return _CONSTANTS[type(node.value)]

    def name(self, node: Name) -> Type:
        type = self.lookup(node, node.name, node.rooted)
        return self.unknown(node, node.name) if type is None else type

    def lookup(self, node: Node, name: str, rooted: bool) -> Type | None:
        """Note what `name` stands for, locals first; None when nothing declares it."""
        local = None if rooted else self.local(name)
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

    def local(self, name: str) -> Comprehension | None:
        return next((local for local in reversed(self.locals) if local.variable == name), None)

    def unknown(self, node: Node, name: str) -> Type:
        if self.strict:
            raise CompileError(f"undeclared reference to `{name}`", node.pos)
        self.names[node] = UndeclaredName(name)
        return DYN

    def select(self, node: Select) -> Type:
        qualified = _qualified(node)
        if qualified is not None:
            name, base = qualified
            shadowed = not base.rooted and self.local(base.name) is not None
            type = None if shadowed else self.lookup(node, name, base.rooted)
            if type is not None:
                return type
        return self.field(node)

    def field(self, node: Select | Has) -> Type:
        operand = resolve(self.visit(node.operand), self.bindings)
        if operand.kind == "map":
            return operand.params[1]
        if operand.kind != "dyn" and not is_variable(operand):
            raise CompileError(f"type {operand} does not support field selection", node.pos)
        return DYN

    def has(self, node: Has) -> Type:
        self.field(node)
        return BOOL

    def logic(self, node: Logic) -> Type:
        for part in node.parts:
            self.want_bool(part, "&&" if node.conjunction else "||")
        return BOOL

    def want_bool(self, node: Node, where: str) -> None:
        type = self.visit(node)
        if not assign(type, BOOL, self.bindings):
            raise CompileError(f"`{where}` takes bool, not {substitute(type, self.bindings)}", node.pos)

    def conditional(self, node: Conditional) -> Type:
        self.want_bool(node.condition, "?:")
        then, otherwise = self.visit(node.then), self.visit(node.otherwise)
        joined = Type(f"?{node.pos}:{len(self.types)}")
        if not (assign(then, joined, self.bindings) and assign(otherwise, joined, self.bindings)):
            left, right = (substitute(type, self.bindings) for type in (then, otherwise))
            raise CompileError(f"both results of `?:` must have one type, not {left} and {right}", node.pos)
        return joined

    def list_of(self, node: ListOf) -> Type:
        element = join([self.visit(item) for item in node.items], self.bindings)
        return list_of(element or Type(f"?{node.pos}:{len(self.types)}"))

    def map_of(self, node: MapOf) -> Type:
        key = join([self.visit(key) for key, _ in node.entries], self.bindings)
        value = join([self.visit(value) for _, value in node.entries], self.bindings)
        suffix = f"{node.pos}:{len(self.types)}"
        return map_of(key or Type(f"?K{suffix}"), value or Type(f"?V{suffix}"))

    def comprehension(self, node: Comprehension) -> Type:
        self.local_types[node] = self.element(node.range)
        self.locals.append(node)
        try:
            if node.where is not None:
                self.want_bool(node.where, node.macro)
            if node.macro == "map":
                return list_of(self.visit(node.body))
            self.want_bool(node.body, node.macro)
        finally:
            self.locals.pop()
        return list_of(self.local_types[node]) if node.macro == "filter" else BOOL

    def element(self, range: Node) -> Type:
        type = resolve(self.visit(range), self.bindings)
        if type.kind in ("list", "map"):
            return type.params[0]
        if type.kind != "dyn" and not is_variable(type):
            raise CompileError(f"a macro walks a list or map, not {type}", range.pos)
        return DYN

    def call(self, node: Call) -> Type:
        key, args = self.callee(node)
        types = [self.visit(arg) for arg in args]
        overloads = self.table.get(key)
        if overloads is None:
            if self.strict:
                raise CompileError(f"undeclared function `{key[0]}`", node.pos)
            overloads = ()
        chosen, result = self.resolve_overloads(overloads, types, len(self.types))
        if not chosen and self.strict:
            shown = ", ".join(str(substitute(type, self.bindings)) for type in types)
            raise CompileError(f"no overload of `{key[0]}` for ({shown})", node.pos)
        self.calls[node] = ResolvedCall(key, chosen, args)
        return result

    def callee(self, node: Call) -> tuple[Key, tuple[Node, ...]]:
        """`strings.quote(x)` is a function of that name; `x.size()` is a method."""
        if node.target is None:
            return (node.function, False), node.args
        qualified = _qualified(node.target)
        if qualified is not None and (f"{qualified[0]}.{node.function}", False) in self.table:
            return (f"{qualified[0]}.{node.function}", False), node.args
        return (node.function, True), (node.target, *node.args)

    def resolve_overloads(
        self, overloads: tuple[Overload, ...], args: list[Type], call: int
    ) -> tuple[tuple[Overload, ...], Type]:
        """Every overload that the argument types allow, and the type they agree on, else dyn."""
        chosen: list[Overload] = []
        result: Type | None = None
        open_args = any(map(has_variables, args))
        for number, overload in enumerate(overloads):
            if len(overload.params) != len(args):
                continue
            binds = open_args or any(map(has_variables, overload.params))
            trial = dict(self.bindings) if binds else self.bindings
            params = [fresh(param, f"{call}.{number}") for param in overload.params]
            if all(assign(arg, param, trial) for arg, param in zip(args, params, strict=True)):
                self.bindings = trial
                chosen.append(overload)
                this = substitute(fresh(overload.result, f"{call}.{number}"), trial)
                result = this if result in (None, this) else DYN
        return tuple(chosen), result or DYN


def _qualified(node: Node) -> tuple[str, Name] | None:
    """`a.b.c` as one dotted name with its first part."""
    fields: list[str] = []
    while isinstance(node, Select):
        fields.append(node.field)
        node = node.operand
    if isinstance(node, Name):
        return ".".join([node.name, *reversed(fields)]), node
    return None


_VISITORS: Final[dict[type, Any]] = {
    Constant: _Checker.constant,
    Name: _Checker.name,
    Select: _Checker.select,
    Has: _Checker.has,
    Call: _Checker.call,
    Logic: _Checker.logic,
    Conditional: _Checker.conditional,
    ListOf: _Checker.list_of,
    MapOf: _Checker.map_of,
    Comprehension: _Checker.comprehension,
}
