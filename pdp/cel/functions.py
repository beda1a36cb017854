"""The standard library as one table: names, overloads, and how each is written in generated code.

A template is Python over the argument texts; an overload without one is called. `raises` says that the overload may
fail with well-typed arguments, which is what decides between plain and absorbing logic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from pdp.cel import arithmetic, times, values
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
from pdp.cel.values import KINDS, Value, no_overload


class Overload(msgspec.Struct, frozen=True):
    """One signature; `costly` marks results or work that grow with the arguments, charged inside comprehensions."""

    params: tuple[Type, ...]
    result: Type
    run: Callable[..., Value]
    template: str = ""
    raises: bool = True
    costly: bool = False


FunctionKey: TypeAlias = tuple[str, bool]
"""A function's name, and whether it is called as a method."""
FunctionTable: TypeAlias = Mapping[FunctionKey, tuple[Overload, ...]]
_Row: TypeAlias = tuple[str, bool, Overload]
_Rows: TypeAlias = Iterable[_Row]

COMPARISONS: Final = {
    "_<_": ("<", values.less),
    "_<=_": ("<=", values.less_equal),
    "_>_": (">", values.greater),
    "_>=_": (">=", values.greater_equal),
}
_NUMBERS: Final = (INT, UINT, DOUBLE)
_LIST: Final = list_of(A)
_MAP: Final = map_of(A, B)


def _function(name: str, params: tuple[Type, ...], result: Type, run: Callable[..., Value], **options: Any) -> _Row:
    return name, False, Overload(params, result, run, **options)


def _method(name: str, params: tuple[Type, ...], result: Type, run: Callable[..., Value], **options: Any) -> _Row:
    return name, True, Overload(params, result, run, **options)


_safe: Final = partial(_function, raises=False)


def _comparisons() -> _Rows:
    same = (BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)
    for name, (symbol, run) in COMPARISONS.items():
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
    yield _safe("@in", (A, _LIST), BOOL, values.contained)
    yield _safe("@in", (A, _MAP), BOOL, values.contained)
    yield _function("_[_]", (_LIST, INT), A, values.index)
    yield _function("_[_]", (_MAP, A), B, values.index)


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
    yield _safe("type", (A,), type_type(A), values.type_of)
    for source, run in ((INT, float), (UINT, float)):
        yield _safe("double", (source,), DOUBLE, run)
    yield _function("bool", (STRING,), BOOL, arithmetic.bool_from_string)
    yield _function("int", (UINT,), INT, arithmetic.int_from_uint)
    yield _function("int", (DOUBLE,), INT, arithmetic.int_from_double)
    yield _function("int", (STRING,), INT, arithmetic.int_from_string)
    yield _safe("int", (TIMESTAMP,), INT, times.to_seconds)
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
        (TIMESTAMP, times.show_timestamp),
        (DURATION, times.show_duration),
    ):
        yield _safe("string", (source,), STRING, run)


def _times() -> _Rows:
    yield _function("timestamp", (STRING,), TIMESTAMP, times.parse_timestamp)
    yield _function("timestamp", (INT,), TIMESTAMP, times.from_seconds)
    yield _function("duration", (STRING,), DURATION, times.parse_duration)
    yield _function("_+_", (TIMESTAMP, DURATION), TIMESTAMP, times.add_time)
    yield _function("_+_", (DURATION, TIMESTAMP), TIMESTAMP, times.add_to_span)
    yield _function("_+_", (DURATION, DURATION), DURATION, times.add_spans)
    yield _function("_-_", (TIMESTAMP, TIMESTAMP), DURATION, times.between)
    yield _function("_-_", (TIMESTAMP, DURATION), TIMESTAMP, times.before)
    yield _function("_-_", (DURATION, DURATION), DURATION, times.subtract_spans)
    for name, get in times.TIMESTAMP_PARTS.items():
        yield _method(name, (TIMESTAMP,), INT, get, raises=False)
        yield _method(name, (TIMESTAMP, STRING), INT, get)
    for name, get in times.DURATION_PARTS.items():
        yield _method(name, (DURATION,), INT, get, raises=False)


def table(*parts: _Rows) -> FunctionTable:
    """The overloads by name and way of calling."""
    built: dict[FunctionKey, list[Overload]] = {}
    for rows in parts:
        for name, is_method, overload in rows:
            built.setdefault((name, is_method), []).append(overload)
    return {key: tuple(overloads) for key, overloads in built.items()}


STANDARD: Final = table(_comparisons(), _operators(), _strings(), _conversions(), _text_conversions(), _times())


def dispatcher(name: str, overloads: tuple[Overload, ...]) -> Callable[..., Value]:
    """One function that chooses among `overloads` by the kinds of its arguments, as dyn arguments need."""
    by_kinds = {tuple(param.kind for param in overload.params): overload.run for overload in overloads}

    def call(*args: Value) -> Value:
        run = by_kinds.get(tuple(KINDS[type(arg)] for arg in args))
        if run is None:
            raise no_overload(name, *args)
        return run(*args)

    return call
