"""Casts in a filter or mask, written so that another engine has the author's value."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from pdp.engines.row_access.portable_times import TIME_TYPES, day_of, time_of
from pdp.engines.row_access.portable_values import Compile, PortableValue, PortableValues, converted
from pdp.engines.row_access.trino import UntranslatableSql

_T: Final = exp.DataType.Type
_INTEGERS: Final = {_T.TINYINT: 8, _T.SMALLINT: 16, _T.INT: 32, _T.BIGINT: 64}


def _cast(values: PortableValues, node: exp.Cast) -> PortableValue:
    value, to = values.of(node.this), node.to
    if to.this in TIME_TYPES and not node.args.get("format"):
        return time_of(values, value, to)
    is_plain = not to.expressions and not node.args.get("format")
    if is_plain and to.this in (_T.TEXT, _T.VARCHAR) and value.kind in ("text", "integer", "boolean"):
        if value.kind == "text":
            return value
        return PortableValue(converted(value.node, _T.TEXT if values.target != "trino" else _T.VARCHAR), "text")
    if is_plain and to.this == _T.DATE:
        return day_of(values, value)
    bits = 64 if values.source == "bigquery" else _INTEGERS.get(to.this, 0)
    if is_plain and to.this in _INTEGERS and value.kind == "integer":
        if values.source == "spark" and value.is_constant and bits < value.bits:
            raise UntranslatableSql("`CAST` of a number to fewer bits may wrap later: write the number alone")
        if -(2 ** (bits - 1)) <= value.low <= value.high < 2 ** (bits - 1):
            is_wider = values.source == "spark" and bits > value.bits and not value.is_constant
            return value._replace(node=converted(value.node, to.this) if is_wider else value.node, bits=bits)
        raise UntranslatableSql("`CAST` to fewer bits fails for some numbers: write the column alone")
    raise UntranslatableSql("`CAST` converts whole numbers to text, and literals to dates: write the value as it is")


CASTS: Final[dict[type, Compile]] = {exp.Cast: _cast, exp.TryCast: _cast}
"""Kind of expression -> its compiler."""
