"""Row filters and masks as SQL of StarRocks, made of the row access engine's SQL for Trino.

StarRocks parses the text with the `sql_mode` of the user's session, in parentheses. So a text holds forms that every
mode reads alike: texts in single quotes without backslashes, names in backticks, whole numbers. No test can ask a
StarRocks, so comparisons stay where engines cannot differ. All other parts are FALSE below AND and OR, and make a
negation FALSE. A mask is a constant text or NULL. Must not know principals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from sqlglot import exp

from pdp.engines.row_access.dialects import DIALECT, parse_expression
from pdp.engines.row_access.portable_values import LONG, date_of, kind_of
from pdp.engines.row_access.trino import UNSAFE_SIGNS, UntranslatableSql
from pdp.facts.objects import fold_column

NO_ROWS: Final = "FALSE"
NULL: Final = "NULL"
_Kind: TypeAlias = Literal["", "text", "integer", "date", "boolean"]
_KNOWN: Final = 1024
_LONGEST: Final = 4096
"""Filters that are remembered, and characters of a remembered filter with the types of its columns."""
_CONSTANT: Final = re.compile(r"TRY_CAST\(CAST\('((?:[^']|'')*)' AS varchar\) AS varchar\)")
_WORD: Final = re.compile(r"[^\W\d_]\w*")
_VALUES: Final = frozenset({"true", "false", "nan", "inf", "infinity", "null", "t", "f", "y", "n", "yes", "no", "on"})
"""Words that a column of another type than text may hold."""
_FIRST_YEAR: Final = 1583
"""First whole year in which calendars agree."""
_SIGNS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=",
}  # fmt: skip


class _Operand(NamedTuple):
    """Side of a comparison. `word`: no column of another type can hold the text."""

    sql: str
    kind: _Kind
    is_column: bool = False
    word: bool = False


def starrocks_filter(text: str, types: Mapping[str, str]) -> str:
    """Return a filter in Trino's SQL as SQL of StarRocks; `types` are those of known columns, by folded name.

    Trino shows every shown row, too. A filter without a certain meaning shows no row.
    """
    folded = text.casefold()
    known = tuple((name, type) for name, type in types.items() if name in folded)
    is_short = len(text) + sum(len(name) + len(type) for name, type in known) <= _LONGEST
    return (_remembered if is_short else _translated)(text, known)


def starrocks_mask(text: str) -> str:
    """Return a mask in Trino's SQL, for a column of the type `varchar`, as SQL of StarRocks."""
    found = _CONSTANT.fullmatch(text)
    try:
        return _text(found[1].replace("''", "'")) if found else NULL
    except UntranslatableSql:
        return NULL


def _translated(text: str, types: tuple[tuple[str, str], ...]) -> str:
    try:
        return _Filter(dict(types)).shown(parse_expression(text, DIALECT))
    except (ValueError, RecursionError):
        return NO_ROWS


_remembered: Final = lru_cache(_KNOWN)(_translated)


class _Filter:
    """Parts of a filter on columns with types."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types

    def shown(self, node: exp.Expr) -> str:
        """Return a condition for the rows of a part, or fewer: parts without a certain meaning are FALSE."""
        node = node.unnest()
        if isinstance(node, (exp.And, exp.Or)):
            sign = " AND " if isinstance(node, exp.And) else " OR "
            return f"({sign.join(map(self.shown, node.flatten()))})"
        try:
            return self._exact(node, is_shown=True)
        except UntranslatableSql:
            return NO_ROWS

    def _exact(self, node: exp.Expr, *, is_shown: bool = False) -> str:
        """Return a condition with the truth of a part for every row, NULL included; raise UntranslatableSql.

        With `is_shown`, the condition may hold for fewer rows.
        """
        node = node.unnest()
        if isinstance(node, (exp.And, exp.Or)):
            sign = " AND " if isinstance(node, exp.And) else " OR "
            return f"({sign.join(map(self._exact, node.flatten()))})"
        if isinstance(node, exp.Not):
            return f"(NOT {self._exact(node.this)})"
        if isinstance(node, exp.Boolean):
            return "TRUE" if node.this else "FALSE"
        if isinstance(node, exp.Column):
            return self._boolean(node)
        if sign := _SIGNS.get(type(node), ""):
            one, other = self._operand(node.this), self._operand(node.expression)
            _check_alike((one, other), is_shown=is_shown and sign == "=")
            return f"({one.sql} {sign} {other.sql})"
        if isinstance(node, exp.Between):
            sides = [self._operand(each) for each in (node.this, node.args["low"], node.args["high"])]
            _check_alike(sides)
            return f"({sides[0].sql} BETWEEN {sides[1].sql} AND {sides[2].sql})"
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return f"({self._column(node.this).sql} IS NULL)"
        if isinstance(node, (exp.In, exp.ArrayContains)):
            return self._listed(node, is_shown=is_shown)
        raise UntranslatableSql(f"`{type(node).__name__}` has no certain meaning in StarRocks")

    def _listed(self, node: exp.In | exp.ArrayContains, *, is_shown: bool) -> str:
        """Return IN for a list of values, and for `contains` of a list of texts such as groups."""
        if isinstance(node, exp.In):
            column, values = self._operand(node.this), [self._operand(each) for each in node.expressions]
            if set(filter(node.args.get, node.args)) != {"this", "expressions"}:
                raise UntranslatableSql("IN takes values alone")
        else:
            array = node.this.this if isinstance(node.this, exp.Cast) else node.this
            if not isinstance(array, exp.Array) or not all(_is_text(each) for each in array.expressions):
                raise UntranslatableSql("a list of other values than texts")
            column, values = self._column(node.expression), [self._operand(each) for each in array.expressions]
        if not values or any(value.is_column for value in values):
            raise UntranslatableSql("a list of no values, or of columns")
        _check_alike((column, *values), is_shown=is_shown)
        return f"({column.sql} IN ({', '.join(value.sql for value in values)}))"

    def _boolean(self, node: exp.Column) -> str:
        column = self._column(node)
        if column.kind != "boolean":
            raise UntranslatableSql("a column is no condition")
        return column.sql

    def _operand(self, node: exp.Expr) -> _Operand:
        node = node.unnest()
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Boolean):
            return _Operand("TRUE" if node.this else "FALSE", "boolean")
        if isinstance(node, exp.Literal) and node.is_string:
            return _Operand(_text(node.name), "text", word=_is_word(node.name))
        if isinstance(node, exp.Cast) and node.to.is_type("date") and _is_text(node.this):
            day = date_of(node.this.name)
            if day is not None and day.year >= _FIRST_YEAR:
                return _Operand(f"CAST('{day.isoformat()}' AS DATE)", "date")
        number = node.this if isinstance(node, exp.Neg) else node
        if isinstance(number, exp.Literal) and number.name.isascii() and number.name.isdigit():
            whole = -int(number.name) if isinstance(node, exp.Neg) else int(number.name)
            if -LONG < whole < LONG:
                return _Operand(str(whole), "integer")
        raise UntranslatableSql(f"`{type(node).__name__}` has no certain value in StarRocks")

    def _column(self, node: exp.Expr) -> _Operand:
        node = node.unnest()
        if not isinstance(node, exp.Column) or len(node.parts) != 1 or not node.name:
            raise UntranslatableSql("a part is no column by its name alone")
        if "`" in node.name or "\\" in node.name or UNSAFE_SIGNS.search(node.name):
            raise UntranslatableSql("the name of a column has a sign that StarRocks may read in another way")
        kind = kind_of(self._types.get(fold_column(node.name), ""))
        if kind not in ("", "text", "integer", "date", "boolean"):
            raise UntranslatableSql(f"`{node.name}` is of a type that StarRocks may compare in another way")
        return _Operand(f"`{node.name}`", kind, is_column=True)


def _check_alike(sides: Sequence[_Operand], *, is_shown: bool = False) -> None:
    """Raise UntranslatableSql unless all sides are of one known kind.

    With `is_shown`, a column of no known type may stand beside words: values of other types never equal words.
    """
    kinds = {side.kind for side in sides}
    if len(kinds) == 1 and "" not in kinds:
        return
    others = [side for side in sides if side.kind]
    if not is_shown or len(others) != len(sides) - 1 or not all(side.word for side in others):
        raise UntranslatableSql("values of two kinds, or of no known kind, are compared")


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _is_word(text: str) -> bool:
    return bool(_WORD.match(text)) and text.casefold() not in _VALUES


def _text(value: str) -> str:
    """Return a literal; raise UntranslatableSql for a text that StarRocks may read in another way."""
    if "\\" in value or UNSAFE_SIGNS.search(value):
        raise UntranslatableSql("a text has a sign that StarRocks may read in another way")
    return "'{}'".format(value.replace("'", "''"))
