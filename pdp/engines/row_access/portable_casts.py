"""Casts and roundings in a filter or mask, written so that another engine has the author's value.

Engines read different texts as numbers. Spark's casts cut halves off, DuckDB's round halves of doubles to the even
number, others round away from zero. A failing cast of the author is NULL elsewhere, since an error would show the
value: so such a cast stands in a comparison below AND, OR and NOT alone, where no row is shown for NULL.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

from sqlglot import exp

from pdp.engines.row_access.portable_times import TIME_TYPES, day_of, time_of
from pdp.engines.row_access.portable_values import (
    INT,
    LONG,
    Compile,
    PortableValue,
    PortableValues,
    converted,
    function,
    number_sql,
    of_kind,
)
from pdp.engines.row_access.trino import UntranslatableSql

_T: Final = exp.DataType.Type
_INTEGERS: Final = {_T.TINYINT: 8, _T.SMALLINT: 16, _T.INT: 32, _T.BIGINT: 64}
_TEXTS: Final = (_T.TEXT, _T.VARCHAR)
_DECIMALS: Final = (_T.DECIMAL, _T.BIGDECIMAL)
_LONG_DIGITS: Final = 18
"""Digits that a number of 64 bits always holds."""
_MOST_DIGITS: Final = 37
_MOST_OF_BIGQUERY: Final = 28
"""Digits of a decimal number, and those before the point, that can be rounded in each engine."""
_PLAIN_SCALE: Final = 6
"""Digits behind the point up to which Spark writes no exponent."""
_PRECISION: Final = re.compile(r"\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\)", re.ASCII)
_BLANKS: Final = {"bigquery": r"[\t\n\x0B\f\r ]*", "trino": r"[\x00-\x20]*", "spark": r"[\x00-\x20\x7F]*"}
"""Signs around a number that a cast leaves out."""
_DIGITS: Final = "".join(chr(code) for code in range(0x80, 0x10000) if unicodedata.category(chr(code)) == "Nd")
"""Digits of other scripts, ten by ten. Java reads them."""
_YES: Final = {"bigquery": ("true",), "trino": ("true", "t", "1")}
_NO: Final = {"bigquery": ("false",), "trino": ("false", "f", "0")}
_YES_OF_OTHERS: Final = ("true", "t", "yes", "y", "1")
_NO_OF_OTHERS: Final = ("false", "f", "no", "n", "0")
"""Words of a boolean, in any case."""
_YEAR: Final = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_REFUSED: Final = "`CAST` of this kind differs: write the value as it is"


def _cast(values: PortableValues, node: exp.Cast) -> PortableValue:
    value, to = values.of(node.this), node.to
    if node.args.get("format") or (value.is_clamped and to.this != _T.DATE):
        raise UntranslatableSql(_REFUSED)
    found = _converted(values, value, to, is_try=isinstance(node, exp.TryCast) and bool(node.args.get("safe")))
    if found is None:
        raise UntranslatableSql(_REFUSED)
    return found


def _converted(values: PortableValues, value: PortableValue, to: exp.DataType, *, is_try: bool) -> PortableValue | None:
    """Return a value of another type; None for a cast that differs."""
    if to.this in TIME_TYPES:
        return time_of(values, value, to)
    if to.this in _DECIMALS:
        return _to_decimal(values, value, to)
    if to.expressions:
        return None
    if to.this in _INTEGERS:
        return _to_integer(values, value, 64 if values.source == "bigquery" else _INTEGERS[to.this], is_try=is_try)
    if to.this in _TEXTS:
        return _to_text(values, value)
    if to.this == _T.DATE:
        return _to_date(values, value, is_try=is_try)
    if to.this == _T.BOOLEAN:
        return _to_boolean(values, value, is_try=is_try)
    if to.this == _T.DOUBLE and (value.kind == "double" or _is_long(value)):
        return PortableValue(converted(value.node, _T.DOUBLE), "double")
    return None


def _to_text(values: PortableValues, value: PortableValue) -> PortableValue | None:
    if value.kind == "text":
        return value
    type = _T.VARCHAR if values.target == "trino" else _T.TEXT
    found = PortableValue(converted(value.node, type), "text")
    if value.kind in ("integer", "boolean"):
        return found
    if value.kind == "decimal" and "bigquery" not in (values.source, values.target):
        return found if _digits_of(values, value)[1] <= _PLAIN_SCALE else None
    if value.kind != "date":
        return None
    if "bigquery" in (values.source, values.target) or value.low == value.high:
        return found
    ends = [converted(exp.Literal.string(text), _T.DATE) for text in ("0001-01-01", "9999-12-31")]
    known = exp.Between(this=value.node.copy(), low=ends[0], high=ends[1])  # other years have a text in each engine
    return found._replace(node=_when(known, found.node), is_partial=True)


def _to_date(values: PortableValues, value: PortableValue, *, is_try: bool) -> PortableValue | None:
    if value.kind != "text" or value.text is not None:
        return day_of(values, value)
    if values.source != "bigquery" or value.folds:
        raise UntranslatableSql(
            "`CAST` of a text to DATE takes a literal such as '2024-01-31': engines read more texts"
        )
    text = _extracted(values, value, rf"\A({_YEAR}-[0-9]{{1,2}}-[0-9]{{1,2}})\z")
    return PortableValue(_tried(text, _T.DATE), "date", is_partial=not is_try)


def _to_boolean(values: PortableValues, value: PortableValue, *, is_try: bool) -> PortableValue | None:
    if value.kind == "boolean":
        return value
    if _is_long(value):
        return PortableValue(converted(value.node, _T.BOOLEAN), "boolean")
    if value.kind != "text" or value.folds or value.is_constant:
        return None
    text = value.node
    if values.source == "spark":
        text = _extracted(values, value, rf"\A{_BLANKS['spark']}([A-Za-z01]+){_BLANKS['spark']}\z")
    yes = _among(text, _YES.get(values.source, _YES_OF_OTHERS))
    no = _among(text.copy(), _NO.get(values.source, _NO_OF_OTHERS))
    case = exp.Case(ifs=[exp.If(this=yes, true=exp.true()), exp.If(this=no, true=exp.false())])
    return PortableValue(case, "boolean", is_partial=not is_try)


def _among(text: exp.Expr, words: tuple[str, ...]) -> exp.Expr:
    return exp.In(this=function("LOWER", text), expressions=[exp.Literal.string(word) for word in words])


def _to_decimal(values: PortableValues, value: PortableValue, to: exp.DataType) -> PortableValue | None:
    """Return a number of a decimal type without overflow; None for another value."""
    params = [int(part.name) for part in to.expressions]
    digits, scale = (*params, 0, 0)[:2] if params else _DEFAULTS[values.source]
    whole = digits - scale
    if value.kind == "integer":
        is_sure = max(-value.low, value.high) < 10**whole
        return PortableValue(_decimal(value.node), "decimal") if is_sure else None
    if value.kind != "decimal":
        return None
    most, old = _digits_of(values, value)
    if whole < most - old + (scale < old) or digits > _MOST_DIGITS:
        return None
    if "bigquery" in (values.source, values.target) and (whole > _MOST_OF_BIGQUERY or scale > 9):
        return None
    return value if scale >= old else PortableValue(function("ROUND", value.node, number_sql(scale)), "decimal")


_DEFAULTS: Final = {"bigquery": (38, 9), "trino": (38, 0), "spark": (10, 0), "duckdb": (18, 3)}
"""Digits of DECIMAL, and those behind the point, without parameters."""


def _decimal(node: exp.Expr) -> exp.Expr:
    return exp.Cast(this=node, to=exp.DataType.build("DECIMAL(38, 0)"))


def _digits_of(values: PortableValues, value: PortableValue) -> tuple[int, int]:
    """Return the digits of a column's decimal type, and those behind the point; raise UntranslatableSql."""
    column = value.node.unnest()
    found = _PRECISION.search(values.type_of(column)) if isinstance(column, exp.Column) else None
    if found is None:
        raise UntranslatableSql("a decimal number is a column with a type such as DECIMAL(18,2) in `tables`")
    return int(found[1]), int(found[2] or 0)


def _to_integer(values: PortableValues, value: PortableValue, bits: int, *, is_try: bool) -> PortableValue | None:
    if is_try and _is_long(value) and not -(2 ** (bits - 1)) <= value.low <= value.high < 2 ** (bits - 1):
        return _bounded(converted(value.node, _T.BIGINT), bits, is_partial=False)
    if value.kind == "integer":
        return _narrowed(values, value, bits)
    if value.kind == "boolean":
        return PortableValue(converted(value.node, _T.INT), "integer", 0, 1, bits=bits)
    if value.kind == "text" and values.source in _BLANKS and not value.folds and not value.is_constant:
        return _bounded(_number_in(values, value), bits, is_partial=not is_try)
    if value.kind == "decimal":
        digits, scale = _digits_of(values, value)
        if digits - scale < _LONG_DIGITS and digits <= _MOST_DIGITS:
            whole = _tried(_whole(values, value.node), _T.BIGINT)
            return _bounded(whole, bits, is_partial=not is_try and 10 ** (digits - scale) >= 2 ** (bits - 1))
    if value.kind == "double" and values.source != "duckdb":
        low, high = (exp.Literal.number(f"{sign}9.223372036854775808E18") for sign in ("-", ""))
        fits = exp.And(
            this=exp.GTE(this=value.node.copy(), expression=low),
            expression=exp.LT(this=value.node.copy(), expression=high),
        )
        return _bounded(_when(fits, _tried(_whole(values, value.node), _T.BIGINT)), bits, is_partial=not is_try)
    return None


def _narrowed(values: PortableValues, value: PortableValue, bits: int) -> PortableValue:
    if values.source == "spark" and value.is_constant and bits < value.bits:
        raise UntranslatableSql("`CAST` of a number to fewer bits may wrap later: write the number alone")
    if not -(2 ** (bits - 1)) <= value.low <= value.high < 2 ** (bits - 1):
        raise UntranslatableSql("`CAST` to fewer bits fails for some numbers: write the column alone")
    is_wider = values.source == "spark" and bits > value.bits and not value.is_constant
    type = next((type for type, size in _INTEGERS.items() if size == bits), _T.BIGINT)
    return value._replace(node=converted(value.node, type) if is_wider else value.node, bits=bits)


def _bounded(node: exp.Expr, bits: int, *, is_partial: bool) -> PortableValue:
    """Return a number of 64 bits as a number of fewer bits: NULL beyond."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if high < LONG - 1:
        fits = exp.Between(this=node.copy(), low=number_sql(low), high=number_sql(high))
        node = _when(fits, node)
    return PortableValue(node, "integer", low, high, bits=bits, is_partial=is_partial)


def _whole(values: PortableValues, node: exp.Expr) -> exp.Expr:
    """Return a whole number as the author's casts round: Spark cuts off, others round a half away from zero."""
    if values.source != "spark":
        return function("ROUND", node)
    names = {"trino": "TRUNCATE", "bigquery": "TRUNC", "duckdb": "TRUNC"}
    return function(names[values.target], node) if values.target in names else node


def _number_in(values: PortableValues, value: PortableValue) -> exp.Expr:
    """Return the number in a text, as the author's engine reads the text; NULL for other texts."""
    blanks, digits = _BLANKS[values.source], f"0-9{_DIGITS if values.source == 'trino' else ''}"
    text = _extracted(values, value, rf"\A{blanks}([+-]?[{digits}]+){blanks}\z")
    if values.source == "trino":
        signs = [exp.Literal.string(one) for one in (_DIGITS, "0123456789" * (len(_DIGITS) // 10))]
        text = function("TRANSLATE", text, *signs)
    number = _tried(text, _T.BIGINT)
    if values.source != "bigquery":
        return number
    negative = exp.Sub(this=number_sql(0), expression=_hexadecimal(values, value, "-"))
    return function("COALESCE", number, _hexadecimal(values, value, "[+]?"), negative)


def _hexadecimal(values: PortableValues, value: PortableValue, sign: str) -> exp.Expr:
    """Return the number of BigQuery's form `0x1F` in a text."""
    blanks = _BLANKS["bigquery"]
    digits = _extracted(values, value, rf"\A{blanks}{sign}0[xX]0*([0-7]?[0-9A-Fa-f]{{1,15}}){blanks}\z")
    if values.target == "trino":
        return function("FROM_BASE", digits, number_sql(16))
    if values.target == "spark":
        return _tried(function("CONV", digits, number_sql(16), number_sql(10)), _T.BIGINT)
    return _tried(function("CONCAT", exp.Literal.string("0x"), digits), _T.BIGINT)


def _extracted(values: PortableValues, value: PortableValue, pattern: str) -> exp.Expr:
    """Return the group of a pattern in a text; empty or NULL without one."""
    group = [] if values.target == "bigquery" else [number_sql(1)]
    return function("REGEXP_EXTRACT", value.node.copy(), exp.Literal.string(pattern), *group)


def _tried(node: exp.Expr, type: Any) -> exp.Expr:
    return exp.TryCast(this=node, to=exp.DataType(this=type), safe=True)


def _is_long(value: PortableValue) -> bool:
    """Tell whether a value is a whole number of 64 bits: a wider number has other types, and other operations."""
    return value.kind == "integer" and -LONG <= value.low <= value.high < LONG


def _when(condition: exp.Expr, node: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition, true=node)])


def _divided(values: PortableValues, node: exp.IntDiv | exp.Div) -> PortableValue:
    """Return a quotient of whole numbers, cut off; `/` divides so in Trino."""
    if isinstance(node, exp.Div) and values.source != "trino":
        raise UntranslatableSql("`/` differs: write a comparison with a product")
    value, by = of_kind(values, node.this, "DIV", "integer"), of_kind(values, node.expression, "DIV", "integer")
    if not by.is_number or not 1 <= by.low < INT or not _is_long(value):
        raise UntranslatableSql("`DIV` takes a literal of 1 or more as divisor: write a comparison with a product")
    low, high = (abs(end) // by.low * (1 if end > 0 else -1) for end in (value.low, value.high))
    if values.target == "bigquery":
        found: exp.Expr = function("DIV", value.node, by.node)
    elif values.target == "trino":
        found = exp.Paren(this=exp.Div(this=value.node, expression=by.node, typed=True))
    else:
        found = exp.Paren(this=exp.IntDiv(this=value.node, expression=by.node))
    return PortableValue(found, "integer", low, high, bits=64 if values.source == "spark" else max(value.bits, by.bits))


def _rounded(values: PortableValues, node: exp.Round) -> PortableValue:
    value, places = values.of(node.this), node.args.get("decimals")
    count = values.of(places) if places is not None else None
    if (count is not None and not (count.is_number and 0 <= count.low <= _MOST_DIGITS)) or node.args.get("truncate"):
        raise UntranslatableSql("`ROUND` takes a literal number of digits behind the point")
    if value.kind == "integer" and values.source != "bigquery":
        return value
    if value.kind == "double" and count is None:
        return PortableValue(function("ROUND", value.node), "double")
    if value.kind != "decimal":
        raise UntranslatableSql("`ROUND` of this kind differs: write the value as it is")
    digits, scale = _digits_of(values, value)
    if digits > _MOST_DIGITS or ("bigquery" in (values.source, values.target) and digits - scale > _MOST_OF_BIGQUERY):
        raise UntranslatableSql("`ROUND` of a decimal with so many digits may fail: write the column alone")
    if count is not None and count.low >= scale:
        return value
    return PortableValue(function("ROUND", value.node, *([count.node] if count else [])), "decimal")


CASTS: Final[dict[type, Compile]] = {
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.IntDiv: _divided,
    exp.Div: _divided,
    exp.Round: _rounded,
}
"""Kind of expression -> its compiler."""
