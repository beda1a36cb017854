"""Equality and order of values of any kind. Source: the CEL specification (langdef.md), "Equality" and "Ordering"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pdp.cel.values import KINDS, NUMBERS, Value, overload_error

_ORDERED: Final = NUMBERS | {"bool", "string", "bytes", "timestamp", "duration"}


def _equal_numbers(left: Value, right: Value) -> bool:
    """Compare as doubles if either is a double: the reference implementations round the other number first."""
    if type(left) is float or type(right) is float:
        return float(left) == float(right)
    return bool(left == right)


def _equal_maps(left: Mapping[Any, Value], right: Mapping[Any, Value]) -> bool:
    return len(left) == len(right) and all(key in right and equal(value, right[key]) for key, value in left.items())


def equal(left: Value, right: Value) -> bool:
    """Tell whether two values are equal. Values of different kinds are unequal and raise no error."""
    a, b = KINDS[type(left)], KINDS[type(right)]
    if a in NUMBERS and b in NUMBERS:
        return _equal_numbers(left, right)
    if a != b:
        return False
    if a == "list":
        return len(left) == len(right) and all(map(equal, left, right))
    if a == "map":
        return _equal_maps(left, right)
    return bool(left == right)


def unequal(left: Value, right: Value) -> bool:
    """Tell whether two values differ."""
    return not equal(left, right)


def _order(symbol: str, test: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def compare(left: Value, right: Value) -> bool:
        a, b = KINDS[type(left)], KINDS[type(right)]
        if a == b and a in _ORDERED:
            return test(left, right)
        if a in NUMBERS and b in NUMBERS:
            return test(float(left), float(right)) if "double" in (a, b) else test(left, right)
        raise overload_error(symbol, left, right)

    return compare


less: Final = _order("_<_", lambda a, b: bool(a < b))
less_equal: Final = _order("_<=_", lambda a, b: bool(a <= b))
greater: Final = _order("_>_", lambda a, b: bool(a > b))
greater_equal: Final = _order("_>=_", lambda a, b: bool(a >= b))
