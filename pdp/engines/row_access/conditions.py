"""Conditions of row policies, checked against the columns of their table. Loads the parser of SQL.

A filter must be one expression that is true or false. Types decide where they are certain: of a column with a known
type, and of functions whose type the parser knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from pdp.engines.row_access.dialects import (
    UntranslatableSql,
    parse_expression,
    translate_expression,
    translate_filter,
)

_VALUES: Final = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe, exp.Concat, exp.Neg, exp.Null, exp.Literal,
    exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot, exp.Array, exp.Tuple, exp.Interval, exp.SessionUser,
    exp.CurrentUser,
)  # fmt: skip
"""Expressions that are no conditions, whatever their parts are."""
_UNDECIDED: Final = frozenset({"UNKNOWN", "BOOLEAN", "NULL"})


def check_condition(text: str, dialect: str, columns: Mapping[str, str] | None, table: str) -> None:
    """Raise ValueError unless a text is one condition on columns of a table.

    `columns` maps folded names to types; None if the columns are unknown. A bare column is a condition only if its
    type is known to be boolean.
    """
    with suppress(UntranslatableSql):  # other engines than Trino can evaluate the filter
        translate_filter(text, dialect)
    tree = parse_expression(text, dialect)
    root = tree.unnest()
    if isinstance(root, _VALUES):
        raise ValueError("it is a value, not a condition")  # noqa: TRY004  a text's value, not a Python type
    if isinstance(root, exp.Column):
        kind = (columns or {}).get(root.name.casefold(), "")
        if not kind.lower().startswith("bool"):
            raise ValueError(f"`{root.name}` is a column, not a condition: compare it with a value")
    elif not isinstance(root, exp.Boolean) and _type_of(root, columns, dialect) not in _UNDECIDED:
        raise ValueError("it is a value, not a condition")
    _check_columns(tree, columns, table)


def check_expression(text: str, dialect: str, columns: Mapping[str, str] | None, table: str) -> None:
    """Raise ValueError unless a text is one expression on columns of a table."""
    with suppress(UntranslatableSql):  # other engines than Trino can evaluate the expression
        translate_expression(text, dialect)
    _check_columns(parse_expression(text, dialect), columns, table)


def _check_columns(tree: exp.Expr, columns: Mapping[str, str] | None, table: str) -> None:
    """Raise ValueError for a column that the table does not have. Subqueries have columns of their own."""
    if columns is None:
        return
    for node in tree.walk(prune=lambda node: isinstance(node, exp.Query)):
        if isinstance(node, exp.Column):
            first, *others = [part.name.casefold() for part in node.parts]
            name = others[0] if others and first == table.casefold() and first not in columns else first
            if name not in columns:
                raise ValueError(f"`{name}` is no column of the table")


def _type_of(root: exp.Expr, columns: Mapping[str, str] | None, dialect: str) -> str:
    """Return the type of an expression as the parser's library knows it; `UNKNOWN` in doubt."""
    types = {name: kind for name, kind in (columns or {}).items() if kind}
    tree = root.copy()
    for column in tree.find_all(exp.Column):
        try:
            column.type = exp.DataType.build(types.get(column.name.casefold(), "unknown"), dialect=dialect)
        except SqlglotError:
            column.type = exp.DataType.build("unknown")
    try:
        found = annotate_types(tree, dialect=dialect).type
    except (SqlglotError, ValueError, KeyError):
        return "UNKNOWN"
    return found.this.name if found is not None else "UNKNOWN"
