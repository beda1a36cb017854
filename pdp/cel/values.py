"""Run-time values of the language: kinds, comparison, absorbed errors, and the step budget of an evaluation.

bool, int, float, str, bytes, None and tuples represent themselves. Python holds `True == 1` and has one integer type,
so uint and the map keys true and false have classes of their own. So have timestamps, durations and types.

An operand that decides the result absorbs the errors of the others: `false && error` and `error && false` are false;
`true && error` is the error. `||` is the same with true and false exchanged. `all` and `exists` extend both to the
elements of a list. Source: the CEL specification (langdef.md), "Logical Operators" and "Macros".

Outside macros, the size of an expression bounds its work. Macros multiply work by the length of lists, so elements cost
steps, and inside macros so do texts, lists and maps. The budget bounds time and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import call
from typing import Any, Final, TypeAlias

import msgspec

Value: TypeAlias = Any
"""None, bool, int, Uint, float, str, bytes, tuple, dict, PartialMap, Timestamp, Duration or TypeName."""

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class RuleError(Exception):
    """Error of an evaluation. The text names the cause, and quotes no value: a value may be a secret of a request."""

    @property
    def detail(self) -> str:
        """Return the text with what a rule writes, for an expression that reads no value of a request."""
        return str(self)


class BudgetError(RuleError):
    """Evaluation over the step budget. Logic and macros do not absorb this error."""


class PatternError(RuleError):
    """Pattern that RE2 refuses. The detail quotes the pattern."""

    def __init__(self, pattern: str, reason: str) -> None:
        super().__init__("invalid pattern")
        self._detail = f"invalid pattern `{pattern:.80}`: {reason}"

    @property
    def detail(self) -> str:
        """Return the pattern and the reason against it."""
        return self._detail


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


class PartialMap(dict[Any, Value]):
    """Map with unknown keys: values and presence of unknown keys are unknown.

    A use of an unknown key raises RuleError. So do the number of keys, the keys one by one, and equality with a map.
    Known keys are as in any map.
    """

    __slots__ = ("_message", "_unknown")

    def __init__(self, known: Mapping[Any, Value], unknown: frozenset[str], message: str) -> None:
        """Keep the known members. `message` is the text of the error."""
        super().__init__(known)
        self._unknown = unknown
        self._message = message

    def __contains__(self, key: object) -> bool:
        """Tell whether the map has a key. Raise RuleError for an unknown key."""
        if key in self._unknown:
            raise RuleError(self._message)
        return super().__contains__(key)

    def __len__(self) -> int:
        """Raise RuleError: the number of keys is unknown."""
        raise RuleError(self._message)

    def __iter__(self) -> Iterator[Any]:
        """Raise RuleError: not all keys are known."""
        raise RuleError(self._message)


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
    PartialMap: "map",
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


def all_of(*operands: Callable[[], bool]) -> bool:
    """Compute `&&`. False wins over errors, and errors win over true."""
    return not _any_is(False, call, operands)


def any_of(*operands: Callable[[], bool]) -> bool:
    """Compute `||`. True wins over errors, and errors win over false."""
    return _any_is(True, call, operands)


def exists(test: Callable[[Value], bool], items: tuple[Value, ...]) -> bool:
    """Compute `exists`. One true element suffices, even if the test raises for others."""
    return _any_is(True, test, items)


def every(test: Callable[[Value], bool], items: tuple[Value, ...]) -> bool:
    """Compute `all`. One false element suffices for false, even if the test raises for others."""
    return not _any_is(False, test, items)


def _any_is(deciding: bool, test: Callable[[Any], bool], items: tuple[Any, ...]) -> bool:
    """Tell whether the test of an item gives the `deciding` value. Raise the first error if no test does.

    An error is kept back until all items are tested, because a later item may decide. A BudgetError ends the evaluation
    at once: absorbed, the budget would not bound the work.
    """
    error: RuleError | None = None
    for item in items:
        try:
            if test(item) is deciding:
                return True
        except BudgetError:
            raise
        except RuleError as raised:
            error = error or raised
    if error is not None:
        raise error
    return False


def fail(message: str) -> Value:
    """Raise RuleError. Generated code calls this function in place of a part that always fails."""
    raise RuleError(message)


MAX_STEPS: Final = 100_000
"""Steps of one evaluation: elements of macros, and the lengths of values copied or scanned inside macros."""
_PATTERN_STEPS: Final = 500
_COPIED_PER_STEP: Final = 4
_SCANNED_PER_STEP: Final = 8

Budget: TypeAlias = list[int]
"""Steps left, as the only item of a list: generated code passes the list on, and each charge changes the item."""


def new_budget() -> Budget:
    """Return the budget of one evaluation."""
    return [MAX_STEPS]


def _spend(budget: Budget, steps: int) -> None:
    budget[0] -= steps
    if budget[0] < 0:
        raise BudgetError(f"evaluation budget exceeded: more than {MAX_STEPS} steps")


def charge_elements(budget: Budget, items: tuple[Value, ...]) -> tuple[Value, ...]:
    """Charge one step for each element of a macro and return the elements. Raise BudgetError if too few are left."""
    _spend(budget, len(items))
    return items


def charge_copy(budget: Budget, value: Value) -> Value:
    """Charge for a text, list or map made inside a macro and return the value.

    Each copy is paid for by length, so the budget bounds memory, too. Raise BudgetError if too few steps are left.
    """
    _spend(budget, 1 + len(value) // _COPIED_PER_STEP)
    return value


def charge_scan(budget: Budget, value: Value) -> Value:
    """Charge for a text, list or map searched or compared inside a macro and return the value.

    Raise BudgetError if too few steps are left.
    """
    if isinstance(value, (str, bytes, tuple, dict)):
        _spend(budget, 1 + len(value) // _SCANNED_PER_STEP)
    return value


def charge_pattern(budget: Budget, pattern: Value) -> Value:
    """Charge for a pattern made inside a macro and return the pattern: compilation costs as much as many steps.

    Raise BudgetError if too few steps are left.
    """
    _spend(budget, _PATTERN_STEPS)
    return pattern
