"""Values of a column in place of all values of the type, as comparisons with literals tell values apart.

Engines compare a number with a literal exactly, as doubles, as floats of 32 bits, or after rounding the literal to the
scale of the column. A value of each way stands for that way. More values than exist make a proof harder, never wrong.
So an unknown type has the values of every comparable type.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from fractions import Fraction
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sqlglot import exp
from sqlglot.errors import SqlglotError

Truth: TypeAlias = bool | None
"""Truth of a condition in SQL; None for NULL."""
Kind: TypeAlias = Literal["integer", "decimal", "double", "real", "text", "date", "boolean", "other", "unknown"]
UNORDERED: Final = 2
"""Sign of NaN beside any number, in engines that do not order NaN."""


class NumberLiteral(NamedTuple):
    """Number of a text. `digits` are the digits after the point; `is_integer`: neither point nor exponent.

    `has_one_double`: engines agree on the double for the text. With more digits they may differ in the last bit.
    """

    value: Fraction
    digits: int
    is_integer: bool
    has_one_double: bool


class DateLiteral(NamedTuple):
    """Date as in DATE '2024-01-31', by the number of days."""

    days: int


class Value(NamedTuple):
    """Value of a column. `sign` compares the value with a literal: -1, 0, 1, UNORDERED, or None for NULL.

    `own` compares the value with itself. `truth` is the truth of the value as a condition.
    """

    sign: Callable[[Any], int | None]
    own: int | None = 0
    truth: Truth = None
    is_null: bool = False


class Domain(NamedTuple):
    """Type of a column, as far as comparisons depend on the type. `scale` of a decimal; None if unknown."""

    kind: Kind
    scale: int | None = None


UNKNOWN: Final = Domain("unknown")
_NULL: Final = Value(lambda _: None, None, is_null=True)
_OPAQUE: Final = Value(lambda _: None, None)
"""Value with comparisons of truth NULL: a text cast to a number, or an array with NULL inside."""
_NANS: Final = (Value(lambda _: UNORDERED, UNORDERED), Value(lambda _: 1))
"""NaN in engines without an order of NaN, and in engines with NaN above all numbers."""
_INTEGER_TYPES: Final = (
    "TINYINT SMALLINT MEDIUMINT INT BIGINT INT128 INT256 UTINYINT USMALLINT UMEDIUMINT UINT UBIGINT UINT128 UINT256"
)
_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(_INTEGER_TYPES.split(), "integer"),
    **dict.fromkeys(("DECIMAL", "BIGDECIMAL", "DECIMAL32", "DECIMAL64", "DECIMAL128", "DECIMAL256"), "decimal"),
    "DOUBLE": "double",
    "FLOAT": "real",
    **dict.fromkeys(("VARCHAR", "TEXT", "NVARCHAR"), "text"),
    "DATE": "date",
    "BOOLEAN": "boolean",
}
_NUMERIC: Final = frozenset({"integer", "decimal", "double", "real"})
_ROUNDINGS: Final[tuple[Callable[[Fraction], int], ...]] = (math.trunc, math.floor, math.ceil, round)
_MOST_DIGITS: Final = 12
_PADDED: Final = re.compile(r"\s*(?:n|bp)?char(?:acter)?(?!\w|\s+varying)", re.IGNORECASE)
"""Types of texts with blanks at the end: engines may ignore these."""
_ISO_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_PLAIN_WORD: Final = re.compile(r"[A-Za-z]+")
_TYPED_WORDS: Final = "t f y n true false yes no on off nan inf infinity now today tomorrow yesterday epoch allballs"
_WORDS_OF_TYPES: Final = frozenset(_TYPED_WORDS.split())


def domain_of(type: str, dialect: str) -> Domain:
    """Return the domain of a type as `tables` declares the type; UNKNOWN without a known type."""
    if not type or "collat" in type.lower():
        return UNKNOWN
    if _PADDED.match(type):
        return Domain("other")
    try:
        built = exp.DataType.build(type, dialect=dialect)
    except (SqlglotError, ValueError):
        return UNKNOWN
    if not isinstance(built.this, exp.DataType.Type):
        return UNKNOWN
    kind = _KINDS.get(built.this.name, "other")
    parameters = [parameter.name for parameter in built.expressions]
    scale = None
    if kind == "decimal" and parameters:
        scale = int(parameters[1]) if len(parameters) > 1 and parameters[1].isdecimal() else 0
    return Domain(kind, scale)


def takes(domain: Domain, literal: Any) -> bool:
    """Tell whether comparisons of a domain with a literal are known. All literals together judge an unknown type."""
    if domain.kind in ("unknown", "double", "real") and isinstance(literal, NumberLiteral):
        return literal.has_one_double
    if domain.kind == "unknown":
        return not isinstance(literal, DateLiteral)
    if domain.kind in _NUMERIC:
        return isinstance(literal, NumberLiteral)
    if domain.kind == "date":
        return _days(literal) is not None
    return type(literal) is {"text": str, "boolean": bool}.get(domain.kind)


def values_of(domain: Domain, literals: Sequence[Any], *, ordered: bool, bare: bool) -> Sequence[Value] | None:
    """Return values in place of all values of a column; None where nothing is known.

    `literals` are the literals of all comparisons, `ordered` tells of comparisons beside equality, `bare` whether the
    column stands as a condition.
    """
    kind = domain.kind
    if kind in _NUMERIC or kind == "unknown":
        numbers = [literal for literal in literals if isinstance(literal, NumberLiteral)]
        if kind != "unknown":
            return None if bare else [_NULL, *_numbers(domain, numbers)]
        return _unknown_values(literals, numbers, ordered=ordered, bare=bare)
    if kind == "boolean":
        return _booleans()
    if kind == "other" or bare:
        return None
    if kind == "date":
        points: Iterable[Any] = _integers([Fraction(_days(literal) or 0) for literal in literals])
        return [_NULL, *(Value(partial(_day_sign, point)) for point in points)]
    return [_NULL, *(Value(partial(_sign, text)) for text in _texts(literals))]


def _unknown_values(
    literals: Sequence[Any], numbers: Sequence[NumberLiteral], *, ordered: bool, bare: bool
) -> Sequence[Value] | None:
    """Return the values of every comparable type; None for literals of different types."""
    if bare:
        return None if literals else _booleans()
    if len(numbers) == len(literals):
        domains = (Domain("integer"), Domain("decimal"), Domain("real"))
        return [_NULL, _OPAQUE, *(value for domain in domains for value in _numbers(domain, numbers))]
    words = {literal.casefold() for literal in literals if isinstance(literal, str) and _PLAIN_WORD.fullmatch(literal)}
    # two words that differ in more than case are two values of every type; their order depends on the type
    if ordered or words & _WORDS_OF_TYPES or len(words) < len({*literals}):
        return None
    return [_NULL, *(Value(partial(_sign, text)) for text in ("", *literals))]


def _booleans() -> Sequence[Value]:
    return [_NULL, *(Value(partial(_sign, truth), 0, truth) for truth in (False, True))]


def _numbers(domain: Domain, literals: Sequence[NumberLiteral]) -> Iterator[Value]:
    """Yield the values of numbers, for every way of engines to compare numbers with the literals."""
    exact = [literal.value for literal in literals]
    if domain.kind == "integer":
        yield from (Value(partial(_exact_sign, point)) for point in _integers(exact))
        if all(literal.is_integer for literal in literals):
            return
        yield from (Value(partial(_rounded_sign, _double, _double(point))) for point in _integers(exact))
        return
    if domain.kind == "decimal":
        yield from (Value(partial(_exact_sign, point)) for point in _dense(exact))
        for rounding in _scales(domain, literals):
            yield from _rounded(rounding, exact)
    yield from _rounded(_double, exact)
    if domain.kind == "real":
        yield from (Value(partial(_exact_sign, point)) for point in _dense(exact))
        for digits in range(min(max((literal.digits for literal in literals), default=0), _MOST_DIGITS)):
            for way in _ROUNDINGS:
                yield from _rounded(partial(_scaled, digits, way), exact)
        yield from _rounded(_single, exact)
    if domain.kind != "decimal":
        yield from _NANS


def _scales(domain: Domain, literals: Sequence[NumberLiteral]) -> Iterator[Callable[[Any], Any]]:
    """Yield the roundings of literals to the scale of a column; to each possible scale if the scale is unknown."""
    most = max((literal.digits for literal in literals), default=0)
    scales = range(min(most, _MOST_DIGITS)) if domain.scale is None else [domain.scale] if most > domain.scale else []
    for scale in scales:
        for way in _ROUNDINGS:
            yield partial(_scaled, scale, way)


def _rounded(rounding: Callable[[Any], Any], exact: Iterable[Fraction]) -> Iterator[Value]:
    return (Value(partial(_rounded_sign, rounding, point)) for point in _dense(map(rounding, exact)))


def _integers(points: Iterable[Fraction]) -> list[Fraction]:
    """Return the integers at and beside given points. Between two integers apart lies another integer."""
    floors = {point.numerator // point.denominator for point in points} or {0}
    return sorted({Fraction(floor + step) for floor in floors for step in (-1, 0, 1, 2)})


def _dense(points: Iterable[Any]) -> list[Any]:
    """Return the points, a point between each two, and a point beyond each end. Nothing is beyond infinite points."""
    found = sorted(set(points)) or [Fraction(0)]
    finite = [point for point in found if isinstance(point, Fraction)] or [Fraction(0)]
    middles = [(low + high) / 2 for low, high in itertools.pairwise(finite)]
    return [*found, *middles, finite[0] - 1, finite[-1] + 1]


def _texts(literals: Iterable[str]) -> list[str]:
    """Return the least text, the texts, and the successor of each: no text lies between the two."""
    found = sorted(set(literals))
    return ["", *found, *(f"{text}\0" for text in found)]


def _sign(value: Any, literal: Any) -> int:
    return int(value > literal) - int(value < literal)


def _exact_sign(value: Any, literal: NumberLiteral) -> int:
    return _sign(value, literal.value)


def _rounded_sign(rounding: Callable[[Any], Any], value: Any, literal: NumberLiteral) -> int:
    return _sign(value, rounding(literal.value))


def _day_sign(value: Any, literal: Any) -> int:
    return _sign(value, _days(literal))


def _double(number: Fraction) -> Any:
    """Return the nearest double, exactly; an infinity beyond all."""
    try:
        return Fraction(float(number))
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _single(number: Fraction) -> Any:
    """Return the nearest float of 32 bits, exactly; an infinity beyond all."""
    try:
        return Fraction(struct.unpack("f", struct.pack("f", float(number)))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _scaled(digits: int, way: Callable[[Fraction], int], number: Fraction) -> Fraction:
    """Return a number rounded to a number of digits after the point."""
    return Fraction(way(number * 10**digits), 10**digits)


def _days(literal: Any) -> int | None:
    """Return the number of the day of a date or of its ISO text; None for any other literal."""
    if isinstance(literal, DateLiteral):
        return literal.days
    if not isinstance(literal, str) or not _ISO_DATE.fullmatch(literal):
        return None
    try:
        return date.fromisoformat(literal).toordinal()
    except ValueError:
        return None


_DOUBLE: Final = 15
_INT64: Final = 18
"""Digits that each double, and each integer of 64 bits, can have."""
_NUMBER: Final = re.compile(r"\d{1,80}(?:\.(\d{0,80}))?(?:[eE][+-]?\d{1,3})?|\.(\d{1,80})(?:[eE][+-]?\d{1,3})?")


def literal_of(node: exp.Expr) -> Any:
    """Return the value of a number, text, truth or date; None for all else, and for a number of too many digits."""
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Paren):
        return literal_of(node.this)
    if isinstance(node, exp.Neg):
        number = literal_of(node.this)
        return number._replace(value=-number.value) if isinstance(number, NumberLiteral) else None
    if isinstance(node, exp.Cast) and node.is_type("date") and type(node) is exp.Cast:
        days = _days(literal_of(node.this))
        return None if days is None or not isinstance(node.this, exp.Literal) else DateLiteral(days)
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return node.this
    match = _NUMBER.fullmatch(node.this)
    if match is None:
        return None
    digits = len(match[1] or match[2] or "")
    is_integer, written = node.this.isdecimal(), sum(sign.isdigit() for sign in node.this)
    return NumberLiteral(Fraction(node.this), digits, is_integer, written <= (_INT64 if is_integer else _DOUBLE))
