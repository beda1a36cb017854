"""Static types and their unification, after the checkers of the reference implementations.

`dyn` is assignable in both directions. A type variable is bound to the most general type among its uses. Source: the
CEL specification (langdef.md), "Gradual Type Checking", and `checker/types.go` of cel-go.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec


class Type(msgspec.Struct, frozen=True):
    """Type: a kind and, for lists, maps and types, parameters. A kind that begins with `?` is a type variable."""

    kind: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.params))
        name = "dyn" if self.kind.startswith("?") else self.kind
        return f"{name}({inner})" if inner else name


DYN: Final = Type("dyn")
NULL: Final = Type("null_type")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
TIMESTAMP: Final = Type("timestamp")
DURATION: Final = Type("duration")
A: Final = Type("?A")
B: Final = Type("?B")

_SIMPLE: Final = {str(t): t for t in (DYN, NULL, BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)}
_ALIASES: Final = {
    "null": NULL,
    "google.protobuf.Timestamp": TIMESTAMP,
    "google.protobuf.Duration": DURATION,
    "list": Type("list", (DYN,)),
    "map": Type("map", (DYN, DYN)),
}

Bindings = dict[str, Type]
"""Types bound to type variables, by the kind of the variable."""


def list_of(element: Type) -> Type:
    """Return the type of lists of `element`."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of maps from `key` to `value`."""
    return Type("map", (key, value))


def type_type(inner: Type) -> Type:
    """Return the type of the type value `inner`."""
    return Type("type", (inner,))


def parse_type(text: str) -> Type:
    """Return the type of a declaration such as `map(string, list(int))`. Raise ValueError for an unknown type."""
    text = text.strip()
    if text in _SIMPLE or text in _ALIASES:
        return _SIMPLE.get(text) or _ALIASES[text]
    match = re.fullmatch(r"(list|type)\((.*)\)", text)
    if match:
        return Type(match[1], (parse_type(match[2]),))
    match = re.fullmatch(r"map\((\w+)\s*,(.*)\)", text)
    if match:
        return map_of(parse_type(match[1]), parse_type(match[2]))
    raise ValueError(f"unknown type `{text}`")


def is_variable(type: Type) -> bool:
    """Tell whether `type` is a type variable."""
    return type.kind[0] == "?"


def has_variables(type: Type) -> bool:
    """Tell whether `type` is or contains a type variable."""
    return is_variable(type) or any(map(has_variables, type.params))


def resolve(type: Type, bindings: Bindings) -> Type:
    """Return the type that a variable is bound to, or `type` itself. Parameters are left as they are."""
    while is_variable(type) and type.kind in bindings:
        type = bindings[type.kind]
    return type


def substitute(type: Type, bindings: Bindings, free_to_dyn: bool = False) -> Type:
    """Replace bound variables at every level. Free variables stay, or become dyn with `free_to_dyn`."""
    type = resolve(type, bindings)
    if is_variable(type):
        return DYN if free_to_dyn else type
    if not type.params:
        return type
    return Type(type.kind, tuple(substitute(param, bindings, free_to_dyn) for param in type.params))


def rename_variables(type: Type, suffix: str) -> Type:
    """Return the type with `suffix` added to each variable, so that two calls of one function share no variable."""
    if is_variable(type):
        return Type(type.kind + suffix)
    if not type.params:
        return type
    return Type(type.kind, tuple(rename_variables(param, suffix) for param in type.params))


def _occurs(variable: Type, type: Type, bindings: Bindings) -> bool:
    type = resolve(type, bindings)
    return type == variable or any(_occurs(variable, param, bindings) for param in type.params)


def _is_more_general(left: Type, right: Type) -> bool:
    """Tell whether `left` contains every value of `right`. `dyn` contains every value."""
    if left.kind == "dyn" or is_variable(left):
        return True
    if right.kind == "dyn" or is_variable(right) or left.kind != right.kind:
        return False
    return all(map(_is_more_general, left.params, right.params))


def _assign_variable(source: Type, variable: Type, bindings: Bindings) -> bool:
    """Bind `variable` to `source`, or compare `source` with the bound type and keep the more general of both.

    The occurs check refuses `A = list(A)`, an infinite type.
    """
    bound = bindings.get(variable.kind)
    if bound is not None:
        if not assign(source, bound, bindings):
            return False
        if _is_more_general(source, bound) and not _occurs(variable, source, bindings):
            bindings[variable.kind] = source
        return True
    if resolve(source, bindings) != variable:
        if _occurs(variable, source, bindings):
            return False
        bindings[variable.kind] = source
    return True


def assign(source: Type, target: Type, bindings: Bindings) -> bool:
    """Tell whether a value of type `source` is allowed as a `target`. Add the type variables bound on the way.

    After False, `bindings` may hold a part of the new variables: a caller that goes on must pass a copy.
    """
    if is_variable(target):
        return _assign_variable(source, target, bindings)
    if is_variable(source):
        return _assign_variable(target, source, bindings)
    if source.kind == "dyn" or target.kind == "dyn":
        return True
    if source.kind != target.kind:
        return False
    if source.kind == "type":
        return True
    return all(assign(a, b, bindings) for a, b in zip(source.params, target.params, strict=True))


def join(types: list[Type], bindings: Bindings) -> Type | None:
    """Return the element type of a literal: the common type, or dyn if there is none. Return None for no elements."""
    joined: Type | None = None
    for type in types:
        if joined is None:
            joined = type
        elif joined != type:
            trial = dict(bindings)
            if not assign(type, joined, trial):
                return DYN
            bindings.update(trial)
            left, right = substitute(joined, bindings), substitute(type, bindings)
            joined = left if _is_more_general(left, right) else right
    return joined
