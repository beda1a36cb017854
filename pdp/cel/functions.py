"""Standard library as one table: function names, overloads, and their form in generated code.

Source: the CEL specification (langdef.md), "Standard Environment".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

import msgspec

from pdp.cel import arithmetic, containers, times, values
from pdp.cel.patterns import matches
from pdp.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    Type,
    list_of,
    map_of,
    type_type,
)
from pdp.cel.values import KINDS, Value, overload_error, type_of


class Overload(msgspec.Struct, frozen=True, eq=False):
    """One signature of a function. Overloads compare by identity.

    `template` is Python code with places for the arguments; without a template, generated code calls `run`. `raises` is
    False if well-typed arguments never fail, so that Python's `and` and `or` may hold the call. `costly` marks a result
    or a run time that grows with the arguments: inside macros, such a call is charged to the step budget.
    """

    params: tuple[Type, ...]
    result: Type
    run: Callable[..., Value]
    template: str = ""
    raises: bool = True
    costly: bool = False


FunctionKey: TypeAlias = tuple[str, bool]
"""Name of a function, and whether the call is a method call."""
FunctionTable: TypeAlias = Mapping[FunctionKey, tuple[Overload, ...]]
"""Overloads of every function, in the order in which the checker tries them."""
FunctionRow: TypeAlias = tuple[str, bool, Overload]
"""Name of a function, whether the call is a method call, and one overload."""
_Rows: TypeAlias = Iterable[FunctionRow]

_COMPARISONS: Final = {
    "_<_": ("<", values.less),
    "_<=_": ("<=", values.less_equal),
    "_>_": (">", values.greater),
    "_>=_": (">=", values.greater_equal),
}
_NUMBERS: Final = (INT, UINT, DOUBLE)
_LIST: Final = list_of(A)
_MAP: Final = map_of(A, B)


def _function(
    name: str, params: tuple[Type, ...], result: Type, run: Callable[..., Value], **options: Any
) -> FunctionRow:
    return name, False, Overload(params, result, run, **options)


def _method(
    name: str, params: tuple[Type, ...], result: Type, run: Callable[..., Value], **options: Any
) -> FunctionRow:
    return name, True, Overload(params, result, run, **options)


_safe: Final = partial(_function, raises=False)
"""Row of a function that raises no error for well-typed arguments."""


def _comparisons() -> _Rows:
    same = (BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)
    for name, (symbol, run) in _COMPARISONS.items():
        for type in same:
            yield _safe(name, (type, type), BOOL, run, template=f"{{0}} {symbol} {{1}}")
        for left in _NUMBERS:
            for right in _NUMBERS:
                if left != right:
                    yield _safe(name, (left, right), BOOL, run)


def _plus(left: Value, right: Value) -> Value:
    return left + right


def _operators() -> _Rows:
    for symbol, name in {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod"}.items():
        for type, suffix in ((INT, "int"), (UINT, "uint")):
            yield _function(f"_{symbol}_", (type, type), type, getattr(arithmetic, f"{name}_{suffix}"))
    for type in (STRING, BYTES, _LIST):
        yield _safe("_+_", (type, type), type, _plus, template="{0} + {1}", costly=True)
    yield _safe("_+_", (DOUBLE, DOUBLE), DOUBLE, _plus, template="{0} + {1}")
    yield _safe("_-_", (DOUBLE, DOUBLE), DOUBLE, lambda a, b: a - b, template="{0} - {1}")
    yield _safe("_*_", (DOUBLE, DOUBLE), DOUBLE, lambda a, b: a * b, template="{0} * {1}")
    yield _safe("_/_", (DOUBLE, DOUBLE), DOUBLE, arithmetic.div_double)
    yield _function("-_", (INT,), INT, arithmetic.neg_int)
    yield _safe("-_", (DOUBLE,), DOUBLE, lambda a: -a, template="-{0}")
    yield _safe("!_", (BOOL,), BOOL, lambda a: not a, template="not {0}")
    yield _safe("_==_", (A, A), BOOL, values.equal)
    yield _safe("_!=_", (A, A), BOOL, values.unequal)
    yield _safe("@in", (A, _LIST), BOOL, containers.in_container)
    yield _safe("@in", (A, _MAP), BOOL, containers.in_container)
    yield _function("_[_]", (_LIST, INT), A, containers.get_item)
    yield _function("_[_]", (_MAP, A), B, containers.get_item)


def _strings() -> _Rows:
    for type in (STRING, BYTES, _LIST, _MAP):
        yield _safe("size", (type,), INT, len)
        yield "size", True, Overload((type,), INT, len, raises=False)
    for name, template, run in (
        ("startsWith", "{0}.startswith({1})", str.startswith),
        ("endsWith", "{0}.endswith({1})", str.endswith),
        ("contains", "{1} in {0}", str.__contains__),
    ):
        yield _method(name, (STRING, STRING), BOOL, run, template=template, raises=False)
    yield _method("matches", (STRING, STRING), BOOL, matches)
    yield _function("matches", (STRING, STRING), BOOL, matches)


def _identity(value: Value) -> Value:
    return value


def _conversions() -> _Rows:
    for name, type in (
        ("bool", BOOL),
        ("int", INT),
        ("uint", UINT),
        ("double", DOUBLE),
        ("string", STRING),
        ("bytes", BYTES),
        ("timestamp", TIMESTAMP),
        ("duration", DURATION),
    ):
        yield _safe(name, (type,), type, _identity, template="{0}")
    yield _safe("dyn", (A,), DYN, _identity, template="{0}")
    yield _safe("type", (A,), type_type(A), type_of)
    for source, run in ((INT, float), (UINT, float)):
        yield _safe("double", (source,), DOUBLE, run)
    yield _function("bool", (STRING,), BOOL, arithmetic.bool_from_string)
    yield _function("int", (UINT,), INT, arithmetic.int_from_uint)
    yield _function("int", (DOUBLE,), INT, arithmetic.int_from_double)
    yield _function("int", (STRING,), INT, arithmetic.int_from_string)
    yield _safe("int", (TIMESTAMP,), INT, times.seconds_from_timestamp)
    yield _function("uint", (INT,), UINT, arithmetic.uint_from_int)
    yield _function("uint", (DOUBLE,), UINT, arithmetic.uint_from_double)
    yield _function("uint", (STRING,), UINT, arithmetic.uint_from_string)
    yield _function("double", (STRING,), DOUBLE, arithmetic.double_from_string)


def _text_conversions() -> _Rows:
    yield _function("bytes", (STRING,), BYTES, arithmetic.bytes_from_string, costly=True)
    yield _function("string", (BYTES,), STRING, arithmetic.string_from_bytes, costly=True)
    for source, run in (
        (INT, str),
        (UINT, str),
        (DOUBLE, arithmetic.string_from_double),
        (BOOL, arithmetic.string_from_bool),
        (TIMESTAMP, times.format_timestamp),
        (DURATION, times.format_duration),
    ):
        yield _safe("string", (source,), STRING, run)


def _times() -> _Rows:
    yield _function("timestamp", (STRING,), TIMESTAMP, times.parse_timestamp)
    yield _function("timestamp", (INT,), TIMESTAMP, times.timestamp_from_seconds)
    yield _function("duration", (STRING,), DURATION, times.parse_duration)
    yield _function("_+_", (TIMESTAMP, DURATION), TIMESTAMP, times.timestamp_plus_duration)
    yield _function("_+_", (DURATION, TIMESTAMP), TIMESTAMP, times.duration_plus_timestamp)
    yield _function("_+_", (DURATION, DURATION), DURATION, times.add_durations)
    yield _function("_-_", (TIMESTAMP, TIMESTAMP), DURATION, times.subtract_timestamps)
    yield _function("_-_", (TIMESTAMP, DURATION), TIMESTAMP, times.timestamp_minus_duration)
    yield _function("_-_", (DURATION, DURATION), DURATION, times.subtract_durations)
    for name, get in times.TIMESTAMP_GETTERS.items():
        yield _method(name, (TIMESTAMP,), INT, get, raises=False)
        yield _method(name, (TIMESTAMP, STRING), INT, get)
    for name, get in times.DURATION_GETTERS.items():
        yield _method(name, (DURATION,), INT, get, raises=False)


def build_table(*parts: _Rows) -> FunctionTable:
    """Return the overloads of all rows, grouped by function."""
    built: dict[FunctionKey, list[Overload]] = {}
    for rows in parts:
        for name, is_method, overload in rows:
            built.setdefault((name, is_method), []).append(overload)
    return {key: tuple(overloads) for key, overloads in built.items()}


STANDARD: Final = build_table(_comparisons(), _operators(), _strings(), _conversions(), _text_conversions(), _times())
"""Standard library."""


@lru_cache(maxsize=512)
def make_dispatcher(name: str, overloads: tuple[Overload, ...]) -> Callable[..., Value]:
    """Return a function that chooses among `overloads` at run time, by the kinds of its arguments.

    Calls with dyn arguments need the choice. The function raises RuleError if no overload fits.
    """
    by_kinds = {tuple(param.kind for param in overload.params): overload.run for overload in overloads}

    def call(*args: Value) -> Value:
        run = by_kinds.get(tuple(KINDS[type(arg)] for arg in args))
        if run is None:
            raise overload_error(name, *args)
        return run(*args)

    return call
