"""Run-time values of the language, their kinds, and the errors of an evaluation.

bool, int, float, str, bytes, None and tuples represent themselves. Python holds `True == 1` and has one integer type,
so uint and the map keys true and false have classes of their own. So have timestamps, durations and types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

Value: TypeAlias = Any
"""None, bool, int, Uint, float, str, bytes, tuple, dict, Timestamp, Duration or TypeName."""

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class RuleError(Exception):
    """Error of an evaluation. The text names the cause."""


class BudgetError(RuleError):
    """Evaluation over the step budget. Logic and macros do not absorb this error."""


class Uint(int):
    """Unsigned 64-bit integer, equal to an int of the same size as CEL requires."""

    __slots__ = ()


class Timestamp(msgspec.Struct, frozen=True, order=True):
    """Instant, in nanoseconds since 1970-01-01 UTC."""

    nanos: int


class Duration(msgspec.Struct, frozen=True, order=True):
    """Signed length of time in nanoseconds."""

    nanos: int


class TypeName(msgspec.Struct, frozen=True):
    """Type as a value: the result of `type(x)`."""

    name: str


class BoolKey(msgspec.Struct, frozen=True, eq=False):
    """Bool as the key of a map, distinct from the keys 0 and 1."""

    value: bool


TRUE_KEY: Final = BoolKey(True)
FALSE_KEY: Final = BoolKey(False)

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
"""Kind of a value, by Python type. Overloads are chosen by kinds."""
NUMBERS: Final = frozenset({"int", "uint", "double"})
"""Kinds of numbers, which compare with each other."""
_FULL_NAMES: Final = {"timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}


def kind_of(value: Value) -> str:
    """Return the kind of a value."""
    return KINDS[type(value)]


def type_of(value: Value) -> TypeName:
    """Return `type(value)`."""
    kind = kind_of(value)
    return TypeName(_FULL_NAMES.get(kind, kind))


def overload_error(function: str, *args: Value) -> RuleError:
    """Return the error for arguments that fit no overload of `function`."""
    return RuleError(f"no such overload: {function}({', '.join(map(kind_of, args))})")


def require_bool(value: Value) -> bool:
    """Return a bool unchanged. Raise RuleError for any other value."""
    if value is True or value is False:
        return value
    raise RuleError(f"not a boolean: {kind_of(value)}")
