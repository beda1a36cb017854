"""Choices, whole numbers and moved dates in a filter or mask, written so that another engine has the author's value.

Where a whole number could overflow, every value of an operation has the next wider type, and each bound is checked. So
the mathematical result counts where the author's engine would fail. Spark may be set to wrap instead of failing, so
a result beyond Spark's type is NULL, in comparisons alone, where NULL shows no row.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from datetime import date
from typing import Final, NamedTuple

from sqlglot import exp

from pdp.engines.row_access.portable_values import (
    INT,
    LONG,
    WIDEST,
    Compile,
    PortableValue,
    PortableValues,
    converted,
    date_of,
    function,
    kind_of,
    number_of,
    number_sql,
    of_kind,
)
from pdp.engines.row_access.trino import UntranslatableSql

_T: Final = exp.DataType.Type
_MOST_DIGITS: Final = 15
_MOST_SCALE: Final = 22
"""Digits, and digits after the point, of a decimal number with one reading as a double in all engines."""
_PRECISION: Final = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.ASCII)
_FIRST_DAY: Final = -719162
_LAST_DAY: Final = 2932896
"""Days of BigQuery's dates, counted from 1970."""
_SAME: Final = frozenset({"text", "integer", "boolean", "date", "decimal", "double", "timestamp", "instant"})


class LiteralNumber(NamedTuple):
    """Literal of a number: its value, whether it is a whole number, and whether it has an exponent."""

    value: float
    is_whole: bool
    has_exponent: bool
    is_plain: bool
    """All engines read the number as the same double."""


def _coalesce(values: PortableValues, node: exp.Coalesce) -> PortableValue:
    parts = [values.of(part) for part in (node.this, *node.expressions)]
    found = _unified(values, parts, "COALESCE")
    return found._replace(node=function("COALESCE", *(part.node for part in parts)))


def _nullif(values: PortableValues, node: exp.Nullif) -> PortableValue:
    value, other = values.of(node.this), values.of(node.expression)
    if value.kind not in ("text", "integer", "date", "boolean"):
        raise UntranslatableSql("`NULLIF` compares texts, whole numbers, dates or conditions alone: write CASE")
    _unified(values, (value, other), "NULLIF")
    for one, beside in ((value, other), (other, value)):
        values.settle(one, [beside])
    return value._replace(node=function("NULLIF", value.node, other.node), text=None, is_constant=False)


def _unified(values: PortableValues, parts: Sequence[PortableValue], name: str) -> PortableValue:
    """Return the value of one of several parts; raise UntranslatableSql for parts of kinds that differ."""
    some = [part for part in parts if part.kind != "null"]
    numbers = [part for part in some if part.is_number]
    kinds = {part.kind for part in some if not part.is_number} or {part.kind for part in some}
    is_number = kinds <= {"integer", "decimal", "double"} and len(kinds) == 1
    unknown = next((part.node.unnest() for part in some if part.kind == ""), None)
    if isinstance(unknown, exp.Column):
        raise UntranslatableSql(f"`{name}` reads `{unknown.name}`, which has no known type: describe its table")
    if len(kinds) != 1 or not kinds <= _SAME or (numbers and not is_number):
        raise UntranslatableSql(f"`{name}` takes values of one kind: write texts, whole numbers, dates or conditions")
    if any(not -(2**53) < part.low < 2**53 for part in numbers) and kinds != {"integer"}:
        raise UntranslatableSql(f"`{name}` has a number with more digits than a double")
    (kind,) = kinds
    if kind == "decimal":
        _check_decimals(values, some, numbers, name)
    folds = tuple(fold for part in some for fold in part.folds)
    low, high = min(part.low for part in some), max(part.high for part in some)
    return PortableValue(some[0].node, kind, low, high, folds=folds, bits=max(part.bits for part in some))


def _check_decimals(
    values: PortableValues, parts: Sequence[PortableValue], numbers: Sequence[PortableValue], name: str
) -> None:
    """Raise UntranslatableSql for decimals of two types: the common one can lack digits, which fails on a value."""
    types = {values.type_of(column).lower() for part in parts for column in part.node.find_all(exp.Column)}
    types = {type for type in types if kind_of(type) == "decimal"}
    if len(types) != 1:
        raise UntranslatableSql(f"`{name}` takes decimals of one type, which are of one kind")
    precision = _PRECISION.search(types.pop())
    digits = int(precision[1]) - int(precision[2] or 0) if precision else 0
    if any(max(-part.low, part.high) >= 10 ** max(digits, 0) for part in numbers):
        raise UntranslatableSql(f"`{name}` has a number with more digits than the decimals beside")


def _case(values: PortableValues, node: exp.Case) -> PortableValue:
    subject = node.this
    for branch in node.args["ifs"]:
        if subject is None:
            of_kind(values, branch.this, "CASE", "boolean")
        else:
            _when(values, values.of(subject), values.of(branch.this))
    default = node.args.get("default")
    results = [branch.args["true"] for branch in node.args["ifs"]] + ([default] if default is not None else [])
    return _unified(values, [values.of(one) for one in results], "CASE")._replace(node=node)


def _when(values: PortableValues, subject: PortableValue, value: PortableValue) -> None:
    if subject.kind not in ("text", "integer") or not value.is_constant:
        raise UntranslatableSql("`CASE` compares a text or whole number with literals alone: write CASE WHEN")
    _unified(values, (subject, value), "CASE")
    values.settle(subject, [value])


def _if(values: PortableValues, node: exp.If) -> PortableValue:
    of_kind(values, node.this, "IF", "boolean")
    results = [node.args[key] for key in ("true", "false") if node.args.get(key) is not None]
    found = _unified(values, [values.of(one) for one in results], "IF")
    branch = exp.If(this=node.this, true=results[0])
    return found._replace(node=exp.Case(ifs=[branch], default=results[1] if len(results) > 1 else None))


def _arithmetic(values: PortableValues, node: exp.Add | exp.Sub | exp.Mul) -> PortableValue:
    one, other = values.of(node.this), values.of(node.expression)
    name = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}[type(node)]
    if one.kind == "date" and not isinstance(node, exp.Mul):
        return _moved(values, one, node.expression, -1 if isinstance(node, exp.Sub) else 1)
    one, other = of_kind(values, one.node, name, "integer"), of_kind(values, other.node, name, "integer")
    ends = [_apply(node, a, b) for a in (one.low, one.high) for b in (other.low, other.high)]
    low, high, bits = min(ends), max(ends), max(one.bits, other.bits)
    if one.is_constant and other.is_constant:
        return _kept(values, number_of(low)._replace(bits=bits))
    sides = (_wide(values, one, low, high), _wide(values, other, low, high))
    new = exp.Paren(this=type(node)(this=sides[0], expression=sides[1]))
    return _kept(values, PortableValue(new, "integer", low, high, bits=bits))


def _kept(values: PortableValues, value: PortableValue) -> PortableValue:
    """Return a result, NULL where it leaves the type of Spark, which fails there, or wraps where ANSI is off."""
    end = 2 ** (value.bits - 1)
    if values.source != "spark" or -end <= value.low <= value.high < end:
        return value
    if value.is_constant:
        raise UntranslatableSql("a number leaves its type in Spark: write CAST of smaller numbers AS BIGINT")
    ends = [number_sql(one) if -LONG < one < LONG else _bound(values, one) for one in (-end, end - 1)]
    fits = exp.Between(this=value.node.copy(), low=ends[0], high=ends[1])
    node = exp.Case(ifs=[exp.If(this=fits, true=value.node)])
    low, high = max(value.low, -end), min(value.high, end - 1)
    return PortableValue(node, "integer", low, high, bits=value.bits, is_partial=True)


def _bound(values: PortableValues, number: int) -> exp.Expr:
    """Return a number that engines do not read as a literal of 64 bits, in the type of wider results."""
    return exp.Cast(this=exp.Literal.string(str(number)), to=_wide_type(values))


def _wide(values: PortableValues, value: PortableValue, low: int, high: int) -> exp.Expr:
    """Return a whole number of a type that holds the result of an operation; raise UntranslatableSql."""
    if max(-low, high) >= WIDEST:
        raise UntranslatableSql("the numbers can have more than 38 digits")
    if value.is_constant and not -LONG <= value.low < LONG:
        raise UntranslatableSql("a whole number has more than 64 bits")
    if value.is_constant or (values.target == "bigquery" and -LONG <= low <= high < LONG):
        return value.node
    if -INT <= low <= high < INT:
        return converted(value.node, _T.INT)
    if -LONG <= low <= high < LONG:
        return converted(value.node, _T.BIGINT)
    return exp.Cast(this=value.node, to=_wide_type(values))


def _wide_type(values: PortableValues) -> exp.DataType:
    """Return the type of whole numbers of more than 64 bits."""
    types = {"duckdb": _T.INT128, "bigquery": _T.BIGDECIMAL}
    return exp.DataType(this=types[values.target]) if values.target in types else exp.DataType.build("DECIMAL(38, 0)")


def _mod(values: PortableValues, node: exp.Mod) -> PortableValue:
    value, by = of_kind(values, node.this, "MOD", "integer"), of_kind(values, node.expression, "MOD", "integer")
    if not by.is_number or not 1 <= by.low < INT:
        raise UntranslatableSql("`MOD` takes a literal of 1 or more as divisor")
    low = 0 if value.low >= 0 else 1 - by.low
    wide = _wide(values, value, min(value.low, -by.low), max(value.high, by.low))
    bits = max(value.bits, by.bits)
    return PortableValue(function("MOD", wide, by.node), "integer", low, by.low - 1, bits=bits)


def _abs(values: PortableValues, node: exp.Abs) -> PortableValue:
    value = of_kind(values, node.this, "ABS", "integer")
    high = max(-value.low, value.high)
    if value.is_constant:
        return _kept(values, number_of(high)._replace(bits=value.bits))
    call = function("ABS", _wide(values, value, value.low, high))
    return _kept(values, PortableValue(call, "integer", max(value.low, 0), high, bits=value.bits))


def _added(values: PortableValues, node: exp.DateAdd | exp.DateSub | exp.TsOrDsAdd) -> PortableValue:
    unit = node.args.get("unit")
    if unit is not None and unit.name.upper() != "DAY":
        raise UntranslatableSql("`DATE_ADD` adds days alone: write DAY")
    value = of_kind(values, node.this, "DATE_ADD", "date")
    return _moved(values, value, node.expression, -1 if isinstance(node, exp.DateSub) else 1)


def _moved(values: PortableValues, value: PortableValue, amount: exp.Expr, sign: int) -> PortableValue:
    """Return a date plus or minus days; raise UntranslatableSql."""
    if isinstance(amount, exp.Interval):
        if amount.unit is None or amount.unit.name.upper() not in ("DAY", "DAYS"):
            raise UntranslatableSql("dates move by days alone: write INTERVAL .. DAY")
        amount = amount.this
    elif isinstance(amount.parent, (exp.Add, exp.Sub)) and values.source == "trino":
        raise UntranslatableSql("Trino adds intervals to a date: write INTERVAL .. DAY")
    number = values.of(amount)
    text = number.text if number.text is not None else str(number.low) if number.is_number else ""
    if not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > 6:
        raise UntranslatableSql("a date moves by a literal number of days")
    days = exp.Literal.number(str(abs(int(text))))
    signed: exp.Expr = exp.Neg(this=days) if sign * int(text) < 0 else days
    if values.target == "trino":
        return PortableValue(function("DATE_ADD", exp.Literal.string("day"), signed, value.node), "date")
    if values.target == "spark":
        return PortableValue(function("DATE_ADD", value.node, signed), "date")
    if values.target == "duckdb":
        return PortableValue(exp.Paren(this=exp.Add(this=value.node, expression=signed)), "date")
    moves = sign * int(text)
    if is_within(value) and is_within(value._replace(low=value.low + moves, high=value.high + moves)):
        day = function("DATE_FROM_UNIX_DATE", exp.Add(this=function("UNIX_DATE", value.node), expression=signed))
        return PortableValue(day, "date", value.low + moves, value.high + moves)
    # BigQuery fails beyond its last day: that day stands for later ones, so only comparisons with earlier ones hold
    moved: exp.Expr = exp.Add(this=function("UNIX_DATE", value.node), expression=signed)
    day = function("LEAST", function("GREATEST", moved, exp.Literal.number(_FIRST_DAY)), exp.Literal.number(_LAST_DAY))
    return PortableValue(function("DATE_FROM_UNIX_DATE", day), "date", is_clamped=True)


def _apply(node: exp.Expr, one: int, other: int) -> int:
    return one + other if isinstance(node, exp.Add) else one - other if isinstance(node, exp.Sub) else one * other


def is_within(value: PortableValue) -> bool:
    """Tell whether a value is a literal of a date, or its text, between BigQuery's first and last day."""
    day = date_of(value.text) if value.text is not None else None
    low, high = (day.toordinal(), day.toordinal()) if day else (value.low, value.high)
    is_date = value.kind == "date" or day is not None
    return is_date and date.min.toordinal() < low <= high < date.max.toordinal()


def literal_number(node: exp.Expr | None) -> LiteralNumber | None:
    """Return the number of a literal; None for another value."""
    sign = -1 if isinstance(node, exp.Neg) else 1
    literal = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(literal, exp.Literal) or literal.is_string:
        return None
    text = literal.name.lower()
    try:
        value = float(text if text.isascii() else "")
    except ValueError:
        raise UntranslatableSql("a number has a form of its own") from None
    mantissa, exponent, _ = text.partition("e")
    digits = mantissa.replace(".", "").lstrip("0")
    is_plain = len(digits) <= _MOST_DIGITS and len(mantissa.partition(".")[2]) <= _MOST_SCALE and math.isfinite(value)
    return LiteralNumber(sign * value, not exponent and "." not in mantissa, bool(exponent), is_plain)


def word_kind(node: exp.Expr) -> str:
    """Return the kind of a literal or of the caller's name: text, number or boolean; empty for another value."""
    if isinstance(node, exp.Boolean):
        return "boolean"
    if isinstance(node, exp.Literal):
        return "text" if node.is_string else "number"
    if isinstance(node, (exp.SessionUser, exp.CurrentUser)):
        return "text"
    return "number" if isinstance(node, exp.Neg) else ""


def as_real(value: float) -> float:
    """Return the nearest number of 32 bits; infinity beyond them."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def double(value: float) -> str:
    """Return the literal of a double in every dialect."""
    if not math.isfinite(value):
        raise UntranslatableSql("a number has more than 32 bits")
    text = repr(value)
    return text if "e" in text else f"{text}E0"


NUMBERS: Final[dict[type, Compile]] = {
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Case: _case,
    exp.If: _if,
    exp.Add: _arithmetic,
    exp.Sub: _arithmetic,
    exp.Mul: _arithmetic,
    exp.Mod: _mod,
    exp.Abs: _abs,
    exp.DateAdd: _added,
    exp.DateSub: _added,
    exp.TsOrDsAdd: _added,
}
"""Kind of expression -> its compiler."""
