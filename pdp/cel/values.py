"""Values of the language at run time, their kinds, equality and order.

bool, int, float, str, bytes, None and tuples are themselves; uint, timestamps, durations, types and the keys true and
false of maps need a class of their own, because Python holds `True == 1` and knows one kind of int only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

Value: TypeAlias = Any
"""None, bool, int, Uint, float, str, bytes, tuple, dict, Timestamp, Duration or TypeName."""

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class RuleError(Exception):
    """A rule that raised while it was evaluated; the text says what."""


class BudgetError(RuleError):
    """A rule that ran too long: nothing absorbs it."""


class Uint(int):
    """An unsigned 64-bit integer; equal to an int of the same size, as the language has it."""

    __slots__ = ()


class Timestamp(msgspec.Struct, frozen=True, order=True):
    """An instant, in nanoseconds since 1970 UTC."""

    nanos: int


class Duration(msgspec.Struct, frozen=True, order=True):
    """A span of time in nanoseconds."""

    nanos: int


class TypeName(msgspec.Struct, frozen=True):
    """A type as a value: what `type(x)` gives."""

    name: str


class _BoolKey(msgspec.Struct, frozen=True, eq=False):
    """A bool as the key of a map, distinct from the keys 0 and 1."""

    value: bool


TRUE_KEY: Final = _BoolKey(True)
FALSE_KEY: Final = _BoolKey(False)

KINDS: Final[Mapping[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    tuple: "list",
    dict: "map",
    Timestamp: "timestamp",
    Duration: "duration",
    TypeName: "type",
}
_FULL_NAMES: Final = {"timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}
_NUMBERS: Final = frozenset({"int", "uint", "double"})
_KEYS: Final = frozenset({"bool", "int", "uint", "string"})
LOOKUP_KEYS: Final = _KEYS | {"double"}
"""Kinds that may be looked up in a map."""
_ORDERED: Final = _NUMBERS | {"bool", "string", "bytes", "timestamp", "duration"}


def kind(value: Value) -> str:
    """The name of the value's type, as overloads are chosen by."""
    return KINDS[type(value)]


def type_of(value: Value) -> TypeName:
    name = kind(value)
    return TypeName(_FULL_NAMES.get(name, name))


def no_overload(function: str, *args: Value) -> RuleError:
    return RuleError(f"no such overload: {function}({', '.join(map(kind, args))})")


def boolean(value: Value) -> bool:
    """The value where only a bool will do."""
    if value is True or value is False:
        return value
    raise RuleError(f"not a boolean: {kind(value)}")


def _same_number(left: Value, right: Value) -> bool:
    """Across kinds a double decides: the other side is rounded to it, as in the reference implementations."""
    if type(left) is float or type(right) is float:
        return float(left) == float(right)
    return bool(left == right)


def _same_map(left: Mapping[Any, Value], right: Mapping[Any, Value]) -> bool:
    return len(left) == len(right) and all(key in right and equal(value, right[key]) for key, value in left.items())


def equal(left: Value, right: Value) -> bool:
    """`==` of any two values; values of different kinds are unequal, never an error."""
    a, b = KINDS[type(left)], KINDS[type(right)]
    if a in _NUMBERS and b in _NUMBERS:
        return _same_number(left, right)
    if a != b:
        return False
    if a == "list":
        return len(left) == len(right) and all(map(equal, left, right))
    if a == "map":
        return _same_map(left, right)
    return bool(left == right)


def unequal(left: Value, right: Value) -> bool:
    return not equal(left, right)


def _order(symbol: str, test: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def compare(left: Value, right: Value) -> bool:
        a, b = KINDS[type(left)], KINDS[type(right)]
        if a == b and a in _ORDERED:
            return test(left, right)
        if a in _NUMBERS and b in _NUMBERS:
            return test(float(left), float(right)) if "double" in (a, b) else test(left, right)
        raise no_overload(symbol, left, right)

    return compare


less: Final = _order("_<_", lambda a, b: bool(a < b))
less_equal: Final = _order("_<=_", lambda a, b: bool(a <= b))
greater: Final = _order("_>_", lambda a, b: bool(a > b))
greater_equal: Final = _order("_>=_", lambda a, b: bool(a >= b))


def _key(value: Value) -> Any:
    """A value as the dict that is a map holds it."""
    if value is True:
        return TRUE_KEY
    return FALSE_KEY if value is False else value


def build_map(entries: Iterable[tuple[Value, Value]]) -> dict[Any, Value]:
    """A map literal; raises on a key of another kind or a key that comes twice."""
    built: dict[Any, Value] = {}
    for key, value in entries:
        if KINDS[type(key)] not in _KEYS:
            raise RuleError(f"unsupported key type: {kind(key)}")
        if _key(key) in built:
            raise RuleError("repeated key in a map")
        built[_key(key)] = value
    return built


def keys(items: Mapping[Any, Value]) -> tuple[Value, ...]:
    """The keys of a map as values of the language."""
    return tuple(key.value if type(key) is _BoolKey else key for key in items)


def elements(items: Value) -> tuple[Value, ...]:
    """What a macro walks: a list, or the keys of a map."""
    if type(items) is tuple:
        return items
    if type(items) is dict:
        return keys(items)
    raise RuleError(f"not a list or map: {kind(items)}")


def key_in_map(key: Value, items: Mapping[Any, Value]) -> bool:
    """`key in items`; a double finds the whole number that it equals."""
    if KINDS[type(key)] not in LOOKUP_KEYS:
        raise no_overload("_in_", key, items)
    return _key(key) in items


def in_list(item: Value, items: tuple[Value, ...]) -> bool:
    return any(equal(item, other) for other in items)


def contained(item: Value, items: Value) -> bool:
    """`item in items` where the type of either is known at run time only."""
    if type(items) is tuple:
        return in_list(item, items)
    if type(items) is dict:
        return key_in_map(item, items)
    raise no_overload("_in_", item, items)


def _at(items: tuple[Value, ...], index: Value) -> Value:
    if type(index) is float and not index.is_integer():
        raise RuleError("invalid index: not a whole number")
    if not 0 <= index < len(items):
        raise RuleError(f"index out of bounds: {index}")
    return items[int(index)]


def lookup(items: Mapping[Any, Value], key: Value) -> Value:
    """`items[key]` of a map."""
    if key_in_map(key, items):
        return items[_key(key)]
    raise RuleError(f"no such key: {key!r:.80}")


def index(items: Value, key: Value) -> Value:
    """`items[key]` of a list or map."""
    if type(items) is dict:
        return lookup(items, key)
    if type(items) is tuple and KINDS[type(key)] in _NUMBERS:
        return _at(items, key)
    raise no_overload("_[_]", items, key)


def field(items: Value, name: str) -> Value:
    """`items.name`."""
    if type(items) is not dict:
        raise RuleError(f"type {kind(items)} does not support field selection")
    return lookup(items, name)


def has_field(items: Value, name: str) -> bool:
    """`has(items.name)`."""
    if type(items) is not dict:
        raise RuleError(f"type {kind(items)} does not support field selection")
    return name in items
