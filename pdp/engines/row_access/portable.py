"""Comparisons of a filter, written so that another engine shows the author's rows. Needs the parser of SQL.

Engines differ on NaN, on numbers beside a column of 32 bits, on texts beside times, and on the order of operators. A
comparison is kept, rewritten with the author's meaning, or refused. Types decide only where they are known: a column of
32 bits without a type is compared as written.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sqlglot import exp
from sqlglot.errors import SqlglotError

from pdp.engines.row_access.trino import UntranslatableSql

TypeOf: TypeAlias = Callable[[exp.Column], str]
"""Type of a column as text; empty for an unknown one."""
Kind: TypeAlias = Literal["", "integer", "decimal", "real", "double", "text", "boolean", "date", "other"]
"""Kind of a column in comparisons. `real` has 32 bits. Empty: unknown."""
_T: Final = exp.DataType.Type
_KINDS: Final[dict[Any, Kind]] = {
    **dict.fromkeys((_T.TINYINT, _T.SMALLINT, _T.MEDIUMINT, _T.INT, _T.BIGINT), "integer"),
    **dict.fromkeys((_T.UTINYINT, _T.USMALLINT, _T.UINT), "integer"),
    **dict.fromkeys((_T.DECIMAL, _T.BIGDECIMAL), "decimal"),
    **dict.fromkeys((_T.VARCHAR, _T.TEXT, _T.NVARCHAR), "text"),
    _T.FLOAT: "real", _T.DOUBLE: "double", _T.BOOLEAN: "boolean", _T.DATE: "date",
}  # fmt: skip
_DIALECTS: Final = ("trino", "bigquery", "spark", "duckdb")
_IEEE: Final = frozenset({"athena", "bigquery", "trino"})
"""Dialects in which NaN is neither larger nor equal to anything."""
_BY_VERSION: Final = frozenset({"presto"})
"""Dialects in which the version decides: NaN is equal to NaN and larger than all numbers in Presto since 0.288."""
_LARGEST: Final = frozenset({"databricks", "duckdb", "spark"})
"""Dialects in which NaN is equal to NaN and larger than all numbers."""
_COMPARES_REALS: Final = frozenset({"athena", "duckdb", "presto", "trino"})
"""Dialects with comparisons of a column of 32 bits with `0.1` in 32 bits; Spark compares in 64."""
_COERCES_DATES: Final = frozenset({"bigquery", "databricks", "duckdb", "spark"})
"""Dialects in which a text beside a date is a date."""
_ORDERS: Final = (exp.GT, exp.GTE, exp.LT, exp.LTE)
_COMPARISONS: Final = (exp.EQ, exp.NEQ, *_ORDERS)
_OPPOSITES: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.GT: exp.LTE, exp.GTE: exp.LT, exp.LT: exp.GTE, exp.LTE: exp.GT,
}  # fmt: skip
_CONDITIONS: Final = (exp.And, exp.Or, exp.Not, exp.Where)
_NUMBERS: Final = frozenset({"integer", "decimal", "real", "double"})
_FLOATS: Final = frozenset({"real", "double"})
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_LIKE_TIME: Final = re.compile(r"\s*\d+[-/:]\d")
_MOST_DIGITS: Final = 15
_MOST_SCALE: Final = 22
"""Digits, and digits after the point, of a decimal number with one reading as a double in all engines."""
_TYPES: Final = 4_096
"""Types of columns whose kind is kept."""


class _Number(NamedTuple):
    """Literal of a number: its value, whether it is a whole number, and whether it has an exponent."""

    value: float
    is_whole: bool
    has_exponent: bool
    is_plain: bool
    """All engines read the number as the same double."""


def adapt(tree: exp.Expr, source: str, target: str, type_of: TypeOf) -> exp.Expr:
    """Return the tree of a portable filter of one dialect with the same meaning in another; raise UntranslatableSql.

    Changes the tree.
    """
    work = _Comparisons(source, target, type_of)
    # Inner nodes come first: a rewritten comparison holds what became of its parts.
    for node in reversed(list(tree.walk())):
        new = work.adapted(node)
        if new is not node:
            if node is tree:
                tree = new
            else:
                node.replace(new)
    return tree


class _Comparisons:
    """Comparisons of one dialect in another."""

    def __init__(self, source: str, target: str, type_of: TypeOf) -> None:
        self._source, self._target, self._type_of = source, target, type_of

    def adapted(self, node: exp.Expr) -> exp.Expr:
        """Return a node in its place, or the new one; raise UntranslatableSql."""
        if isinstance(node, _COMPARISONS):
            return self._compared(node)
        if isinstance(node, exp.Between):
            self._check_atoms(node.this, node.args["low"], node.args["high"])
            _check_forms(node.args["low"], node.args["high"])
            for bound in ("low", "high"):
                self._fit(node, "this", bound, is_order=True)
        elif isinstance(node, exp.In):
            self._listed(node)
        elif isinstance(node, exp.Is):
            self._check_atoms(node.this)
        elif isinstance(node, exp.Column) and isinstance(_outside(node), _CONDITIONS) and not self._is_truth(node):
            raise UntranslatableSql(f"`{node.name}` is no condition")  # DuckDB takes a number for a condition
        return node

    def _compared(self, node: exp.Expr) -> exp.Expr:
        self._check_atoms(node.this, node.expression)
        self._fit(node, "this", "expression", is_order=isinstance(node, _ORDERS))
        return self._with_nan(node) if isinstance(node, _ORDERS) else node

    def _is_truth(self, column: exp.Column) -> bool:
        return self._kind(column) in ("", "boolean")

    def _listed(self, node: exp.In) -> None:
        query = node.args.get("query")
        if query is None:
            self._check_atoms(node.this, *node.expressions)
            _check_forms(*node.expressions)
            for place in range(len(node.expressions)):
                self._fit(node, "this", place, is_order=False)
        else:
            self._check_atoms(node.this)
            self._check_pair(_atom(node.this), query)

    def _check_atoms(self, *parts: exp.Expr) -> None:
        """Raise UntranslatableSql for a comparison of a comparison: engines differ on the order of operators."""
        for part in parts:
            if not isinstance(_atom(part), (exp.Column, exp.Literal, exp.Neg, exp.Boolean, exp.Null, exp.Subquery)):
                if isinstance(_atom(part), (exp.SessionUser, exp.CurrentUser)):
                    continue
                raise UntranslatableSql("a comparison stands in a comparison, and engines differ on what binds first")

    def _fit(self, node: exp.Expr, left: str, right: str | int, *, is_order: bool) -> None:
        """Write the two sides of a comparison as the target needs them; raise UntranslatableSql."""
        first = node.args[left]
        second = node.args[right] if isinstance(right, str) else node.expressions[right]
        one, other = _atom(first), _atom(second)
        self._check_pair(one, other)
        self._check_words(one, other)
        for column, value, place in ((one, other, second), (other, one, first)):
            if not isinstance(column, exp.Column):
                continue
            kind = self._kind(column)
            if isinstance(value, exp.Literal) and value.is_string:
                self._fit_text(kind, column, value, place, is_order=is_order)
            elif (number := _number(value)) is not None:
                if kind == "" and is_order and self._source in _BY_VERSION:
                    raise UntranslatableSql(_no_nan(self._source, f"`{column.name}`"))
                new = self._fit_number(kind, column, number)
                if new is not None:
                    place.replace(exp.Literal.number(new))
                    if not isinstance(column.parent, exp.Cast):
                        wide = exp.Cast(to=exp.DataType(this=_T.DOUBLE))
                        column.replace(wide)
                        wide.set("this", column)

    def _fit_text(self, kind: Kind, column: exp.Column, value: exp.Literal, place: exp.Expr, *, is_order: bool) -> None:
        text = value.name
        if kind == "date":
            if self._source not in _COERCES_DATES or not _DATE.fullmatch(text):
                raise UntranslatableSql(f"`{column.name}` is a date, and a text beside it has no certain meaning")
            place.replace(exp.Cast(this=exp.Literal.string(text), to=exp.DataType(this=_T.DATE)))
        elif kind == "" and self._target != "trino" and _LIKE_TIME.match(text):
            raise UntranslatableSql(f"`{column.name}` may be a time, which has another zone in each engine")
        elif kind not in ("", "text"):
            raise UntranslatableSql(f"`{column.name}` is compared with a text, which engines convert differently")

    def _fit_number(self, kind: Kind, column: exp.Column, number: _Number) -> str | None:
        """Return the literal for a comparison in 64 bits; None if the literal stays as written."""
        if kind not in ("", *_NUMBERS):
            raise UntranslatableSql(f"`{column.name}` is compared with a number, which engines convert differently")
        if number.is_whole and abs(number.value) >= 2.0**63:
            raise UntranslatableSql("a whole number has more than 64 bits")
        if kind in _FLOATS and self._source not in _IEEE | _LARGEST:
            raise UntranslatableSql(f"`{column.name}` is a floating number, which `{self._source}` compares in its way")
        is_exact = number.is_plain and abs(number.value) < 2.0**53
        if kind and not is_exact and not (number.is_whole and kind not in _FLOATS):
            raise UntranslatableSql(f"the number beside `{column.name}` has more digits than a double")
        if kind != "real" or _as_real(number.value) == number.value:
            return None
        if "bigquery" in (self._source, self._target) or number.is_whole or not number.is_plain:
            raise UntranslatableSql(f"`{column.name}` has 32 bits, and the number beside it needs more")
        in_reals = self._source in _COMPARES_REALS and not number.has_exponent
        return _double(_as_real(number.value) if in_reals else number.value)

    def _check_words(self, one: exp.Expr, other: exp.Expr) -> None:
        """Raise UntranslatableSql for TRUE, the caller or a literal beside a value of another kind."""
        kinds = [
            _word_kind(each) or (self._kind(each) if isinstance(each, exp.Column) else "") for each in (one, other)
        ]
        has_word = any(kind in ("boolean", "text") for kind in kinds)
        is_literal = all(map(_word_kind, (one, other))) or exp.Boolean in map(type, (one, other))
        is_caller = any(isinstance(each, (exp.SessionUser, exp.CurrentUser)) for each in (one, other))
        if all(kinds) and kinds[0] != kinds[1] and has_word and (is_literal or is_caller):
            raise UntranslatableSql("values of two kinds are compared, which engines convert differently")

    def _check_pair(self, one: exp.Expr, other: exp.Expr) -> None:
        """Raise UntranslatableSql for two columns, or a column and a subquery, that engines compare differently."""
        pair = [_shown(each) for each in (one, other)]
        is_pair = all(isinstance(each, exp.Column) for each in pair)
        if not is_pair and not any(isinstance(each, exp.Query) for each in (one, other)):
            return
        kinds = {self._kind(each) if isinstance(each, exp.Column) else "" for each in pair}
        if "" in kinds:
            if _FLOATS & kinds:
                raise UntranslatableSql("a floating number is compared with a value of no known type")
            if self._source in _BY_VERSION:
                raise UntranslatableSql(_no_nan(self._source, "a value of no known type"))
            return
        is_same_nan = {self._source, self._target} <= _IEEE or {self._source, self._target} <= _LARGEST
        if _FLOATS & kinds and not (is_same_nan and len(kinds) == 1):
            raise UntranslatableSql("engines differ on NaN, and on numbers beside a floating one")
        texts = {self._type_of(each).lower() for each in pair if isinstance(each, exp.Column)}
        if not (len(texts) == 1 or kinds <= {"integer", "decimal"} or (len(kinds) == 1 and "other" not in kinds)):
            raise UntranslatableSql("columns of two types are compared, which engines convert differently")

    def _with_nan(self, node: exp.Expr) -> exp.Expr:
        """Return a comparison by order that treats NaN as the author's engine does."""
        column, value = _atom(node.this), _atom(node.expression)
        if isinstance(column, exp.Column) == isinstance(value, exp.Column):
            return node
        is_left = isinstance(column, exp.Column)
        found = column if is_left else value
        kind = self._kind(found) if isinstance(found, exp.Column) else "other"
        if kind not in ("", *_FLOATS) or (kind == "" and _number(value if is_left else column) is None):
            return node
        is_above = isinstance(node, (exp.GT, exp.GTE) if is_left else (exp.LT, exp.LTE))
        if not is_above or (self._source in _IEEE) == (self._target in _IEEE):
            return node
        if self._source in _IEEE:  # NaN is above nothing there, and above everything here
            nan = exp.Cast(this=exp.Literal.string("NaN"), to=exp.DataType(this=_T.DOUBLE))
            side = (node.this if is_left else node.expression).copy()
            return exp.Paren(this=exp.And(this=node.copy(), expression=exp.NEQ(this=side, expression=nan)))
        inner = _OPPOSITES[type(node)](this=node.this.copy(), expression=node.expression.copy())
        return exp.Paren(this=exp.Not(this=exp.Paren(this=inner)))

    def _kind(self, column: exp.Column) -> Kind:
        return _kind_of(self._type_of(column))


@lru_cache(_TYPES)
def _kind_of(text: str) -> Kind:
    """Return the kind of a type; `other` if dialects read the text as types that they compare differently."""
    kinds = set[Kind]()
    for read in _DIALECTS if text else ():
        try:
            found = exp.DataType.build(text, dialect=read).this
        except (SqlglotError, ValueError, RecursionError):
            continue
        if found not in (_T.USERDEFINED, _T.UNKNOWN):
            kinds.add(_KINDS.get(found, "other"))
    return kinds.pop() if len(kinds) == 1 else "other" if text else ""


def _no_nan(dialect: str, what: str) -> str:
    return (
        f"{what} may be NaN, which versions of `{dialect}` compare in other ways: a type in `tables` could rule it out"
    )


def _outside(node: exp.Expr) -> exp.Expr | None:
    """Return the parent of a node, past parentheses."""
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent


def _atom(node: exp.Expr) -> exp.Expr:
    """Return a side of a comparison, past parentheses and a cast by `adapt`."""
    inner: exp.Expr = node.unnest() if isinstance(node, exp.Paren) else node
    return inner.this if isinstance(inner, exp.Cast) else inner


def _check_forms(*values: exp.Expr) -> None:
    """Raise UntranslatableSql for numbers with and without an exponent in one list: they share a type there."""
    numbers = [number for value in values if (number := _number(_atom(value))) is not None]
    if len({number.has_exponent for number in numbers}) > 1:
        raise UntranslatableSql("numbers of two forms stand in one list, which engines convert differently")


def _shown(node: exp.Expr) -> exp.Expr:
    """Return the only projection of a query; another value as given."""
    query = node.unnest() if isinstance(node, exp.Query) else node
    shown = query.expressions if isinstance(query, exp.Select) else []
    return _atom(shown[0].unalias()) if len(shown) == 1 else node


def _word_kind(node: exp.Expr) -> str:
    """Return the kind of a literal or of the caller's name: text, number or boolean; empty for another value."""
    if isinstance(node, exp.Boolean):
        return "boolean"
    if isinstance(node, exp.Literal):
        return "text" if node.is_string else "number"
    if isinstance(node, (exp.SessionUser, exp.CurrentUser)):
        return "text"
    return "number" if isinstance(node, exp.Neg) else ""


def _number(node: exp.Expr | None) -> _Number | None:
    """Return the number of a literal; None for another value."""
    sign = -1 if isinstance(node, exp.Neg) else 1
    literal = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(literal, exp.Literal) or literal.is_string:
        return None
    text = literal.name.lower()
    try:
        value = float(text)
    except ValueError:
        raise UntranslatableSql("a number has a form of its own") from None
    mantissa, exponent, _ = text.partition("e")
    digits = mantissa.replace(".", "").lstrip("0")
    is_plain = len(digits) <= _MOST_DIGITS and len(mantissa.partition(".")[2]) <= _MOST_SCALE and math.isfinite(value)
    return _Number(sign * value, not exponent and "." not in mantissa, bool(exponent), is_plain)


def _as_real(value: float) -> float:
    """Return the nearest number of 32 bits; infinity beyond them."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _double(value: float) -> str:
    """Return the literal of a double in every dialect."""
    if not math.isfinite(value):
        raise UntranslatableSql("a number has more than 32 bits")
    text = repr(value)
    return text if "e" in text else f"{text}E0"
