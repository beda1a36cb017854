"""Lists and maps: map literals, membership, indexes and fields.

Source: the CEL specification (langdef.md), "Aggregate Values", "Field Selection" and "List Operators" to "Map
Operators". A map is a dict whose bool keys are `BoolKey`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pdp.cel.values import (
    FALSE_KEY,
    KINDS,
    NUMBERS,
    TRUE_KEY,
    BoolKey,
    PartialMap,
    RuleError,
    Value,
    equal,
    kind_of,
    overload_error,
)

_KEYS: Final = frozenset({"bool", "int", "uint", "string"})
_MAPS: Final = frozenset({dict, PartialMap})
LOOKUP_KEYS: Final = _KEYS | {"double"}
"""Kinds that may be looked up in a map. A double finds the key of the same whole number."""


def _to_key(value: Value) -> Any:
    """Return the dict key for a value."""
    if value is True:
        return TRUE_KEY
    return FALSE_KEY if value is False else value


def build_map(entries: Iterable[tuple[Value, Value]]) -> dict[Any, Value]:
    """Return the map of a literal. Raise RuleError for a key of a wrong kind or a repeated key."""
    built: dict[Any, Value] = {}
    for key, value in entries:
        if KINDS[type(key)] not in _KEYS:
            raise RuleError(f"unsupported key type: {kind_of(key)}")
        if _to_key(key) in built:
            raise RuleError("repeated key in a map")
        built[_to_key(key)] = value
    return built


def map_keys(items: Mapping[Any, Value]) -> tuple[Value, ...]:
    """Return the keys of a map as values of the language."""
    return tuple(key.value if type(key) is BoolKey else key for key in items)


def macro_elements(items: Value) -> tuple[Value, ...]:
    """Return the elements for a macro: those of a list, or the keys of a map. Raise RuleError for other values."""
    if type(items) is tuple:
        return items
    if type(items) in _MAPS:
        return map_keys(items)
    raise RuleError(f"not a list or map: {kind_of(items)}")


def in_map(key: Value, items: Mapping[Any, Value]) -> bool:
    """Compute `key in items` for a map. Raise RuleError for a key of a kind that no map may have."""
    if KINDS[type(key)] not in LOOKUP_KEYS:
        raise overload_error("_in_", key, items)
    return _to_key(key) in items


def in_list(item: Value, items: tuple[Value, ...]) -> bool:
    """Compute `item in items` for a list."""
    return any(equal(item, other) for other in items)


def in_container(item: Value, items: Value) -> bool:
    """Compute `item in items` if a type is known at run time only. Raise RuleError if `items` is no list or map."""
    if type(items) is tuple:
        return in_list(item, items)
    if type(items) in _MAPS:
        return in_map(item, items)
    raise overload_error("_in_", item, items)


def _list_item(items: tuple[Value, ...], index: Value) -> Value:
    if type(index) is float and not index.is_integer():
        raise RuleError("invalid index: not a whole number")
    if not 0 <= index < len(items):
        raise RuleError("index out of bounds")
    return items[int(index)]


def _map_item(items: Mapping[Any, Value], key: Value) -> Value:
    if in_map(key, items):
        return items[_to_key(key)]
    raise RuleError("no such key")


def get_item(items: Value, key: Value) -> Value:
    """Compute `items[key]` of a list or map. Raise RuleError for a missing key or index, or for other values."""
    if type(items) in _MAPS:
        return _map_item(items, key)
    if type(items) is tuple and KINDS[type(key)] in NUMBERS:
        return _list_item(items, key)
    raise overload_error("_[_]", items, key)


def get_field(items: Value, name: str) -> Value:
    """Compute `items.name`. Raise RuleError for a missing field, or if `items` is no map."""
    if type(items) not in _MAPS:
        raise RuleError(f"type {kind_of(items)} does not support field selection")
    if name not in items:  # a name of the rule, which no request chooses
        raise RuleError(f"no such key: {name!r:.80}")
    return items[name]


def has_field(items: Value, name: str) -> bool:
    """Compute `has(items.name)`. Raise RuleError if `items` is no map."""
    if type(items) not in _MAPS:
        raise RuleError(f"type {kind_of(items)} does not support field selection")
    return name in items
